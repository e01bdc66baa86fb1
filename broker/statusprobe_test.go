package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

const notFound = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

// probing is a policy whose status probe is at that URL.
func probing(template string) policy.Rule {
	r := policy.Rule{Name: "policies/probing", Revision: 2, File: true}
	p := &r.StatusProbe
	p.Enabled, p.URLTemplate, p.Authoritative, p.Settle = new(true), new(template), new(true), new(10*time.Millisecond)
	p.AppliedStatuses, p.NotAppliedStatuses, p.InProgressStatuses = []uint32{200}, []uint32{404}, []uint32{202}
	return r
}

// lines are the requests that an upstream saw.
func (u *upstream) lines() string {
	all := []string{}
	for _, r := range u.requests() {
		all = append(all, r.Method+" "+r.RequestURI)
	}
	return strings.Join(all, ", ")
}

func TestStatusProbeFindsTheLostAnswer(t *testing.T) {
	up := scripted(t, lose, say(okAnswer))
	r := start(t, setup{rules: []policy.Rule{probing("/charges/{operation_id}?ref={body:/ref}")}})
	req := post(up.url("/charges"), "op/1")
	req.Request.Body = []byte(`{"ref":"r 7"}`)
	resp, err := r.calls.Call(within(t), req)
	if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || resp.GetEffect() != pb.Effect_EFFECT_ANSWERED || resp.GetSends() != 1 ||
		len(resp.GetAttempts()) != 1 || string(resp.GetResponse().GetBody()) != "ok" || resp.GetNext() != pb.NextStep_NEXT_STEP_DONE {
		t.Errorf("%v, %v", resp, err)
	}
	if got := up.lines(); got != "POST /charges, GET /charges/op%2F1?ref=r%207" {
		t.Errorf("the upstream saw %s", got)
	}
	got, err := r.calls.GetOperation(within(t), &pb.GetOperationRequest{OperationId: "op/1"})
	if err != nil || got.GetState() != pb.OperationState_OPERATION_STATE_FINISHED || len(got.GetProbes()) != 1 ||
		got.GetProbes()[0].GetVerdict() != pb.ProbeVerdict_PROBE_VERDICT_APPLIED || got.GetProbes()[0].GetStatus() != 200 || len(got.GetAttempts()) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if again, err := r.calls.Call(within(t), req); err != nil || !again.GetReplayed() || string(again.GetResponse().GetBody()) != "ok" || len(up.requests()) != 2 {
		t.Errorf("again: %v, %v", again, err)
	}
	if load := r.server.Load(); load.Calls != 0 || load.Bytes != 0 {
		t.Errorf("still taken: %+v", load)
	}
}

func TestStatusProbeAllowsOneFreshSend(t *testing.T) {
	no := say(notFound)
	up := scripted(t, lose, no, no, no, say(okAnswer)) //nolint:gocritic // dupOption: a script, not options
	r := start(t, setup{rules: []policy.Rule{probing("/charges/{operation_id}")}})
	resp, err := r.calls.Call(within(t), post(up.url("/charges"), "op"))
	if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || resp.GetSends() != 2 || len(resp.GetAttempts()) != 2 || resp.GetAttempts()[1].GetNumber() != 2 {
		t.Errorf("%v, %v", resp, err)
	}
	// The first one came before anything had settled.
	if got := up.lines(); got != "POST /charges, GET /charges/op, GET /charges/op, GET /charges/op, POST /charges" {
		t.Errorf("the upstream saw %s", got)
	}
}

