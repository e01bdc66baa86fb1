package egress

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// OperationKey is what stands in the field of the idempotency contract: the operation's id as given, where callers authenticate
// themselves upstream, or not at all.
//
// Where the broker adds the credential, all callers are one to the upstream, and the same id of two of them would be one operation: the
// key is then HMAC-SHA256 of the id under the caller's identity, in lower-case hex. It depends on nothing else, so that it is the same on
// every attempt, after a restart, on every broker, and without the ledger.
func OperationKey(c *call.Call, p *policy.Effective) string {
	if !injects(c, p) {
		return c.OperationID
	}
	mac := hmac.New(sha256.New, []byte(c.Caller))
	mac.Write([]byte(c.OperationID))
	return hex.EncodeToString(mac.Sum(nil))
}

// injects: a credential of the policy goes along, be it a client certificate or an Authorization that the policy sets.
func injects(c *call.Call, p *policy.Effective) bool {
	if c.Foreign {
		return false
	}
	if c.Target.Scheme == "https" && p.Egress.ClientCertificate != "" {
		return true
	}
	for i := range p.Headers.Set {
		if call.SameField(p.Headers.Set[i].Name, "Authorization") {
			return true
		}
	}
	for i := range p.Credentials {
		if cred := &p.Credentials[i]; cred.Covers(c.Target.Host) && !call.SameField(cred.Header, p.Idempotency.Header) {
			return true // one in the key's own field would not be sent
		}
	}
	return false
}
