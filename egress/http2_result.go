package egress

import (
	"context"
	"errors"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/h2"
	"github.com/sallyport/sallyport/policy"
)

// responseHTTP2 is what the caller sees. Fields that speak of the connection have no place in HTTP/2 (RFC 9113 §8.2.2); servers send
// them all the same, and they are dropped as those of HTTP/1.1 are.
func responseHTTP2(answer *h2.Response) *call.Response {
	var hop call.HopByHop
	for i := range answer.Fields {
		if f := &answer.Fields[i]; call.SameField(f.Name, "Connection") {
			hop.Nominate(f.Value)
		}
	}
	kept := func(fields []call.Header) []call.Header {
		out := fields[:0]
		for _, f := range fields {
			if !hop.Drops(f.Name) {
				out = append(out, f)
			}
		}
		return out
	}
	return &call.Response{
		Status: answer.Status, Body: answer.Body, Protocol: protocolHTTP2,
		Headers: kept(answer.Fields), Trailers: kept(answer.Trailers),
	}
}

// failedHTTP2 is the result of an attempt that had a place on a trunk. What is proved comes from the stream (semantics.md §2): a
// GOAWAY that leaves it out counts as proof only where the policy trusts it, since peers have been seen to process more than they said.
func (t *Transport) failedHTTP2(ctx context.Context, at place, p *policy.Effective, a *call.Attempt, answer *h2.Response, err error) call.Result {
	r := call.Result{
		Evidence:      call.EvidenceSentNoResponse,
		Failure:       call.FailureConnectionLost,
		Status:        answer.Status,
		RemoteAddress: at.trunk.raw.remote,
		Protocol:      protocolHTTP2,
		Reused:        at.reused,
	}
	e, ok := errors.AsType[*h2.Error](err)
	if !ok {
		panic(err) // no other error leaves the package
	}
	r.Detail = e.Text
	switch {
	case !answer.Sent:
		r.Evidence = call.EvidenceNotSent
	case answer.Begun:
		r.Evidence = call.EvidencePartialResponse
	case e.Kind == h2.Refused, e.Kind == h2.GoneAway && p.Retry.TrustGoaway:
		r.Evidence = call.EvidenceRefused
	}
	switch e.Kind {
	case h2.Malformed:
		r.Failure, r.Detail = call.FailureProtocol, "the answer is malformed: "+e.Text
	case h2.TooLarge:
		r.Failure, r.Detail = call.FailureResponseTooLarge, "the answer is too large: "+e.Text
	case h2.Illegal:
		r.Failure, r.Detail = call.FailureProtocol, "the request cannot be written: "+e.Text
	case h2.Cancelled:
		r.Failure = call.FailureCancelled
	case h2.Timeout:
		r.Failure = call.FailureAttemptTimeout
	case h2.Lost:
		if at.idle > 0 && r.Evidence == call.EvidenceSentNoResponse && !at.trunk.http.GoneAway() {
			t.pool.census.diedInUse.Add(1)
			t.pool.life.died(at.group.key.origin, 0, at.idle) // the close and the request crossed on the way
		}
		if word, ok := alert(e.Err); ok && !at.trunk.http.Greeted() {
			// In TLS 1.3 this may be a handshake that the server broke off. Nothing proves that, and the request was written.
			r.Failure, r.Detail = call.FailureTLS, "the server ended the TLS session before it answered: "+word
		}
	}
	return timed(ctx, a, r)
}
