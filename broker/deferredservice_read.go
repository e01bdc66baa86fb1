package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
)

const (
	// defaultRetries and defaultRetryBackoff are those of the simple form, where only the other one is given.
	defaultRetries      = 5
	defaultRetryBackoff = time.Second
	// maxRetries and maxRetryBackoff bound what a submission may ask for.
	maxRetries      = 1000
	maxRetryBackoff = 30 * 24 * time.Hour
	// clockTolerance is how far a not_before_time may be in the past: clocks differ, and a submission that is repeated is no other one.
	clockTolerance = time.Minute
)

// read makes a record of what is submitted, or names every field that cannot be taken.
func (s *DeferredService) read(ctx context.Context, req *pb.SubmitDeferredCallRequest, now time.Time) (*deferred.Record, error) {
	asked, d := req.GetCall(), decoder{}
	if asked == nil {
		d.add("call", "no call; give one with a request")
		return nil, invalid(d.violations)
	}
	asked = d.deferredCall(asked)
	c, violations := decode(ctx, asked, callerOf(ctx), now)
	d.violations = append(d.violations, prefixed("call", violations)...)
	r := &deferred.Record{Caller: c.Caller, Origin: c.Target.Origin, Criticality: c.Criticality, Labels: c.Labels}
	r.Delivery = deferred.Delivery(d.enum("delivery", req.GetDelivery(), pb.DeliveryMode_name))
	if r.Delivery == deferred.DeliveryAtLeastOnce && c.RepeatSafety == call.RepeatSafetyNever {
		d.add("delivery", "at least once, and call.repeat_safety says never to repeat it; give one of them")
	}
	d.retries(r, req)
	d.times(r, req, now)
	if err := invalid(d.violations); err != nil {
		return nil, err
	}
	table := s.calls.table.Load()
	p := table.Match(c)
	_, violations = fit(c, asked.GetRequest().GetHeaders(), p, table)
	if err := invalid(prefixed("call", violations)); err != nil {
		return nil, err
	}
	if r.Delivery == deferred.DeliveryAtLeastOnce && !p.Deferred.AtLeastOnce {
		return nil, refusal(codes.FailedPrecondition, reasonWrongState,
			"the policy "+p.Policy+" forbids DELIVERY_MODE_AT_LEAST_ONCE (deferred.at_least_once); nothing was kept. Leave delivery out, or give DELIVERY_MODE_AT_MOST_ONCE")
	}
	return s.record(r, c, asked, p, now)
}

// deferredCall refuses what only a direct call can have, and gives the call without it.
func (d *decoder) deferredCall(asked *pb.CallRequest) *pb.CallRequest {
	if asked.GetSingleUseBody() && len(asked.GetRequest().GetBody()) > 0 {
		d.add("call.single_use_body", "a deferred call keeps its body and may send it again; leave it out, or give a max_retries of 0")
	}
	if !asked.GetAllowDeferral() && asked.GetExpireTime() == nil {
		return asked
	}
	if asked.GetAllowDeferral() {
		d.add("call.allow_deferral", "the call is a deferred one from the start; leave it out")
	}
	if asked.GetExpireTime() != nil {
		d.add("call.expire_time", "the end of a deferred call is the expire_time beside the call; give it there")
	}
	asked = proto.CloneOf(asked)
	asked.AllowDeferral, asked.ExpireTime = false, nil
	return asked
}

// retries reads the simple form: of the two fields one alone has the other at its default.
func (d *decoder) retries(r *deferred.Record, req *pb.SubmitDeferredCallRequest) {
	if req.MaxRetries == nil && req.GetBackoff() == nil {
		return
	}
	r.MaxRetries, r.Backoff = defaultRetries, defaultRetryBackoff
	if req.MaxRetries != nil {
		if r.MaxRetries = req.GetMaxRetries(); r.MaxRetries > maxRetries {
			d.add("max_retries", fmt.Sprintf("%d repeats; give at most %d", r.MaxRetries, maxRetries))
		}
	}
	if req.GetBackoff() == nil {
		return
	}
	before := len(d.violations)
	r.Backoff = d.duration("backoff", req.GetBackoff())
	switch {
	case len(d.violations) > before:
	case r.Backoff == 0:
		d.add("backoff", "is 0; give a duration like 1s, or leave it out")
	case r.Backoff > maxRetryBackoff:
		d.add("backoff", fmt.Sprintf("longer than %v; give less", maxRetryBackoff))
	}
}

// times reads when it begins and when it ends, on the wall clock.
func (d *decoder) times(r *deferred.Record, req *pb.SubmitDeferredCallRequest, now time.Time) {
	r.NotBefore = d.time("not_before_time", req.GetNotBeforeTime())
	r.Expire = d.time("expire_time", req.GetExpireTime())
	switch {
	case !r.NotBefore.IsZero() && r.NotBefore.Before(now.Add(-clockTolerance)):
		d.add("not_before_time", "is in the past; leave it out for at once")
	case r.Expire.IsZero():
	case !r.Expire.After(now):
		d.add("expire_time", "is in the past; give a later one, or leave it out")
	case !r.Expire.After(r.NotBefore):
		d.add("expire_time", "is not after not_before_time; give a later one")
	}
}

func (d *decoder) time(field string, t *timestamppb.Timestamp) time.Time {
	switch {
	case t == nil:
		return time.Time{}
	case t.CheckValid() != nil:
		d.add(field, "not a valid time; give one in RFC 3339 form")
		return time.Time{}
	}
	return t.AsTime()
}

// record fills in what the policy says.
func (s *DeferredService) record(r *deferred.Record, c *call.Call, asked *pb.CallRequest, p *policy.Effective, now time.Time) (*deferred.Record, error) {
	id, err := uuid.NewV7() // its later half is random: nobody guesses another's
	if err != nil {
		return nil, refusal(codes.Internal, reasonInternal, "no random id could be made; nothing was kept")
	}
	r.ID = id.String()
	if r.OperationID = c.OperationID; r.OperationID == "" { // every one has a key, should a policy ask for one later
		r.OperationID = uuid.NewString()
	}
	keyField := ""
	if p.Keyed(c) {
		keyField = p.Idempotency.Header
	}
	r.Fingerprint = operation.FingerprintOf(c, keyField)
	if r.Backoff == 0 {
		r.MaxRetries = p.Deferred.MaxAttempts - 1
	}
	if c.MaxAttempts != 0 {
		r.MaxRetries = min(r.MaxRetries, c.MaxAttempts-1)
	}
	if r.Expire.IsZero() {
		from := now
		if r.NotBefore.After(from) {
			from = r.NotBefore
		}
		r.Expire = from.Add(p.Deferred.MaxAge)
	}
	r.NotBefore, r.Expire = s.queue.At(r.NotBefore), s.queue.At(r.Expire)
	if r.Request, err = (proto.MarshalOptions{Deterministic: true}).Marshal(asked); err != nil {
		return nil, refusal(codes.Internal, reasonInternal, "the call could not be encoded; nothing was kept")
	}
	return r, nil
}
