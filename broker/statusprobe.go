package broker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
)

// probeOf is the status probe of a call; nil when its policy has none, or none that can be asked.
func (s *CallService) probeOf(c *call.Call, p *policy.Effective) *operation.Probe {
	if !p.StatusProbe.Enabled {
		return nil
	}
	url, err := operation.Fill(p.StatusProbe.URLTemplate, c.OperationID, c.Body)
	if err != nil {
		return nil // told by ReconcileOperation
	}
	probe, _ := s.probe(c, p, url)
	return probe
}

// What keeps a probe from being asked.
var (
	errNoProbe    = errors.New("no policy has a status_probe for this operation")
	errUnfilled   = errors.New("the url_template of the status_probe could not be filled in from the request")
	errElsewhere  = errors.New("the url_template of the status_probe leads to another origin")
	errInvalidNow = errors.New("the request is not valid under the policies of today, so that its status_probe cannot be found")
	errNoURL      = errors.New("the url_template of the status_probe gives no valid URL for this operation")
)

// probe asks that URL, which is a path or absolute and on the origin of the call.
func (s *CallService) probe(c *call.Call, p *policy.Effective, url string) (*operation.Probe, error) {
	if strings.HasPrefix(url, "/") {
		url = c.Target.Scheme + "://" + c.Target.Authority + url
	}
	target, err := call.ParseTarget(url)
	switch {
	case err != nil:
		return nil, errNoURL
	case target.Origin != c.Target.Origin:
		return nil, errElsewhere
	case target.Ambiguous() && p.PathScoped(target.Host): // as of a call: an id must not lead out of what its policy covers
		return nil, errNoURL
	}
	rule := &p.StatusProbe
	get := &call.Call{
		Method: "GET", Target: target, Caller: c.Caller, Criticality: c.Criticality, MaxAttempts: 1,
	}
	return &operation.Probe{
		URL:     url,
		Applied: rule.AppliedStatuses.Has, NotApplied: rule.NotAppliedStatuses.Has, InProgress: rule.InProgressStatuses.Has,
		Pointer: rule.JSONPointer, AppliedValues: rule.AppliedValues, NotAppliedValues: rule.NotAppliedValues,
		Authoritative: rule.Authoritative, Settle: rule.Settle,
		// A call like any other for the origin: guard, breaker, budget and concurrency hold for it, and it has a span.
		Ask: func(ctx context.Context, until time.Time) *call.Response {
			one := *get
			one.Arrived, one.Deadline = time.Now(), until
			f := s.cfg.Engine.Do(ctx, &one, p)
			return f.Response
		},
	}, nil
}

// probeFor finds the probe of an operation by the policy that rules its call now.
func (s *CallService) probeFor(caller string) func(*operation.Record) (*operation.Probe, error) {
	return func(r *operation.Record) (*operation.Probe, error) {
		request, err := operation.RequestOf(r)
		if err != nil {
			return nil, err
		}
		target, err := call.ParseTarget(request.URL)
		if err != nil {
			return nil, errNoURL
		}
		c := &call.Call{Method: request.Method, Target: target, Caller: caller, OperationID: r.ID}
		p := s.table.Load().Match(c)
		if !p.StatusProbe.Enabled {
			return nil, errNoProbe
		}
		url := request.Probe
		if url == "" { // the policy had no probe then; the body is not kept, the id is
			if url, err = operation.Fill(p.StatusProbe.URLTemplate, r.ID, nil); err != nil {
				return nil, errUnfilled
			}
		}
		return s.probe(c, p, url)
	}
}
