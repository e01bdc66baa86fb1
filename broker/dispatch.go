package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/egress"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
)

// Dispatcher makes attempts of deferred calls with the engine, the policies and the limits of direct ones.
type Dispatcher struct {
	calls *CallService
}

// NewDispatcher makes it.
func NewDispatcher(calls *CallService) *Dispatcher { return &Dispatcher{calls} }

// judged is a deferred call under the policy of now.
type judged struct {
	call   *call.Call
	policy *policy.Effective
}

// Judge reads the request again and finds what rules it now.
func (d *Dispatcher) Judge(r *deferred.Record) (deferred.Terms, error) {
	asked := &pb.CallRequest{}
	if err := proto.Unmarshal(r.Request, asked); err != nil {
		return deferred.Terms{}, errors.New("what is kept of the request cannot be read")
	}
	c, violations := decode(context.Background(), asked, r.Caller, time.Now())
	if len(violations) > 0 {
		return deferred.Terms{}, violations[0]
	}
	c.OperationID, c.Reserve = r.OperationID, 0 // no caller waits
	table := d.calls.table.Load()
	p := table.Match(c)
	_, violations = fit(c, asked.GetRequest().GetHeaders(), p, table)
	if len(violations) > 0 {
		return deferred.Terms{}, violations[0]
	}
	switch {
	case r.Delivery == deferred.DeliveryAtMostOnce:
		c.RepeatSafety = call.RepeatSafetyNever
	case r.Delivery == deferred.DeliveryAtLeastOnce && p.Deferred.AtLeastOnce:
		c.DuplicatesAccepted = true
	}
	return terms(c, p), nil
}

// terms are what the policy says of the deferred call.
func terms(c *call.Call, p *policy.Effective) deferred.Terms {
	repeatability := p.Repeatability(c)
	t := deferred.Terms{
		Repeatable:  repeatability != policy.RepeatNever,
		MaxAttempts: p.Deferred.MaxAttempts,
		Wait: func(k uint32, throttled bool, random float64) time.Duration {
			return p.Deferred.Backoff.Wait(int(k), throttled, random)
		},
		CompletedRetention: p.Deferred.CompletedRetention, CancelledRetention: p.Deferred.CancelledRetention,
		Of: &judged{c, p},
	}
	if c.MaxAttempts != 0 {
		t.MaxAttempts = min(t.MaxAttempts, c.MaxAttempts)
	}
	if repeatability == policy.RepeatByKey {
		ttl := p.Idempotency.KeyTTL
		t.KeyUntil = func(firstSend time.Time) time.Time { return firstSend.Add(ttl) }
	}
	return t
}

const (
	// dispatchSlack is the time that a dispatch has beside its attempt and the wait for a slot.
	dispatchSlack = 500 * time.Millisecond
)

// Dispatch makes one attempt.
func (d *Dispatcher) Dispatch(ctx context.Context, r *deferred.Record, t *deferred.Terms) call.Final {
	of, _ := t.Of.(*judged)
	p, now := of.policy, time.Now()
	c := *of.call
	c.Arrived, c.Deadline = now, now.Add(timeFor(&c, p))
	c.Dispatch = call.DispatchFirst
	if r.Spent > 0 || !r.FirstSend.IsZero() || r.Effect == call.EffectUnknown {
		c.Dispatch = call.DispatchRepeat
	}
	c.Before = call.Before{FirstSend: r.FirstSend, Unknown: r.Effect == call.EffectUnknown}
	c.Headers = withKey(&c, p)
	room, err := d.calls.capacity.take(held(&c, p))
	if err != nil {
		return full(&c)
	}
	defer room.giveBack()
	ctx, span := d.calls.cfg.Observer.BeginDispatch(ctx, deferredPrefix+r.ID)
	taken := true
	defer markPanic(&taken, span)
	final := d.calls.cfg.Engine.Do(ctx, &c, p)
	span.End(&c, &final, p.Policy) //nolint:contextcheck // what it measures is of the span
	d.calls.tell(ctx, &c, &final, p.Policy, span.TraceID())
	return final
}

// Inquire asks the status probe that the policy of today has for the call.
func (d *Dispatcher) Inquire(ctx context.Context, r *deferred.Record, lastByte time.Time) (deferred.Found, error) {
	t, err := d.Judge(r) //nolint:contextcheck // nothing of the submitter's context is kept
	if err != nil {
		return deferred.Found{}, errInvalidNow
	}
	of, _ := t.Of.(*judged)
	if !of.policy.StatusProbe.Enabled || d.calls.cfg.Operations == nil {
		return deferred.Found{}, errNoProbe
	}
	url, err := operation.Fill(of.policy.StatusProbe.URLTemplate, r.OperationID, of.call.Body)
	if err != nil {
		return deferred.Found{}, errUnfilled
	}
	probe, err := d.calls.probe(of.call, of.policy, url)
	if err != nil {
		return deferred.Found{}, err
	}
	return deferred.Found(d.calls.cfg.Operations.Inquire(ctx, probe, lastByte)), nil
}

// timeFor is what one attempt may take with all that comes before it. It is not the time of a caller who waits, so that of the policy's
// deadline block only the longest one holds.
func timeFor(c *call.Call, p *policy.Effective) time.Duration {
	attempt := p.Attempt.Timeout
	if c.AttemptTimeout != 0 {
		attempt = min(attempt, c.AttemptTimeout)
	}
	all := attempt + p.Concurrency.PendingWait + dispatchSlack
	if margin := p.Deadline.CallerMargin; margin != nil {
		return all + *margin
	}
	return all + engine.Margin(time.Hour) // the largest there is
}

// withKey adds the key that comes with duplicates that are accepted, unless a contract adds its own or the submitter has given one.
func withKey(c *call.Call, p *policy.Effective) []call.Header {
	if !c.DuplicatesAccepted || p.Keyed(c) {
		return c.Headers
	}
	name := p.Idempotency.Header
	for i := range c.Headers {
		if call.SameField(c.Headers[i].Name, name) {
			return c.Headers
		}
	}
	return append(slices.Clip(c.Headers), call.Header{Name: name, Value: egress.OperationKey(c, p)})
}

// full is how a dispatch ends for which the broker has no room: direct calls, whose callers wait, come first.
func full(c *call.Call) call.Final {
	effect := call.EffectNone
	if c.Before.Unknown && !call.Safe(c.Method) {
		effect = call.EffectUnknown
	}
	return call.Final{
		Outcome: call.OutcomeOverloaded, Reason: call.ReasonConcurrencyLimit, Effect: effect, Detail: "the broker is full (--max-calls, --max-bytes)",
		RetryAfter: fullRetryDelay, OperationID: c.OperationID, FirstSend: c.Before.FirstSend,
	}
}
