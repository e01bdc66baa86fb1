package broker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/deferred"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/store/seal"
	"github.com/sallyport/sallyport/store/sqlite"
)

// file keeps operations and deferred calls as the broker does. Where fail is set it takes no submission.
type file struct {
	sqlite.Deferred
	ledger *sqlite.Ledger
	fail   atomic.Pointer[error]
}

func (f *file) Submit(ctx context.Context, r *deferred.Record) (deferred.Record, bool, error) {
	if err := f.fail.Load(); err != nil {
		return deferred.Record{}, false, *err
	}
	return f.Deferred.Submit(ctx, r)
}

func openFile(t testing.TB) *file {
	t.Helper()
	keys, err := seal.Load(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := sqlite.OpenLedger(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), keys)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &file{Deferred: l.Deferred(), ledger: l}
}

// handing is a broker whose policy hands over what it can.
func handing(t testing.TB, change func(*policy.Rule)) (*running, *file) {
	t.Helper()
	rule := policy.Rule{Name: "policies/handing", Revision: 3, File: true}
	rule.HandOver.OnDeadline, rule.HandOver.OnBreakerOpen = new(true), new(true)
	rule.Deadline.CallerMargin = new(2 * time.Second) // however slow the disk under test is
	rule.Breaker.ConsecutiveFailures, rule.Breaker.MinDistinctCallers = new(uint32(0)), new(uint32(1))
	rule.Deferred.Backoff = policy.BackoffRule{Base: new(time.Millisecond), Jitter: new(backoff.JitterNone)}
	if change != nil {
		change(&rule)
	}
	f := openFile(t)
	return start(t, setup{ledger: f.ledger, kept: f, deferral: true, rules: []policy.Rule{rule}}), f
}

// mayGoOn allows a call to go on for an hour.
func mayGoOn(req *pb.CallRequest) *pb.CallRequest {
	req.AllowDeferral, req.ExpireTime = true, timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Second))
	return req
}

func put(url, id string) *pb.CallRequest {
	return &pb.CallRequest{Request: &pb.HttpRequest{Method: "PUT", Url: url, Body: []byte("{}")}, OperationId: id}
}

// short is the time of a call whose work ends after 200ms.
func short(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// silent answers nothing until it is open, and then 200.
func silent(t testing.TB) (s *script, open func()) {
	t.Helper()
	s = play(t, 200)
	var opened atomic.Bool
	answer := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !opened.Load() {
			_, _ = io.Copy(io.Discard, r.Body) // the server sees its peer go only once the body was read
			<-r.Context().Done()
			return
		}
		answer.ServeHTTP(w, r)
	})
	return s, func() { opened.Store(true) }
}

func TestCallOutOfTimeGoesOn(t *testing.T) {
	up, open := silent(t)
	r, _ := handing(t, func(p *policy.Rule) { // it waits until the test has looked
		p.Retry.Backoff = policy.BackoffRule{Base: new(700 * time.Millisecond), Cap: new(time.Second), Jitter: new(backoff.JitterNone)}
	})
	req := mayGoOn(put(up.URL+"/x", "op"))
	req.Labels, req.Criticality = map[string]string{"order": "7"}, pb.Criticality_CRITICALITY_CRITICAL
	resp, err := r.calls.Call(short(t), req)
	if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_DEFERRED || resp.GetReason() != pb.Reason_REASON_DEFERRED || resp.GetNext() != pb.NextStep_NEXT_STEP_WAIT ||
		resp.GetEffect() != pb.Effect_EFFECT_UNKNOWN || len(resp.GetAttempts()) != 1 || resp.GetSends() != 1 || !resp.GetRetrySafe() || resp.GetReplayed() ||
		resp.GetOperationId() != "op" || resp.GetPolicy() != "policies/handing@3" || resp.GetRetryAfter().AsDuration() != 700*time.Millisecond ||
		!strings.HasPrefix(resp.GetDeferredCall(), "deferredCalls/") {
		t.Fatalf("%v, %v", resp, err)
	}
	again, err := r.calls.Call(within(t), req)
	if err != nil || again.GetOutcome() != pb.Outcome_OUTCOME_DEFERRED || again.GetNext() != pb.NextStep_NEXT_STEP_WAIT || again.GetReason() != pb.Reason_REASON_DEFERRED ||
		again.GetDeferredCall() != resp.GetDeferredCall() || !again.GetReplayed() || again.GetSends() != 0 {
		t.Errorf("again: %v, %v", again, err)
	}
	d, err := r.deferred.GetDeferredCall(within(t), &pb.GetDeferredCallRequest{Name: resp.GetDeferredCall()})
	if c := d.GetDeferredCall(); err != nil || c.GetState() != pb.DeferredState_DEFERRED_STATE_RETRYING || len(c.GetAttempts()) != 1 || c.GetOperationId() != "op" ||
		!c.GetExpireTime().AsTime().Round(time.Second).Equal(req.GetExpireTime().AsTime()) || c.GetCall().GetLabels()["order"] != "7" ||
		c.GetCall().GetCriticality() != pb.Criticality_CRITICALITY_CRITICAL || c.GetCall().GetAllowDeferral() || c.GetMaxRetries() != 14 || c.GetPossibleDuplicate() {
		t.Errorf("%v, %v", c, err)
	}
	open()
	ended := finished(t, within(t), r, resp.GetDeferredCall())
	if len(ended.GetAttempts()) != 2 || ended.GetState() != pb.DeferredState_DEFERRED_STATE_COMPLETED || !ended.GetPossibleDuplicate() {
		t.Fatalf("%v", ended)
	}
	first, second := ended.GetAttempts()[0], ended.GetAttempts()[1]
	if first.GetSpanId() != resp.GetAttempts()[0].GetSpanId() || second.GetNumber() != 2 || second.GetKind() != pb.AttemptKind_ATTEMPT_KIND_RETRY ||
		second.GetOffset().AsDuration() < first.GetOffset().AsDuration()+first.GetDuration().AsDuration()+700*time.Millisecond {
		t.Errorf("%v, then %v", first, second)
	}
	last, err := r.calls.Call(within(t), req)
	if err != nil || last.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || !last.GetReplayed() || string(last.GetResponse().GetBody()) != "answer" || last.GetDeferredCall() != "" {
		t.Errorf("after its end: %v, %v", last, err)
	}
}

