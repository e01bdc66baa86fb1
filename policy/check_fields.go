package policy

import (
	"fmt"
	"strings"

	"github.com/sallyport/sallyport/call"
)

// fields looks at every header field a rule names. What the broker or the protocol owns is nobody's to set (semantics.md §9).
func (c *checker) fields(r *Rule) {
	c.field("deadline.header", r.Deadline.Header)
	c.field("idempotency.header", r.Idempotency.Header)
	spelled := map[string]string{}
	for _, name := range sortedKeys(r.Headers.Set) {
		path := fmt.Sprintf("headers.set[%q]", name)
		c.field(path, &name)
		if !call.ValidFieldValue(r.Headers.Set[name]) {
			c.add(path, "a field value has no control characters")
		}
		if other, twice := spelled[strings.ToLower(name)]; twice {
			c.add(path, "is the same field as "+other+": keep one of them")
		}
		spelled[strings.ToLower(name)] = name
	}
	for i := range r.Credentials {
		cred, path := &r.Credentials[i], fmt.Sprintf("credentials[%d]", i)
		if cred.Header == "" {
			c.add(path+".header", "name the field that carries the secret")
		}
		c.field(path+".header", &cred.Header)
		if !call.ValidFieldValue(cred.Prefix) {
			c.add(path+".prefix", "a field value has no control characters")
		}
		if s := cred.Secret; s == "" || s[0] == '.' || strings.ContainsAny(s, `/\`) {
			c.add(path+".secret", "write the name of a file in the secrets directory: no path, no leading dot")
		}
		for j, host := range cred.Hosts {
			if text := hostProblem(host); text != "" {
				c.add(fmt.Sprintf("%s.hosts[%d]", path, j), text)
			}
		}
		if len(cred.Hosts) == 0 {
			c.add(path+".hosts", "name the hosts it is for: without one the secret would go to whatever URL a caller writes")
		}
	}
}

func (c *checker) field(path string, name *string) {
	switch {
	case name == nil || *name == "":
	case !call.ValidToken(*name):
		c.add(path, "a field name is a token: letters, digits and !#$%&'*+-.^_`|~")
	case call.ReservedField(*name):
		c.add(path, "is not the policy's to set: Host comes from the URL, framing, connection and trace fields from the broker; choose another")
	}
}
