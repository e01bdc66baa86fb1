package broker

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// pattern gives bytes that differ.
func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return p
}

func TestStreamCallCarriesBodiesBothWays(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			type request struct {
				method, length, te string
				sum                [32]byte
			}
			var seen atomic.Pointer[request]
			down := pattern(5<<20 + 17)
			up := newWeb(t, protocol, func(w http.ResponseWriter, r *http.Request) {
				h := sha256.New()
				_, _ = io.Copy(h, r.Body)
				seen.Store(&request{r.Method, r.Header.Get("Content-Length"), strings.Join(r.TransferEncoding, ","), [32]byte(h.Sum(nil))})
				w.Header().Set("Trailer", "X-Sum")
				w.Header().Set("X-Kind", "big")
				_, _ = w.Write(down)
				w.Header().Set("X-Sum", "7")
			})
			r := start(t, setup{rules: []policy.Rule{up.rule}})
			body := pattern(6<<20 + 5)
			h := r.stream(within(t), t, headOf("POST", up.URL+"/x"), bytes.NewReader(body))
			h.wants(t, "SUCCESS/SUCCESS/ANSWERED: ANSWERED", 200, string(down))
			if h.head.GetProtocol() != strings.TrimSuffix(protocol, ".0") || len(h.head.GetTrailers()) != 0 || fmt.Sprint(h.result.GetResponse().GetTrailers()) == "[]" ||
				h.result.GetResponse().GetTrailers()[0].GetValue() != "7" {
				t.Errorf("head %v, result's response %v", h.head, h.result.GetResponse())
			}
			got := seen.Load()
			if got.sum != sha256.Sum256(body) || got.length != "" || protocol == "HTTP/1.1" && got.te != "chunked" {
				t.Errorf("%+v", got)
			}
			// Without a body, and with none known.
			for _, method := range []string{"GET", "DELETE", "POST"} {
				h = r.stream(within(t), t, headOf(method, up.URL+"/x"), nil)
				h.wants(t, "SUCCESS/SUCCESS/ANSWERED: ANSWERED", 200, string(down))
				if got := seen.Load(); got.method != method || got.sum != sha256.Sum256(nil) || method != "POST" && got.te != "" {
					t.Errorf("%+v", got)
				}
			}
			if h = r.stream(within(t), t, headOf("HEAD", up.URL+"/x"), nil); h.says() != "SUCCESS/SUCCESS/ANSWERED: ANSWERED" || len(h.body) > 0 {
				t.Errorf("HEAD: %s, %d bytes", h.says(), len(h.body))
			}
			if load := r.server.Load(); load.Calls != 0 || load.Bytes != 0 {
				t.Errorf("still taken: %+v", load)
			}
		})
	}
}

func TestStreamCallWaitsForNoEnd(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			up := newWeb(t, protocol, func(w http.ResponseWriter, r *http.Request) {
				flow := http.NewResponseController(w)
				_ = flow.EnableFullDuplex()
				p := make([]byte, 1<<10)
				for { // it says back what it hears
					n, err := r.Body.Read(p)
					if n > 0 {
						_, _ = w.Write(bytes.ToUpper(p[:n]))
						_ = flow.Flush()
					}
					if err != nil {
						return
					}
				}
			})
			up.rule.Attempt.Timeout = new(200 * time.Millisecond) // it ends with the head
			r := start(t, setup{rules: []policy.Rule{up.rule}})
			s := r.open(within(t), t, headOf("POST", up.URL))
			said := ""
			for _, word := range []string{"one", "two", "three"} {
				if err := s.Send(chunk([]byte(word))); err != nil {
					t.Fatal(err)
				}
				for want := said + strings.ToUpper(word); said != want; {
					m, err := s.Recv()
					if err != nil {
						t.Fatal(err)
					}
					said += string(m.GetChunk())
				}
				pause := time.NewTimer(150 * time.Millisecond)
				<-pause.C
			}
			if err := s.CloseSend(); err != nil {
				t.Fatal(err)
			}
			m, err := s.Recv()
			if err != nil || m.GetResult().GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
}

