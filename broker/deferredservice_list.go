package broker

import (
	"context"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/deferred"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// ListDeferredCalls lists those of the caller, the newest first, and counts all of his.
func (s *DeferredService) ListDeferredCalls(ctx context.Context, req *pb.ListDeferredCallsRequest) (*pb.ListDeferredCallsResponse, error) {
	if s.queue == nil {
		return nil, deferredNotShared()
	}
	f, err := deferredFilter(ctx, "", req)
	if err != nil {
		return nil, err
	}
	p, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	counts, err := s.queue.Counts(ctx, f.Caller)
	if err != nil {
		return nil, deferredError(err)
	}
	resp := &pb.ListDeferredCallsResponse{Counts: map[string]uint64{}}
	for state, n := range counts {
		if n > 0 {
			resp.Counts[pb.DeferredState(state).String()] = n
		}
	}
	var unreadable error
	resp.NextPageToken, err = fillPage(&p,
		func(before uint64, n int) ([]deferred.Record, error) {
			some, err := s.queue.List(ctx, f, before, n)
			if err != nil {
				return nil, deferredError(err)
			}
			return some, nil
		},
		func(r *deferred.Record) uint64 { return r.Seq },
		func(r *deferred.Record) bool {
			d, err := s.listed(ctx, r)
			switch {
			case errors.Is(err, deferred.ErrNotFound): // purged since
				return true
			case err != nil:
				unreadable = err
				return false
			case !p.takes(d):
				return false
			}
			resp.DeferredCalls = append(resp.DeferredCalls, d)
			return true
		})
	switch {
	case err != nil:
		return nil, err
	case unreadable != nil:
		return nil, unreadable
	}
	return resp, nil
}

// listed is a record as lists and watches tell of it. Where the store keeps what was asked apart, it is read for it.
func (s *DeferredService) listed(ctx context.Context, r *deferred.Record) (*pb.DeferredCall, error) {
	if len(r.Request) == 0 {
		whole, err := s.queue.Find(ctx, r.Caller, r.ID)
		if errors.Is(err, deferred.ErrNotFound) {
			return nil, err
		}
		if err != nil {
			return nil, deferredError(err)
		}
		r = &whole
	}
	return encodeDeferred(r, withoutBody)
}

// filtering is a message that picks deferred calls.
type filtering interface {
	GetState() pb.DeferredState
	GetOrigin() string
	GetLabels() map[string]string
	GetCreatedAfter() *timestamppb.Timestamp
	GetCreatedBefore() *timestamppb.Timestamp
}

// deferredFilter reads it; its fields are named behind prefix.
func deferredFilter(ctx context.Context, prefix string, m filtering) (*deferred.Filter, error) {
	d := decoder{}
	f := &deferred.Filter{
		Caller: callerOf(ctx),
		State:  deferred.State(d.enum(prefix+"state", m.GetState(), pb.DeferredState_name)),
		Origin: m.GetOrigin(), Labels: m.GetLabels(),
		CreatedAfter:  d.time(prefix+"created_after", m.GetCreatedAfter()),
		CreatedBefore: d.time(prefix+"created_before", m.GetCreatedBefore()),
	}
	if f.Origin != "" {
		if name, problem := originName(f.Origin); problem != nil {
			d.add(prefix+"origin", problem.Problem)
		} else {
			f.Origin = name
		}
	}
	if len(f.Labels) > maxLabels {
		d.add(prefix+"labels", fmt.Sprintf("%d labels; a call has at most %d", len(f.Labels), maxLabels))
	}
	if !f.CreatedBefore.IsZero() && !f.CreatedBefore.After(f.CreatedAfter) {
		d.add(prefix+"created_before", "is not after created_after; nothing was created in between")
	}
	return f, invalid(d.violations)
}

// RedriveDeferredCalls sends dead letters again.
func (s *DeferredService) RedriveDeferredCalls(ctx context.Context, req *pb.RedriveDeferredCallsRequest) (*pb.RedriveDeferredCallsResponse, error) {
	d := decoder{}
	rate := req.GetMaxPerSecond()
	switch {
	case rate == 0:
		rate = defaultRedriveRate
	case math.IsNaN(rate) || rate < minRedriveRate || rate > maxRedriveRate:
		d.add("max_per_second", fmt.Sprintf("give a number from %v to %v, or leave it out for %v", minRedriveRate, maxRedriveRate, defaultRedriveRate))
	}
	which, err := s.which(ctx, req, &d)
	if err != nil {
		return nil, err
	}
	n, err := s.queue.Redrive(ctx, which, rate)
	if err != nil {
		return nil, deferredError(err)
	}
	return &pb.RedriveDeferredCallsResponse{Count: n}, nil
}

// The rates of redriving, in calls per second.
const (
	defaultRedriveRate = 10.0
	minRedriveRate     = 0.001
	maxRedriveRate     = 1e6
)

// PurgeDeferredCalls deletes finished ones.
func (s *DeferredService) PurgeDeferredCalls(ctx context.Context, req *pb.PurgeDeferredCallsRequest) (*pb.PurgeDeferredCallsResponse, error) {
	which, err := s.which(ctx, req, &decoder{})
	if err != nil {
		return nil, err
	}
	n, err := s.queue.Purge(ctx, which)
	if err != nil {
		return nil, deferredError(err)
	}
	return &pb.PurgeDeferredCallsResponse{Count: n}, nil
}

// picking is a request that names deferred calls or picks them.
type picking interface {
	GetNames() []string
	GetFilter() *pb.DeferredCallFilter
}

// which reads it. An empty filter picks nothing: who means all of them says a state, or a time.
func (s *DeferredService) which(ctx context.Context, req picking, d *decoder) (*deferred.Which, error) {
	if s.queue == nil {
		return nil, deferredNotShared()
	}
	w := &deferred.Which{}
	names, filter := req.GetNames(), req.GetFilter()
	switch {
	case len(names) == 0 && emptyFilter(filter):
		d.add("names", "neither names nor a filter that says something; give one of them")
	case len(names) > 0 && !emptyFilter(filter):
		d.add("filter", "names and a filter; give one of them")
	case len(names) > maxNames:
		d.add("names", fmt.Sprintf("%d names; give at most %d", len(names), maxNames))
	}
	for i, name := range names {
		id, problem := deferredID(name)
		if problem != "" {
			d.add(fmt.Sprintf("names[%d]", i), problem)
		}
		w.IDs = append(w.IDs, id)
	}
	if err := invalid(d.violations); err != nil {
		return nil, err
	}
	f, err := deferredFilter(ctx, "filter.", filter)
	if err != nil {
		return nil, err
	}
	w.Filter = *f
	return w, nil
}

// maxNames is how many may be named at once.
const maxNames = 1000

func emptyFilter(f *pb.DeferredCallFilter) bool {
	return f.GetState() == 0 && f.GetOrigin() == "" && len(f.GetLabels()) == 0 && f.GetCreatedAfter() == nil && f.GetCreatedBefore() == nil
}
