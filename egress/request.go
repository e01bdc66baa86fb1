package egress

import (
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// protocolName is how attempts name HTTP/1.1.
const protocolName = "HTTP/1.1"

// requestHead is what a request begins with, in either protocol.
type requestHead interface {
	Start(method, target, host string)
	Field(name, value string)
}

// writeHead writes the request line and the fields. The broker's own win over the caller's of the same name: what the policy
// sets, its credentials, the operation's key, the remaining time, the trace.
func (t *Transport) writeHead(h requestHead, c *call.Call, p *policy.Effective, a *call.Attempt) {
	h.Start(c.Method, c.Target.RequestTarget, c.Target.Authority)
	own := ownFields{policy: p, host: c.Target.Host, keyed: p.Keyed(c), foreign: c.Foreign}
	userAgent := false
	for i := range c.Headers {
		f := &c.Headers[i]
		if own.has(f.Name) {
			continue
		}
		userAgent = userAgent || strings.EqualFold(f.Name, "User-Agent")
		h.Field(textproto.CanonicalMIMEHeaderKey(f.Name), f.Value)
	}
	for i := range own.set() {
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
	if own.keyed {
		h.Field(p.Idempotency.Header, OperationKey(c, p))
	}
	if !c.Foreign {
		authorize(p, c.Target.Host, func(name, value string) {
			if !own.isKey(name) {
				h.Field(name, value)
			}
		})
	}
	if name := p.Deadline.Header; name != "" && !own.isKey(name) && !own.isCredential(name) {
		remaining := max(0, a.Remaining-time.Since(a.Start)) // finding a connection took its share
		h.Field(name, strconv.FormatInt(remaining.Milliseconds(), 10))
	}
	if a.TraceParent != "" {
		h.Field("Traceparent", a.TraceParent)
	}
}

// ownFields are the names that the broker writes itself.
type ownFields struct {
	policy  *policy.Effective
	host    string
	keyed   bool
	foreign bool // a redirect led here from another origin: what the policy sets or holds stays behind
}

// set are the fields that the policy sets.
func (o *ownFields) set() []call.Header {
	if o.foreign {
		return nil
	}
	return o.policy.Headers.Set
}

// has: the caller's field of that name is not sent. Names are folded as upstreams fold them: X_Api_Key is X-Api-Key.
func (o *ownFields) has(name string) bool {
	for i := range o.set() {
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

// injected: the broker writes that field per attempt. Where two of these claim a name, the key has it, then a credential, then
// the remaining time.
func (o *ownFields) injected(name string) bool {
	return o.isKey(name) || o.isCredential(name) ||
		o.policy.Deadline.Header != "" && call.SameField(o.policy.Deadline.Header, name)
}

func (o *ownFields) isCredential(name string) bool {
	return !o.foreign && o.policy.CredentialFor(name, o.host) != nil
}

func (o *ownFields) isKey(name string) bool {
	return o.keyed && call.SameField(o.policy.Idempotency.Header, name)
}
