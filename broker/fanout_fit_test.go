package broker

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func TestFanOutReplyFitsAStockClient(t *testing.T) {
	// replyOf has as many branches as there are sizes, of body, fields and attempts in KiB.
	replyOf := func(sizes ...[3]int) *pb.FanOutResponse {
		resp := &pb.FanOutResponse{Outcome: pb.FanOutOutcome_FAN_OUT_OUTCOME_COMPLETE}
		for _, kib := range sizes {
			r := &pb.CallResponse{Outcome: pb.Outcome_OUTCOME_SUCCESS, Effect: pb.Effect_EFFECT_ANSWERED, Detail: "as it was"}
			r.Response = &pb.HttpResponse{Status: 200, Body: make([]byte, kib[0]<<10)}
			for range kib[1] {
				r.Response.Headers = append(r.Response.Headers, &pb.HttpHeader{Name: "A", Value: strings.Repeat("a", 1<<10)})
			}
			for range kib[2] {
				r.Attempts = append(r.Attempts, &pb.Attempt{Detail: strings.Repeat("a", 1<<10)})
			}
			resp.Results = append(resp.Results, &pb.BranchResult{Id: "b", Response: r})
		}
		return resp
	}
	many := func(n int, kib [3]int) (all [][3]int) {
		for range n {
			all = append(all, kib)
		}
		return all
	}
	for _, tt := range []struct {
		name                     string
		sizes                    [][3]int
		bodies, fields, attempts int // of how many branches they stay
		keeps                    int // the branch whose body stays in any case
	}{
		{"small", many(64, [3]int{48, 4, 2}), 64, 64, 64, 0},
		{"as large as can be", [][3]int{{4095, 0, 0}}, 1, 0, 0, 0},
		{"larger", [][3]int{{4096, 0, 0}}, 0, 0, 0, -1},
		{"one replayed", [][3]int{{100, 1, 1}, {5000, 1, 1}, {200, 1, 1}}, 2, 3, 3, 0},
		{"much in the fields", many(64, [3]int{1, 70, 1}), 0, 57, 64, -1},
		{"much in the attempts", many(64, [3]int{0, 1, 80}), 0, 0, 50, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp := replyOf(tt.sizes...)
			shrink(resp)
			if n := proto.Size(resp); n > 4<<20 {
				t.Errorf("%d bytes", n)
			}
			bodies, fields, attempts := 0, 0, 0
			for i, b := range resp.GetResults() {
				r := b.GetResponse()
				if r.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || r.GetEffect() != pb.Effect_EFFECT_ANSWERED || r.GetResponse().GetStatus() != 200 || !strings.HasPrefix(r.GetDetail(), "as it was") {
					t.Errorf("branch %d: %v, %q", i, r.GetOutcome(), r.GetDetail())
				}
				if (len(r.GetResponse().GetBody()) == 0) != (r.GetResponse().GetBodyOmitted() || tt.sizes[i][0] == 0) {
					t.Errorf("branch %d: %d bytes, omitted %v", i, len(r.GetResponse().GetBody()), r.GetResponse().GetBodyOmitted())
				}
				if (len(r.GetResponse().GetHeaders()) == 0 && tt.sizes[i][1] > 0) != strings.Contains(r.GetDetail(), "the fields of the answer are left out") {
					t.Errorf("branch %d: %q", i, r.GetDetail())
				}
				bodies += min(1, len(r.GetResponse().GetBody()))
				fields += min(1, len(r.GetResponse().GetHeaders()))
				attempts += min(1, len(r.GetAttempts()))
			}
			if bodies != tt.bodies || fields != tt.fields || attempts != tt.attempts {
				t.Errorf("bodies of %d, fields of %d, attempts of %d", bodies, fields, attempts)
			}
			if tt.keeps >= 0 && len(resp.GetResults()[tt.keeps].GetResponse().GetResponse().GetBody()) == 0 {
				t.Errorf("branch %d has no body", tt.keeps)
			}
		})
	}
}