func TestStreamCallIsRepeatedAsLongAsItCanBe(t *testing.T) {
	const replay = 100 << 10
	for _, protocol := range protocols {
		for _, tt := range []struct {
			name         string
			method       string
			size         int
			first        func(w http.ResponseWriter, r *http.Request)
			change       func(*policy.Rule, *pb.CallRequest)
			says         string
			status       uint32
			body         string
			atLast, seen int // bytes that the last request had, and how many there were
		}{
			{"busy, and all of it is kept", "PUT", replay, busy503, nil, "SUCCESS/SUCCESS/ANSWERED: ANSWERED,ANSWERED", 200, "ok", replay, 2},
			{"busy, and a byte too much", "PUT", replay + 1, busy503, nil, "HTTP_ERROR/BODY_NOT_REPLAYABLE/UNKNOWN: ANSWERED", 503, "busy", replay + 1, 1},
			{"busy, single use", "PUT", 10, busy503, func(_ *policy.Rule, r *pb.CallRequest) { r.SingleUseBody = true }, "HTTP_ERROR/BODY_NOT_REPLAYABLE/UNKNOWN: ANSWERED", 503, "busy", 10, 1},
			{"busy, and it must not be repeated", "POST", 10, busy503, nil, "HTTP_ERROR/NOT_REPEATABLE/UNKNOWN: ANSWERED", 503, "busy", 10, 1},
			{
				"busy until no attempt is left", "GET", 0, busyAlways, func(r *policy.Rule, _ *pb.CallRequest) { r.Retry.MaxAttempts = new(uint32(2)) },
				"RETRIES_EXHAUSTED/ATTEMPTS_EXHAUSTED/ANSWERED: ANSWERED,ANSWERED", 503, "busy", 0, 2,
			},
			{"lost before an answer", "PUT", replay, lost, nil, "SUCCESS/SUCCESS/ANSWERED: SENT_NO_RESPONSE,ANSWERED", 200, "ok", replay, 2},
			{"lost, and a byte too much", "PUT", replay + 1, lost, nil, "UNKNOWN/BODY_NOT_REPLAYABLE/UNKNOWN: SENT_NO_RESPONSE", 0, "", replay + 1, 1},
			{"busy, with more than is held", "GET", 0, busyAtLength, nil, "HTTP_ERROR/BODY_NOT_REPLAYABLE/ANSWERED: ANSWERED", 503, strings.Repeat("b", 65<<10), 0, 1},
			{"redirected with its body", "PUT", 10, redirect(307), follows, "SUCCESS/SUCCESS/ANSWERED: ANSWERED,ANSWERED", 200, "ok", 10, 2},
			{"redirected without it", "POST", replay + 1, redirect(303), follows, "SUCCESS/SUCCESS/ANSWERED: ANSWERED,ANSWERED", 200, "ok", 0, 2},
			{"redirected, and its body is gone", "PUT", replay + 1, redirect(307), follows, "SUCCESS/SUCCESS/ANSWERED: ANSWERED", 307, "", replay + 1, 1},
			{"redirected too often", "GET", 0, redirectTo("/always"), follows, "RESPONSE_REJECTED/REDIRECT_LIMIT/ANSWERED: ANSWERED,ANSWERED", 302, "moved", 0, 2},
			{"redirected into nowhere", "GET", 0, redirectTo("http://user@example.com/"), follows, "RESPONSE_REJECTED/MALFORMED_RESPONSE/ANSWERED: ANSWERED", 302, "moved", 0, 1},
			{"redirected where nobody may go", "GET", 0, redirectTo("http://169.254.169.254/"), follows, "DENIED/EGRESS_DENIED/ANSWERED: ANSWERED", 302, "moved", 0, 1},
			{"redirected, with more than is held", "GET", 0, redirectAtLength, follows, "SUCCESS/SUCCESS/ANSWERED: ANSWERED", 307, strings.Repeat("b", 65<<10), 0, 1},
			{"redirected, and not followed", "PUT", 10, redirect(307), nil, "SUCCESS/SUCCESS/ANSWERED: ANSWERED", 307, "", 10, 1},
		} {
			t.Run(protocol+" "+tt.name, func(t *testing.T) {
				var seen, size atomic.Int64
				up := newWeb(t, protocol, func(w http.ResponseWriter, r *http.Request) {
					n, _ := io.Copy(io.Discard, r.Body)
					size.Store(n)
					if seen.Add(1) == 1 || r.URL.Path == "/always" {
						tt.first(w, r)
						return
					}
					_, _ = w.Write([]byte("ok"))
				})
				req := headOf(tt.method, up.URL+"/first")
				if tt.name == "busy until no attempt is left" {
					req.Request.Url = up.URL + "/always"
				}
				up.rule.Body.ReplayBytes = new(uint64(replay))
				if tt.change != nil {
					tt.change(&up.rule, req)
				}
				r := start(t, setup{rules: []policy.Rule{up.rule}})
				h := r.stream(within(t), t, req, bytes.NewReader(pattern(tt.size)))
				h.wants(t, tt.says, tt.status, tt.body)
				if int(seen.Load()) != tt.seen || int(size.Load()) != tt.atLast {
					t.Errorf("%d requests, the last with %d bytes", seen.Load(), size.Load())
				}
			})
		}
	}
}

