package broker

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// ofSize is a request of so many bytes on the wire.
func ofSize(t *testing.T, url string, size int) *pb.CallRequest {
	t.Helper()
	req := post(url, "")
	body := make([]byte, size)
	req.Request.Body = body
	req.Request.Body = body[:2*size-proto.Size(req)] // less what the rest of the message takes
	if got := proto.Size(req); got != size {
		t.Fatalf("%d bytes, want %d", got, size)
	}
	return req
}

func TestMessageLimitIsExact(t *testing.T) {
	up := scripted(t, say(okAnswer))
	r := start(t, setup{})
	// The largest message is read, and refused by the policy with the field; one byte more is refused unread.
	_, err := r.calls.Call(within(t), ofSize(t, up.url("/"), 20<<20))
	if status.Code(err) != codes.InvalidArgument || unsent(err) != "INVALID_REQUEST" {
		t.Errorf("20 MiB: %v", err)
	}
	_, err = r.calls.Call(within(t), ofSize(t, up.url("/"), 20<<20+1))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("20 MiB and a byte: %v", err)
	}
	if n := len(up.requests()); n != 0 {
		t.Errorf("%d requests sent", n)
	}
}

// What a policy may allow fits into a message, both ways (contract.md §5).
func TestSixteenMiBGoThrough(t *testing.T) {
	const size = 16 << 20
	rule := policy.Rule{Name: "policies/large", Revision: 1, File: true}
	rule.Body.MaxRequestBytes, rule.Body.MaxResponseBytes = new(uint64(size)), new(uint64(size))
	up := scripted(t, say("HTTP/1.1 200 OK\r\nContent-Length: 16777216\r\n\r\n"+strings.Repeat("x", size)))
	r := start(t, setup{rules: []policy.Rule{rule}})
	req := post(up.url("/"), "")
	req.Request.Body = make([]byte, size)
	resp, err := r.calls.Call(within(t), req, grpc.MaxCallRecvMsgSize(20<<20))
	if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || len(resp.GetResponse().GetBody()) != size {
		t.Fatalf("%v, %v, %d bytes", err, resp.GetOutcome(), len(resp.GetResponse().GetBody()))
	}
	if got := len(up.requests()[0].body); got != size {
		t.Errorf("the upstream saw %d bytes", got)
	}
}

// grpc-go takes 16 MiB of headers unless told otherwise. The client learns the limit from the server's SETTINGS (RFC 9113 §6.5.2).
func TestMetadataIsBounded(t *testing.T) {
	up := scripted(t, say(okAnswer))
	r := start(t, setup{})
	for size, taken := range map[int]bool{15 << 10: true, 16 << 10: false, 1 << 20: false} {
		ctx := metadata.AppendToOutgoingContext(within(t), "x-large", strings.Repeat("x", size))
		if _, err := r.calls.Call(ctx, get(up.url("/"))); (err == nil) != taken {
			t.Errorf("%d bytes of metadata: %v", size, err)
		}
	}
	if n := len(up.requests()); n != 1 {
		t.Errorf("%d requests sent, want 1", n)
	}
}