func TestReconcileOperationAsksNow(t *testing.T) {
	const busy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
	up := scripted(t, lose, say(busy))
	r := start(t, setup{rules: []policy.Rule{probing("/charges/{operation_id}")}})
	ctx, cancel := context.WithTimeout(within(t), 300*time.Millisecond)
	defer cancel()
	if resp, err := r.calls.Call(ctx, post(up.url("/charges"), "op")); err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_UNKNOWN || resp.GetNext() != pb.NextStep_NEXT_STEP_RECONCILE {
		t.Fatalf("%v, %v", resp, err)
	}
	up.mu.Lock()
	up.script = []step{say(okAnswer)}
	up.mu.Unlock()
	resp, err := r.calls.ReconcileOperation(within(t), &pb.ReconcileOperationRequest{OperationId: "op"})
	o := resp.GetOperation()
	if err != nil || o.GetState() != pb.OperationState_OPERATION_STATE_FINISHED || o.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || o.GetEffect() != pb.Effect_EFFECT_ANSWERED ||
		string(o.GetResponse().GetBody()) != "ok" || len(o.GetProbes()) < 2 || len(o.GetAttempts()) != 1 || o.GetNext() != pb.NextStep_NEXT_STEP_DONE {
		t.Errorf("%v, %v", o, err)
	}
	if again, err := r.calls.Call(within(t), post(up.url("/charges"), "op")); err != nil || again.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || !again.GetReplayed() || again.GetSends() != 0 {
		t.Errorf("again: %v, %v", again, err)
	}
}

func TestProbeThatCannotBeAsked(t *testing.T) {
	for _, tt := range []struct {
		name, id string
		rules    func(u *upstream) []policy.Rule
		problem  string
	}{
		{"none", "op", func(*upstream) []policy.Rule { return nil }, "no policy has a status_probe"},
		{"switched off", "op", func(*upstream) []policy.Rule {
			p := probing("/charges/{operation_id}")
			p.StatusProbe.Enabled = new(false)
			return []policy.Rule{p}
		}, "no policy has a status_probe"},
		{"another origin", "op", func(*upstream) []policy.Rule { return []policy.Rule{probing("http://127.0.0.2:1/{operation_id}")} }, "another origin"},
		{"another scheme", "op", func(u *upstream) []policy.Rule {
			return []policy.Rule{probing("https://" + u.listener.Addr().String() + "/{operation_id}")}
		}, "another origin"},
		{"no URL", "op", func(*upstream) []policy.Rule { return []policy.Rule{probing("charges/{operation_id}")} }, "no valid URL"},
		{"an id that is a dot segment", "..", func(*upstream) []policy.Rule { return []policy.Rule{probing("/charges/{operation_id}")} }, "no valid URL"},
		{"an id with a / where a policy has a path", "x/admin", func(*upstream) []policy.Rule {
			p := probing("/charges/{operation_id}")
			p.Match.PathPrefix = "/charges"
			return []policy.Rule{p}
		}, "no valid URL"},
		{"nothing to fill it in with", "op", func(*upstream) []policy.Rule { return []policy.Rule{probing("/charges/{body:/ref}")} }, "could not be filled in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := scripted(t, lose, say(okAnswer))
			r := start(t, setup{rules: tt.rules(up)})
			if resp, err := r.calls.Call(within(t), post(up.url("/charges"), tt.id)); err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_UNKNOWN {
				t.Errorf("%v, %v", resp, err)
			}
			_, err := r.calls.ReconcileOperation(within(t), &pb.ReconcileOperationRequest{OperationId: tt.id})
			if status.Code(err) != codes.FailedPrecondition || unsent(err) != "WRONG_STATE" || !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("%v", err)
			}
			if got := up.lines(); got != "POST /charges" {
				t.Errorf("the upstream saw %s", got)
			}
		})
	}
}

// A probe is a call like any other for its origin, and none of the operation's.
func TestStatusProbeCarriesNothingOfTheCall(t *testing.T) {
	up := scripted(t, lose, say(okAnswer))
	r := start(t, setup{rules: []policy.Rule{probing("/charges/{operation_id}")}})
	req := post(up.url("/charges"), "op")
	req.Request.Headers = []*pb.HttpHeader{{Name: "Authorization", Value: "Bearer secret"}, {Name: "Idempotency-Key", Value: "k"}}
	if resp, err := r.calls.Call(within(t), req); err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Errorf("%v, %v", resp, err)
	}
	get := up.requests()[1]
	if get.Header.Get("Authorization") != "" || get.Header.Get("Idempotency-Key") != "" || get.body != "" || get.ContentLength > 0 {
		t.Errorf("%s", fmt.Sprint(get.Header, get.body))
	}
}