func busy503(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte("busy"))
}

func busyAlways(w http.ResponseWriter, r *http.Request) { busy503(w, r) }

func busyAtLength(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(bytes.Repeat([]byte("b"), 65<<10))
}

func lost(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func redirect(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/second")
		w.WriteHeader(code)
	}
}

func redirectTo(location string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusFound)
		_, _ = w.Write([]byte("moved"))
	}
}

func redirectAtLength(w http.ResponseWriter, r *http.Request) {
	redirect(http.StatusTemporaryRedirect)(w, r)
	_, _ = w.Write(bytes.Repeat([]byte("b"), 65<<10))
}

func follows(r *policy.Rule, _ *pb.CallRequest) { r.Redirects.MaxHops = new(uint32(1)) }

func TestStreamCallRefusesWhatItCannotTake(t *testing.T) {
	up := newWeb(t, "HTTP/1.1", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	keyed := policy.Rule{Name: "policies/keyed", Revision: 1, File: true, Match: policy.Match{PathPrefix: "/keyed"}}
	keyed.Idempotency.Enabled = new(true)
	r := start(t, setup{rules: []policy.Rule{up.rule, keyed}})
	head := func(change func(*pb.CallRequest)) *pb.StreamCallRequest {
		req := headOf("POST", up.URL)
		change(req)
		return &pb.StreamCallRequest{Part: &pb.StreamCallRequest_Head{Head: req}}
	}
	good := head(func(*pb.CallRequest) {})
	for _, tt := range []struct {
		name, field string
		messages    []*pb.StreamCallRequest
	}{
		{"nothing", "head", nil},
		{"a chunk first", "head", []*pb.StreamCallRequest{chunk([]byte("x"))}},
		{"no part first", "head", []*pb.StreamCallRequest{{}}},
		{"a body in the head", "head.request.body", []*pb.StreamCallRequest{head(func(r *pb.CallRequest) { r.Request.Body = []byte("x") })}},
		{"an operation id", "head.operation_id", []*pb.StreamCallRequest{head(func(r *pb.CallRequest) { r.OperationId = "x" })}},
		{"an operation id as a field", "head.request.headers", []*pb.StreamCallRequest{head(func(r *pb.CallRequest) {
			r.Request.Url, r.Request.Headers = up.URL+"/keyed", []*pb.HttpHeader{{Name: "Idempotency-Key", Value: "x"}}
		})}},
		{"deferral", "head.allow_deferral", []*pb.StreamCallRequest{head(func(r *pb.CallRequest) { r.AllowDeferral = true })}},
		{"no URL", "head.request.url", []*pb.StreamCallRequest{head(func(r *pb.CallRequest) { r.Request.Url = "" })}},
		{"a second head", "part", []*pb.StreamCallRequest{head(func(r *pb.CallRequest) { r.Request.Method = "GET" }), good}},
		{"no part", "part", []*pb.StreamCallRequest{head(func(r *pb.CallRequest) { r.Request.Method = "GET" }), {}}},
		{"a body of TRACE", "part", []*pb.StreamCallRequest{head(func(r *pb.CallRequest) { r.Request.Method = "TRACE" }), chunk([]byte("x"))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := r.calls.StreamCall(within(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range tt.messages {
				_ = s.Send(m) // it may be over
			}
			_ = s.CloseSend()
			h := listenTo(t, s)
			if tt.name == "a body of TRACE" && h.err == nil { // its answer may have been faster
				return
			}
			if status.Code(h.err) != codes.InvalidArgument || h.result != nil {
				t.Errorf("%v, %v", h.err, h.result)
			}
			if bad := detail[errdetails.BadRequest](h.err); len(bad.GetFieldViolations()) != 1 || bad.GetFieldViolations()[0].GetField() != tt.field {
				t.Errorf("%v", bad)
			}
			if tt.field != "part" && unsent(h.err) != "INVALID_REQUEST" {
				t.Errorf("unsent %q", unsent(h.err))
			}
		})
	}
	// In the midst of an upload nobody says that nothing was sent.
	began := make(chan struct{}, 1)
	slow := newWeb(t, "HTTP/1.1", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = r.Body.Read(make([]byte, 1))
		began <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	s := r.open(within(t), t, headOf("POST", slow.URL))
	_ = s.Send(chunk([]byte("x")))
	<-began
	_ = s.Send(good)
	if h := listenTo(t, s); status.Code(h.err) != codes.InvalidArgument || unsent(h.err) != "" || !strings.Contains(h.err.Error(), "UNKNOWN") {
		t.Errorf("%v", h.err)
	}
	s = r.open(within(t), t, headOf("POST", slow.URL))
	_ = s.Send(chunk(make([]byte, 1<<20+100)))
	if h := listenTo(t, s); status.Code(h.err) != codes.ResourceExhausted || !strings.Contains(h.err.Error(), "1048576") {
		t.Errorf("%v", h.err)
	}
}

func TestStreamCallTellsWhyItEndedEarly(t *testing.T) {
	for _, protocol := range protocols {
		for _, tt := range []struct {
			name   string
			handle http.HandlerFunc
			change func(*policy.Rule, *pb.CallRequest)
			says   string
			status uint32
			body   string
			after  time.Duration // it takes at least that long
		}{
			{"reset in the midst of the answer", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("half"))
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}, nil, "UNKNOWN/BODY_NOT_REPLAYABLE/UNKNOWN: PARTIAL_RESPONSE", 200, "half", 0},
			{
				"the answer pauses", func(w http.ResponseWriter, r *http.Request) {
					_, _ = w.Write([]byte("half"))
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}, func(r *policy.Rule, _ *pb.CallRequest) { r.Attempt.IdleBodyTimeout = new(100 * time.Millisecond) },
				"UNKNOWN/BODY_NOT_REPLAYABLE/UNKNOWN: PARTIAL_RESPONSE", 200, "half", 100 * time.Millisecond,
			},
			{"no head in time", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(r *policy.Rule, _ *pb.CallRequest) {
				r.Attempt.Timeout, r.Retry.MaxAttempts = new(100*time.Millisecond), new(uint32(2))
			}, "RETRIES_EXHAUSTED/ATTEMPTS_EXHAUSTED/UNKNOWN: SENT_NO_RESPONSE,SENT_NO_RESPONSE", 0, "", 200 * time.Millisecond},
			{"the stream's own time", func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}, func(r *policy.Rule, _ *pb.CallRequest) {
				r.Deadline.MaxStreamDuration, r.Attempt.Timeout, r.Deadline.MaxTimeout = new(300*time.Millisecond), new(200*time.Millisecond), new(200*time.Millisecond)
				r.Retry.MaxAttempts = new(uint32(1))
			}, "DEADLINE_EXCEEDED/DEADLINE/UNKNOWN: PARTIAL_RESPONSE", 200, "x", 250 * time.Millisecond},
		} {
			t.Run(protocol+" "+tt.name, func(t *testing.T) {
				up := newWeb(t, protocol, tt.handle)
				req := headOf("GET", up.URL)
				if tt.change != nil {
					tt.change(&up.rule, req)
				}
				r := start(t, setup{rules: []policy.Rule{up.rule}})
				began := time.Now()
				h := r.stream(within(t), t, req, nil)
				h.wants(t, tt.says, tt.status, tt.body)
				if took := time.Since(began); took < tt.after {
					t.Errorf("after %v", took)
				}
				if load := r.server.Load(); load.Calls != 0 || load.Bytes != 0 {
					t.Errorf("still taken: %+v", load)
				}
			})
		}
	}
}
