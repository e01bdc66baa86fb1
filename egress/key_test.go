package egress

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// TestKeyOfASharedCredentialIsTheCallersOwn: two callers that use one id are two operations to an upstream that knows but one account.
func TestKeyOfASharedCredentialIsTheCallersOwn(t *testing.T) {
	keys := make(chan string, 1)
	u := newUpstream(t, func(_ int, c net.Conn) {
		for r := bufio.NewReader(c); ; {
			req, _, err := request(r)
			if err != nil {
				return
			}
			keys <- req.Header.Get("Idempotency-Key")
			_, _ = io.WriteString(c, okAnswer)
		}
	})
	contract := policy.Idempotency{Enabled: true, Header: "Idempotency-Key", Methods: []string{http.MethodPost}, KeyTTL: time.Hour}
	shared := []policy.Credential{{Header: "X-Api-Key", Secret: "live", Hosts: []string{"127.0.0.1"}}}
	key := func(tr *Transport, caller, id string, credentials []policy.Credential) string {
		p := loopback(t)
		p.Secrets, p.Idempotency, p.Credentials = secrets(t, "live", "s3cret"), contract, credentials
		c := newCall(t, http.MethodPost, u.url("/"), "body")
		c.Caller, c.OperationID = caller, id
		want(t, tr.Send(t.Context(), c, p, attempt()), call.EvidenceAnswered, call.FailureNone)
		if c.OperationID != id {
			t.Errorf("the operation is %q now", c.OperationID)
		}
		return <-keys
	}
	tr := newTransport(t, nil)
	// HMAC-SHA256 of "order-1", keyed with "spiffe://example.com/till": printf order-1 | openssl dgst -sha256 -hmac spiffe://example.com/till
	const tills = "685a840ce5891ca9fb2ad68505824c8d9051158332da81bb16d84f27a36cc62a"
	if got := key(tr, "spiffe://example.com/till", "order-1", shared); got != tills {
		t.Errorf("the key is %q", got)
	}
	for name, got := range map[string]string{
		"a retry":   key(tr, "spiffe://example.com/till", "order-1", shared),
		"a restart": key(newTransport(t, nil), "spiffe://example.com/till", "order-1", shared),
	} {
		if got != tills {
			t.Errorf("%s has the key %q, want the same", name, got)
		}
	}
	others := []string{
		tills, key(tr, "spiffe://example.com/shop", "order-1", shared), key(tr, "spiffe://example.com/till", "order-2", shared), key(tr, "", "order-1", shared),
	}
	slices.Sort(others)
	if len(slices.Compact(others)) != 4 || slices.Contains(others, "order-1") {
		t.Errorf("keys %q", others)
	}
	for name, p := range map[string]*policy.Effective{
		"an Authorization that is set": {Headers: policy.Headers{Set: []call.Header{{Name: "authorization", Value: "Bearer shared"}}}},
		"a client certificate":         {Egress: policy.Egress{ClientCertificate: "till"}},
	} {
		c := &call.Call{Caller: "spiffe://example.com/till", OperationID: "order-1", Target: call.Target{Scheme: "https"}}
		if got := OperationKey(c, p); got != tills {
			t.Errorf("%s: the key is %q", name, got)
		}
		if c.Foreign = true; OperationKey(c, p) != "order-1" {
			t.Errorf("%s goes to another origin", name)
		}
	}
	for name, credentials := range map[string][]policy.Credential{
		"none":                           nil,
		"one of another host":            {{Header: "X-Api-Key", Secret: "live", Hosts: []string{"api.example.com"}}},
		"one that the key's field hides": {{Header: "idempotency_key", Secret: "live", Hosts: []string{"127.0.0.1"}}},
	} {
		if got := key(tr, "spiffe://example.com/till", "order-1", credentials); got != "order-1" {
			t.Errorf("%s: the key is %q, want the id as given", name, got)
		}
	}
}
