package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
)

const (
	// handOverShare is the part of what is left of the caller's time that the write may take; the rest is for the way back.
	handOverShare = 2
	// handOverWithin bounds the write where much time is left.
	handOverWithin = time.Second
)

// HandOverTo is where direct calls go on that may; without it none does. It is said before the service serves.
func (s *CallService) HandOverTo(q *deferred.Queue) { s.queue = q }

// handOver is what has a call go on as a deferred one; nil where that can never be.
func (s *CallService) handOver(c *call.Call, p *policy.Effective) func(context.Context, uint64, *call.Final) (call.Final, string) {
	if s.queue == nil || c.Deferral == nil || !p.HandOver.OnDeadline && !p.HandOver.OnBreakerOpen {
		return nil
	}
	return func(ctx context.Context, lead uint64, f *call.Final) (call.Final, string) {
		now := time.Now()
		g := continuation{call: c, policy: p, ended: f, wait: untilNext(f, p, rand.Float64())}
		if !g.allowed(now) {
			return *f, ""
		}
		r, err := g.record(s.queue, lead, now)
		if err != nil {
			return *f, ""
		}
		return g.submit(ctx, s.queue, r, now)
	}
}

// continuation is a call that has ended and goes on as a deferred one.
type continuation struct {
	call   *call.Call
	policy *policy.Effective
	ended  *call.Final
	wait   time.Duration // until the next attempt
}

// untilNext is the wait that the call itself would have had.
func untilNext(f *call.Final, p *policy.Effective, random float64) time.Duration {
	n := attemptsSpent(f.Attempts)
	if n == 0 {
		return f.RetryAfter
	}
	throttled := f.Response != nil && f.Response.Status == 429
	return max(f.RetryAfter, p.Retry.Backoff.Wait(int(n), throttled, random))
}

// attemptsSpent are the attempts that count against a number of attempts.
func attemptsSpent(attempts []call.Attempt) (n uint32) {
	for i := range attempts {
		if attempts[i].Kind != call.KindRedirect {
			n++
		}
	}
	return n
}

// allowed: the policy hands such an end over, the operation may be sent again, and that can be done before it is given up.
func (g *continuation) allowed(now time.Time) bool {
	c, f := g.call, g.ended
	switch f.Outcome {
	case call.OutcomeDeadlineExceeded:
		if !g.policy.HandOver.OnDeadline {
			return false
		}
	case call.OutcomeBreakerOpen:
		if !g.policy.HandOver.OnBreakerOpen {
			return false
		}
	default:
		return false
	}
	switch {
	case !f.RetrySafe, c.SingleUseBody && len(c.Body) > 0:
		return false
	case c.MaxAttempts != 0 && attemptsSpent(f.Attempts) >= c.MaxAttempts: // the caller's number is of the operation
		return false
	}
	return c.Deferral.Expire.After(now.Add(g.wait))
}

// record is the deferred call, with what the direct one leaves to it. Its attempts count against the caller's number, not against the policy's,
// which is of the repeats in the background.
func (g *continuation) record(q *deferred.Queue, lead uint64, now time.Time) (*deferred.Record, error) {
	c, p, f := g.call, g.policy, g.ended
	id, err := uuid.NewV7() // as in a submission
	if err != nil {
		return nil, fmt.Errorf("an id: %w", err)
	}
	r := &deferred.Record{
		ID: id.String(), Lead: lead, Caller: c.Caller, OperationID: c.OperationID, Origin: c.Target.Origin, Criticality: c.Criticality, Labels: c.Labels,
		MaxRetries: p.Deferred.MaxAttempts - 1, Repeatable: p.Repeatability(c) != policy.RepeatNever,
		Created: q.At(c.Arrived), NotBefore: q.At(now.Add(g.wait)), Expire: q.At(c.Deferral.Expire),
		FirstSend: f.FirstSend, Outcome: f.Outcome, Effect: f.Effect, Reason: f.Reason, Detail: f.Detail, Attempts: f.Attempts, Response: f.Response,
		PossibleDuplicate: f.Effect == call.EffectUnknown && maybeProcessed(f.Attempts) > 1,
	}
	left := uint32(0)
	if c.MaxAttempts != 0 {
		left = c.MaxAttempts - attemptsSpent(f.Attempts)
		r.MaxRetries = min(r.MaxRetries, left-1)
	}
	keyField := ""
	if p.Keyed(c) {
		keyField = p.Idempotency.Header
	}
	r.Fingerprint = operation.FingerprintOf(c, keyField)
	r.Request, err = c.Deferral.Encode(left)
	return r, err
}

// maybeProcessed counts the attempts that the upstream may have processed.
func maybeProcessed(attempts []call.Attempt) (n int) {
	for i := range attempts {
		switch attempts[i].Result.Evidence {
		case call.EvidenceNotSent, call.EvidenceRefused:
		default:
			n++
		}
	}
	return n
}

// submit keeps the deferred call if that fits, and gives what the caller is told and the id; without one it is how the call ended.
func (g *continuation) submit(ctx context.Context, q *deferred.Queue, r *deferred.Record, now time.Time) (call.Final, string) {
	f := *g.ended
	within := min(engine.Deadline(g.call, &g.policy.Deadline).Sub(now)/handOverShare, handOverWithin)
	if within <= 0 {
		return f, ""
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, stored, err := q.Submit(ctx, r)
	f.Elapsed = time.Since(g.call.Arrived)
	switch {
	case stored:
		f.Outcome, f.Reason, f.Next, f.RetryAfter = call.OutcomeDeferred, call.ReasonDeferred, call.NextStepWait, g.wait
		f.Detail = "the time was up; the call goes on as a deferred one under its operation id"
		if g.ended.Outcome == call.OutcomeBreakerOpen {
			f.Detail = "the breaker of the origin is open; the call goes on as a deferred one under its operation id"
		}
		return f, r.ID
	case err != nil && !errors.Is(err, deferred.ErrConflict):
		// Nobody knows whether it was written. Under its id it can be asked about and not doubled, under another one it could.
		f.Next = call.NextStepRetrySameID
		f.Detail += "; whether it goes on as a deferred one is not known, ask again under its operation id"
	}
	return f, ""
}

// encodeKept writes a call as a deferred one is kept: with what only a direct call has left out.
func encodeKept(req *pb.CallRequest, maxAttempts uint32) ([]byte, error) {
	kept := proto.CloneOf(req)
	kept.AllowDeferral, kept.ExpireTime, kept.MaxAttempts = false, nil, maxAttempts
	raw, err := (proto.MarshalOptions{Deterministic: true}).Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("a call that goes on: %w", err)
	}
	return raw, nil
}
