package egress

import (
	"net/textproto"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// protocolName is how attempts name HTTP/1.1.
const protocolName = "HTTP/1.1"

// writeHead writes the request line and the fields. The broker's own win over the caller's of the same name: what the policy
// sets, its credentials, the operation's key, the remaining time, the trace.
func (t *Transport) writeHead(cn *conn, c *call.Call, p *policy.Effective, a *call.Attempt) {
	h := cn.http
	h.Start(c.Method, c.Target.RequestTarget, c.Target.Authority)
	own := ownFields{policy: p, host: c.Target.Host, keyed: p.Keyed(c)}
	userAgent := false
	for i := range c.Headers {
		f := &c.Headers[i]
		if own.has(f.Name) {
			continue
		}
		userAgent = userAgent || strings.EqualFold(f.Name, "User-Agent")
		h.Field(textproto.CanonicalMIMEHeaderKey(f.Name), f.Value)
	}
	for i := range p.Headers.Set {
		f := &p.Headers.Set[i]
		if own.injected(f.Name) {
			continue
		}
		userAgent = userAgent || strings.EqualFold(f.Name, "User-Agent")
		h.Field(f.Name, f.Value)
	}
	if !userAgent {
		h.Field("User-Agent", t.userAgent)
	}
	authorize(p, c.Target.Host, h.Field)
	if own.keyed {
		h.Field(p.Idempotency.Header, c.OperationID)
	}
	if p.Deadline.Header != "" {
		h.Field(p.Deadline.Header, strconv.FormatInt(a.Remaining.Milliseconds(), 10))
	}
	if a.TraceParent != "" {
		h.Field("Traceparent", a.TraceParent)
	}
}

// ownFields are the names that the broker writes itself.
type ownFields struct {
	policy *policy.Effective
	host   string
	keyed  bool
}

// has: the caller's field of that name is not sent. Names are folded as upstreams fold them: X_Api_Key is X-Api-Key.
func (o *ownFields) has(name string) bool {
	for i := range o.policy.Headers.Set {
		if call.SameField(o.policy.Headers.Set[i].Name, name) {
			return true
		}
	}
	for _, removed := range o.policy.Headers.Remove {
		if call.SameField(removed, name) {
			return true
		}
	}
	return o.injected(name)
}

// injected: the broker writes that field per attempt.
func (o *ownFields) injected(name string) bool {
	for i := range o.policy.Credentials {
		if c := &o.policy.Credentials[i]; call.SameField(c.Header, name) && c.Covers(o.host) {
			return true
		}
	}
	return o.keyed && call.SameField(o.policy.Idempotency.Header, name) ||
		o.policy.Deadline.Header != "" && call.SameField(o.policy.Deadline.Header, name)
}