// The key is the same in the background.
func TestKeyedCallGoesOnUnderItsKey(t *testing.T) {
	up := play(t, 503, 200)
	r, _ := handing(t, func(p *policy.Rule) {
		p.Idempotency.Enabled = new(true)
		p.Retry.Backoff = policy.BackoffRule{Base: new(time.Second), Cap: new(time.Second), Jitter: new(backoff.JitterNone)}
	})
	resp, err := r.calls.Call(short(t), mayGoOn(post(up.URL+"/x", "op")))
	if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_DEFERRED || resp.GetResponse().GetStatus() != 503 {
		t.Fatalf("%v, %v", resp, err)
	}
	finished(t, within(t), r, resp.GetDeferredCall())
	if keys := up.keys(); len(keys) != 2 || keys[0] != "op" || keys[1] != "op" {
		t.Errorf("keys %q", keys)
	}
}

func TestCallBeforeAnOpenBreakerGoesOn(t *testing.T) {
	up := play(t, 500, 200)
	r, _ := handing(t, func(p *policy.Rule) {
		p.Breaker.ConsecutiveFailures, p.Breaker.OpenBase, p.Breaker.OpenJitter = new(uint32(1)), new(300*time.Millisecond), new(0.0)
		p.Retry.MaxAttempts = new(uint32(1))
	})
	if resp, err := r.calls.Call(within(t), get(up.URL+"/trips")); err != nil || resp.GetResponse().GetStatus() != 500 {
		t.Fatal(resp, err)
	}
	resp, err := r.calls.Call(within(t), mayGoOn(post(up.URL+"/x", "op"))) // nothing was sent, so that it may be what must not be repeated
	if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_DEFERRED || resp.GetEffect() != pb.Effect_EFFECT_NONE || len(resp.GetAttempts()) != 0 || resp.GetSends() != 0 {
		t.Fatalf("%v, %v", resp, err)
	}
	ended := finished(t, within(t), r, resp.GetDeferredCall())
	if ended.GetState() != pb.DeferredState_DEFERRED_STATE_COMPLETED || len(ended.GetAttempts()) != 1 || ended.GetPossibleDuplicate() {
		t.Errorf("%v", ended)
	}
}

