package engine

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// redirects is what a plan keeps of the hops it follows (semantics.md §9).
type redirects struct {
	followed uint32
	hopping  bool                 // the next attempt is a hop, not a repeat
	problem  string               // why a hop was refused, for the caller
	repeat   policy.Repeatability // of the operation as a whole: the weakest of its requests
}

// redirected goes on with another request when the answer is a redirect that the policy follows. Without that, the 3xx is the answer.
func (p *Plan) redirected(now time.Time, r *call.Result) (Step, bool) {
	if p.late.told || r.Evidence != call.EvidenceAnswered || !p.leadsOn(r.Response) {
		return Step{}, false
	}
	locations := fieldValues(r.Response.Headers, "Location")
	target, err := p.call.Target.Resolve(locations[0])
	if problem := locationProblem(locations, &target, err, p.policy); problem != "" {
		p.hops.problem = "the Location cannot be followed: " + problem
		return p.stop(now, call.OutcomeResponseRejected, call.ReasonMalformedResponse), true
	}
	hop := p.hop(r.Status, target)
	if hasBody(hop) && !p.replayable(r) ||
		(r.Status == 307 || r.Status == 308) && target.Origin != p.call.Target.Origin && p.repeat == policy.RepeatNever {
		return Step{}, false
	}
	return p.follow(now, r, hop)
}

// leadsOn: the policy follows such an answer, if its Location can be followed.
func (p *Plan) leadsOn(r *call.Response) bool {
	return p.policy.Redirects.MaxHops > 0 && redirects3xx(r.Status) && len(fieldValues(r.Headers, "Location")) > 0
}

// redirects3xx: 300 offers a choice, 304 is no redirect, 305 and 306 are dead (RFC 9110 §15.4).
func redirects3xx(status int) bool {
	switch status {
	case 301, 302, 303, 307, 308:
		return true
	}
	return false
}

// locationProblem is why a Location leads nowhere; "" when it does.
func locationProblem(locations []string, target *call.Target, err error, p *policy.Effective) string {
	if invalid, ok := errors.AsType[*call.InvalidError](err); ok {
		return invalid.Problem
	}
	switch {
	case slices.ContainsFunc(locations, func(other string) bool { return other != locations[0] }):
		return "there are several"
	case target.Ambiguous() && p.PathScoped(target.Host):
		return "an encoded separator, an empty segment or a ; in the path, where a policy with a path_prefix covers the host"
	}
	return ""
}

// follow judges the hop as a call is judged on arrival, and takes the wait that the redirect asks for (RFC 9110 §10.2.3).
// False: the caller has the answer already, because it was long, and so it is the answer.
func (p *Plan) follow(now time.Time, r *call.Result, hop *call.Call) (Step, bool) {
	t := &hop.Target
	switch err := p.guard.Target(&p.policy.Egress.Rules, t.Scheme, t.Host, t.Address, t.Port); {
	case p.hops.followed >= p.policy.Redirects.MaxHops:
		return p.stop(now, call.OutcomeResponseRejected, call.ReasonRedirectLimit), true
	case p.call.Target.Scheme == "https" && t.Scheme == "http":
		p.denial = "the redirect leads from https to http"
		return p.stop(now, call.OutcomeDenied, call.ReasonEgressDenied), true
	case err != nil:
		p.denial, p.note = err.Error(), guard.Explain(err)
		return p.stop(now, call.OutcomeDenied, call.ReasonEgressDenied), true
	}
	wait := time.Duration(0)
	if asked, ok := serverDelay(r, now); ok {
		if p.tooLong(now, asked) {
			return p.stop(now, call.OutcomeThrottled, call.ReasonRetryAfterTooLong), true
		}
		wait = p.spread(now, asked)
	}
	if !p.fits(now, wait) {
		return p.stop(now, call.OutcomeDeadlineExceeded, call.ReasonDeadline), true
	}
	if r.Forwarded {
		return Step{}, false
	}
	p.decide(call.Decision{Verdict: call.VerdictFollow, Reason: call.ReasonRedirect, Wait: wait})
	return p.end(now, ending{outcome: call.OutcomeSuccess, hop: hop}), true
}

// goOn makes the hop the call's request. What was decided of hedging was for the first one.
func (p *Plan) goOn(now time.Time, hop *call.Call) Step {
	p.ask(hop)
	p.hops.followed++
	p.hops.hopping = true
	p.hops.repeat = min(p.hops.repeat, p.repeat)
	p.beside = beside{}
	// The wait counts from the redirect, for which it was judged: what was in flight beside it may have taken a while to end.
	a := p.last()
	wait := a.Start.Add(a.Duration).Add(a.Decision.Wait).Sub(now)
	if wait <= 0 {
		return p.admit(now)
	}
	return p.rest(now, wait, false)
}

// hop is the request that a redirect asks for (RFC 9110 §15.4, and Fetch, HTTP-redirect fetch, for what browsers made of 301 and 302).
func (p *Plan) hop(status int, target call.Target) *call.Call {
	hop := *p.call
	hop.Target = target
	bodyless := false
	switch {
	case (status == 301 || status == 302) && hop.Method == "POST",
		status == 303 && hop.Method != "GET" && hop.Method != "HEAD":
		hop.Method, hop.Body, hop.OperationID, bodyless = "GET", nil, "", true
		if s := hop.Stream; s != nil {
			hop.Stream = &call.Stream{Answer: s.Answer}
		}
	}
	hop.Foreign = hop.Foreign || target.Origin != p.call.Target.Origin
	hop.Headers = slices.DeleteFunc(slices.Clone(hop.Headers), func(h call.Header) bool {
		// The caller's Referer speaks of where the first request came from, and may hold a URL that is nobody else's to know.
		return call.SameField(h.Name, "Referer") || bodyless && (describesBody(h.Name) || call.SameField(h.Name, p.policy.Idempotency.Header)) ||
			hop.Foreign && p.ownSecret(h.Name)
	})
	return &hop
}

// hasBody: a streamed one may have one.
func hasBody(c *call.Call) bool { return len(c.Body) > 0 || c.Stream != nil && c.Stream.Upload != nil }

// describesBody: the field speaks of a body that is not sent any more.
func describesBody(name string) bool {
	return slices.ContainsFunc([]string{
		"Content-Type", "Content-Length", "Content-Encoding", "Content-Language", "Content-Location", "Digest", "Last-Modified",
	}, func(other string) bool { return call.SameField(name, other) })
}

// ownSecret: the field is for the first origin alone: credentials, by their name or by what the policy says, and the key.
func (p *Plan) ownSecret(name string) bool {
	if call.SameField(name, "Cookie") || call.SameField(name, p.policy.Idempotency.Header) ||
		slices.ContainsFunc(p.policy.Headers.Set, func(h call.Header) bool { return call.SameField(h.Name, name) }) ||
		slices.ContainsFunc(p.policy.Credentials, func(c policy.Credential) bool { return call.SameField(c.Header, name) }) {
		return true
	}
	name = strings.ToLower(name) // of Authorization, too
	return slices.ContainsFunc([]string{"key", "token", "secret", "auth", "password", "signature"},
		func(word string) bool { return strings.Contains(name, word) })
}
