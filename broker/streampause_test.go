package broker

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// pausing runs an upstream over one of the protocols, and a broker before it under that rule.
func pausing(t *testing.T, http2 bool, rule policy.Rule, handle http.HandlerFunc) (*running, string) {
	t.Helper()
	rule.Name, rule.Revision, rule.File = "policies/pausing", 1, true
	up := httptest.NewUnstartedServer(handle)
	if http2 {
		up.EnableHTTP2 = true
		up.StartTLS()
		rule.Attempt.Protocols = []policy.Protocol{policy.ProtocolHTTP2}
		rule.Egress.TLS.CAPEM = new(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw})))
	} else {
		up.Start()
	}
	t.Cleanup(up.Close)
	return start(t, setup{rules: []policy.Rule{rule}}), up.URL
}

// dialogue sends the words with that pause before each, ends its side if it is to, and gives what came back.
func dialogue(t *testing.T, r *running, method, url string, pause time.Duration, words []string, ends bool) (body string, result *pb.CallResponse) {
	t.Helper()
	s, err := r.calls.StreamCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&pb.StreamCallRequest{Part: &pb.StreamCallRequest_Head{Head: &pb.CallRequest{Request: &pb.HttpRequest{Method: method, Url: url}}}})
	go func() {
		for _, word := range words {
			timer := time.NewTimer(pause)
			<-timer.C
			_ = s.Send(&pb.StreamCallRequest{Part: &pb.StreamCallRequest_Chunk{Chunk: []byte(word)}}) // it may be over
		}
		if ends {
			_ = s.CloseSend() // as above
		}
	}()
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return body, result
		}
		if err != nil {
			t.Fatal(err)
		}
		body += string(m.GetChunk())
		if r := m.GetResult(); r != nil {
			result = r
		}
	}
}

// The time between two pieces of an answer is the upstream's. It does not run out while the upstream waits for the caller.
func TestIdleBodyTimeoutSparesAnUpstreamThatWaitsForTheCaller(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", http2), func(t *testing.T) {
			rule := policy.Rule{}
			rule.Attempt.IdleBodyTimeout = new(100 * time.Millisecond)
			r, url := pausing(t, http2, rule, func(w http.ResponseWriter, r *http.Request) {
				flow := http.NewResponseController(w)
				_ = flow.EnableFullDuplex()
				_ = flow.Flush()
				p := make([]byte, 64)
				for {
					n, err := r.Body.Read(p)
					_, _ = w.Write(p[:n])
					_ = flow.Flush()
					if err == nil {
						continue
					}
					if r.URL.Path == "/hangs" {
						<-r.Context().Done()
					}
					return
				}
			})
			body, result := dialogue(t, r, "POST", url+"/echo", 250*time.Millisecond, []string{"a", "b"}, true)
			if body != "ab" || result.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
				t.Errorf("%q, %v %s", body, result.GetOutcome(), result.GetDetail())
			}
			// With the whole request it runs.
			began := time.Now()
			body, result = dialogue(t, r, "POST", url+"/hangs", 50*time.Millisecond, []string{"a"}, true)
			if a := result.GetAttempts(); body != "a" || result.GetOutcome() != pb.Outcome_OUTCOME_UNKNOWN || a[0].GetFailure() != pb.Failure_FAILURE_ATTEMPT_TIMEOUT {
				t.Errorf("%q, %v %v", body, result.GetOutcome(), a)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("after %v", took)
			}
		})
	}
}

// A caller that does not send its body in time opens nobody's breaker.
func TestSlowUploadDoesNotOpenTheBreaker(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", http2), func(t *testing.T) {
			rule := policy.Rule{}
			rule.Attempt.Timeout = new(1100 * time.Millisecond) // more than timeout_floor, below which nothing counts
			rule.Retry.MaxAttempts = new(uint32(1))
			rule.Breaker.ConsecutiveFailures, rule.Breaker.MinDistinctCallers = new(uint32(1)), new(uint32(1))
			r, url := pausing(t, http2, rule, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // only then a server notices that its client has gone
				if r.URL.Path == "/deaf" {
					<-r.Context().Done()
				}
			})
			for _, method := range []string{"POST", "GET"} { // the body of the second does not begin
				words := []string{"a"}
				if method == "GET" {
					words = nil
				}
				if _, result := dialogue(t, r, method, url+"/slow", 0, words, false); result.GetOutcome() == pb.Outcome_OUTCOME_SUCCESS {
					t.Errorf("%s: %v", method, result)
				}
				if _, result := dialogue(t, r, "POST", url+"/ok", 0, []string{"a"}, true); result.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
					t.Errorf("after %s: %v %s", method, result.GetOutcome(), result.GetDetail())
				}
			}
			// An upstream that has the whole request and says nothing does.
			_, _ = dialogue(t, r, "POST", url+"/deaf", 0, []string{"a"}, true)
			if _, result := dialogue(t, r, "POST", url+"/ok", 0, nil, true); result.GetOutcome() != pb.Outcome_OUTCOME_BREAKER_OPEN {
				t.Errorf("after silence: %v", result.GetOutcome())
			}
		})
	}
}

// An upload that takes longer than its attempt may is told what to change; one whose server is slow after it is not, nor one that attempt.timeout
// did not end: the caller's own time was up, or the head was there.
func TestStreamWhoseUploadTookTooLongSaysSo(t *testing.T) {
	const unsent, change = "the body was not sent whole by then", "a longer attempt.timeout gives it more time"
	for _, protocol := range protocols {
		for _, row := range []struct {
			name           string
			path           string
			timeout        time.Duration
			deadline       time.Duration
			whole          bool
			unsent, change bool
		}{
			{name: "its attempt", timeout: 200 * time.Millisecond, deadline: 20 * time.Second, unsent: true, change: true},
			{name: "sent whole", timeout: 200 * time.Millisecond, deadline: 20 * time.Second, whole: true},
			{name: "its caller", timeout: 20 * time.Second, deadline: time.Second, unsent: true},
			{name: "after the head", path: "/early", timeout: 200 * time.Millisecond, deadline: time.Second},
		} {
			up := newWeb(t, protocol, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/early" {
					_ = http.NewResponseController(w).EnableFullDuplex()
					w.WriteHeader(http.StatusOK)
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			})
			up.rule.Attempt.Timeout, up.rule.Retry.MaxAttempts = &row.timeout, new(uint32(1))
			r := start(t, setup{rules: []policy.Rule{up.rule}})
			ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
			t.Cleanup(cancel)
			s := r.open(ctx, t, headOf("PUT", up.URL+row.path))
			if err := s.Send(chunk([]byte("begun"))); err != nil {
				t.Fatal(err)
			}
			if row.whole {
				if err := s.CloseSend(); err != nil {
					t.Fatal(err)
				}
			}
			h := listenTo(t, s)
			detail := h.result.GetAttempts()[0].GetDetail()
			if strings.Contains(detail, unsent) != row.unsent || strings.Contains(detail, change) != row.change {
				t.Errorf("%s, %s: %q", protocol, row.name, detail)
			}
		}
	}
}