// None of these goes on: the caller gets what it would have got without.
func TestWhatDoesNotGoOn(t *testing.T) {
	full := errors.New("disk full")
	var taken error = deferred.ErrConflict
	for _, tt := range []struct {
		name    string
		policy  func(*policy.Rule)
		request func(*pb.CallRequest)
		fail    *error
		outcome pb.Outcome
		next    pb.NextStep
		doubt   bool
	}{
		{"not allowed by the caller", nil, func(r *pb.CallRequest) { r.AllowDeferral = false }, nil, pb.Outcome_OUTCOME_DEADLINE_EXCEEDED, pb.NextStep_NEXT_STEP_RETRY, false},
		{"not by the policy", func(p *policy.Rule) { p.HandOver.OnDeadline = new(false) }, nil, nil, pb.Outcome_OUTCOME_DEADLINE_EXCEEDED, pb.NextStep_NEXT_STEP_RETRY, false},
		{"an unknown effect of what must not be repeated", nil, func(r *pb.CallRequest) { r.Request.Method = "POST" }, nil, pb.Outcome_OUTCOME_UNKNOWN, pb.NextStep_NEXT_STEP_RECONCILE, false},
		{"no attempt is left of the caller's", nil, func(r *pb.CallRequest) { r.MaxAttempts = 1 }, nil, pb.Outcome_OUTCOME_DEADLINE_EXCEEDED, pb.NextStep_NEXT_STEP_RETRY, false},
		{"given up before the next attempt", func(p *policy.Rule) {
			p.Retry.Backoff = policy.BackoffRule{Base: new(2 * time.Hour), Cap: new(2 * time.Hour), Jitter: new(backoff.JitterNone)}
		}, nil, nil, pb.Outcome_OUTCOME_DEADLINE_EXCEEDED, pb.NextStep_NEXT_STEP_RETRY, false},
		{"no time for the write", func(p *policy.Rule) {
			p.Deadline.CallerMargin, p.Deadline.MaxTimeout = new(time.Duration(0)), new(200*time.Millisecond)
		}, nil, nil, pb.Outcome_OUTCOME_DEADLINE_EXCEEDED, pb.NextStep_NEXT_STEP_RETRY, false},
		{"somebody has the id", nil, nil, &taken, pb.Outcome_OUTCOME_DEADLINE_EXCEEDED, pb.NextStep_NEXT_STEP_RETRY, false},
		{"the store fails", nil, nil, &full, pb.Outcome_OUTCOME_DEADLINE_EXCEEDED, pb.NextStep_NEXT_STEP_RETRY_SAME_ID, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up, open := silent(t)
			r, f := handing(t, tt.policy)
			f.fail.Store(tt.fail)
			req := mayGoOn(put(up.URL+"/x", "op"))
			if tt.request != nil {
				tt.request(req)
			}
			resp, err := r.calls.Call(short(t), req)
			if err != nil || resp.GetOutcome() != tt.outcome || resp.GetEffect() != pb.Effect_EFFECT_UNKNOWN || resp.GetNext() != tt.next || resp.GetDeferredCall() != "" ||
				len(resp.GetAttempts()) != 1 || strings.Contains(resp.GetDetail(), "not known, ask again") != tt.doubt {
				t.Errorf("%v, %v", resp, err)
			}
			list, err := r.deferred.ListDeferredCalls(within(t), &pb.ListDeferredCallsRequest{})
			if err != nil || len(list.GetDeferredCalls()) != 0 {
				t.Errorf("kept: %v, %v", list, err)
			}
			if tt.outcome == pb.Outcome_OUTCOME_UNKNOWN || tt.policy != nil {
				return
			}
			open() // the id is free, and asking again sends
			if again, err := r.calls.Call(within(t), req); err != nil || again.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || again.GetReplayed() {
				t.Errorf("again: %v, %v", again, err)
			}
		})
	}
}

// One who joined the call is told the same.
func TestJoinerOfACallThatGoesOn(t *testing.T) {
	up, open := silent(t)
	r, _ := handing(t, nil)
	req := mayGoOn(put(up.URL+"/x", "op"))
	replies := make(chan *pb.CallResponse, 2) // receives two values, is never closed
	ctx, longer := short(t), within(t)
	go func() {
		resp, _ := r.calls.Call(ctx, req)
		replies <- resp
	}()
	for {
		if _, err := r.calls.GetOperation(longer, &pb.GetOperationRequest{OperationId: "op"}); err == nil {
			break
		}
	}
	go func() {
		resp, _ := r.calls.Call(longer, req)
		replies <- resp
	}()
	a, b := <-replies, <-replies
	open()
	if a.GetOutcome() != pb.Outcome_OUTCOME_DEFERRED || b.GetOutcome() != pb.Outcome_OUTCOME_DEFERRED || a.GetDeferredCall() == "" || a.GetDeferredCall() != b.GetDeferredCall() ||
		a.GetReplayed() == b.GetReplayed() || len(a.GetAttempts()) != len(b.GetAttempts()) {
		t.Errorf("%v\n%v", a, b)
	}
	finished(t, longer, r, a.GetDeferredCall())
}
