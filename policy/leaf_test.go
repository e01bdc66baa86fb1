package policy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/policy"
)

// field is one leaf found by a walk of the test's own.
type field struct {
	path  string
	index []int
}

// fields walks the tags of the sparse form.
func fields(t reflect.Type, path string, index []int) []field {
	var all []field
	for i := range t.NumField() {
		f := t.Field(i)
		sub := strings.TrimPrefix(path+"."+f.Tag.Get("leaf"), ".")
		at := append(slices.Clone(index), i)
		if f.Type.Kind() == reflect.Struct {
			all = append(all, fields(f.Type, sub, at)...)
			continue
		}
		all = append(all, field{sub, at})
	}
	return all
}

func (f field) in(s *policy.Settings) reflect.Value {
	return reflect.ValueOf(s).Elem().FieldByIndex(f.index)
}

// unlike gives a legal value that no default has.
func unlike(tb testing.TB, f field) any {
	tb.Helper()
	switch f.path {
	case "egress.allow_cidrs", "egress.deny_cidrs":
		return []string{"10.0.0.0/8"}
	case "egress.tls.ca_pem":
		return new(caPEM(tb))
	case "egress.proxy":
		return new("http://proxy.example.com:3128")
	case "budget.window|token_bucket":
		return &policy.BudgetLimitRule{TokenBucket: &policy.TokenBucketRule{}}
	case "hedge.delay|percentile":
		return &policy.HedgeTriggerRule{Delay: new(7 * time.Second)}
	case "egress.allow_http", "retry.hold", "deferred.at_least_once":
		return new(false)
	}
	switch reflect.TypeFor[policy.Settings]().FieldByIndex(f.index).Type {
	case reflect.TypeFor[*time.Duration]():
		return new(2 * time.Hour)
	case reflect.TypeFor[*uint32]():
		return new(uint32(77))
	case reflect.TypeFor[*uint64]():
		return new(uint64(77))
	case reflect.TypeFor[*float64]():
		return new(7.7)
	case reflect.TypeFor[*bool]():
		return new(true)
	case reflect.TypeFor[*string]():
		return new("x-other")
	case reflect.TypeFor[[]string]():
		return []string{"X-OTHER"}
	case reflect.TypeFor[[]uint32]():
		return []uint32{418}
	case reflect.TypeFor[map[string]string]():
		return map[string]string{"X-Other": "1"}
	case reflect.TypeFor[[]policy.Protocol]():
		return []policy.Protocol{policy.ProtocolHTTP2}
	case reflect.TypeFor[[]policy.Credential]():
		return []policy.Credential{{Header: "X-Other", Secret: "s", Hosts: []string{"example.com"}}}
	case reflect.TypeFor[*policy.TLSVersion]():
		return new(policy.TLSVersion13)
	case reflect.TypeFor[*backoff.Jitter]():
		return new(backoff.JitterEqual)
	}
	tb.Fatalf("no value for %s", f.path)
	return nil
}

// flatValues gives what two Effective values are compared by: no name, no provenance, certificates by their content.
func flatValues(e *policy.Effective) map[string]any {
	out := map[string]any{}
	v := reflect.ValueOf(e).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && !slices.Contains([]string{"Policy", "Generation", "Sources", "Secrets"}, f.Name) {
			flat(out, f.Name, v.Field(i))
		}
	}
	delete(out, "Egress.TLS")
	delete(out, "Egress.ID") // follows the block, see TestEgressIDTellsBlocksApart
	out["Egress.TLS.MinVersion"] = e.Egress.TLS.MinVersion
	out["Egress.TLS.RootCAs"] = 0
	if e.Egress.TLS.RootCAs != nil {
		out["Egress.TLS.RootCAs"] = len(e.Egress.TLS.RootCAs.Subjects()) //nolint:staticcheck // no system pool is in it
	}
	return out
}

func flat(out map[string]any, path string, v reflect.Value) {
	if v.Kind() != reflect.Struct {
		out[path] = v.Interface()
		return
	}
	for i := range v.NumField() {
		flat(out, path+"."+v.Type().Field(i).Name, v.Field(i))
	}
}

func TestEveryLeafReachesTheEffectiveValueAndEveryValueHasALeaf(t *testing.T) {
	c := callTo(t, "GET", "https://example.com/", "")
	untouched := flatValues(compile(t).Match(c))
	reached := map[string]string{}
	for _, f := range fields(reflect.TypeFor[policy.Settings](), "", nil) {
		r := policy.Rule{Name: "policies/x"}
		f.in(&r.Settings).Set(reflect.ValueOf(unlike(t, f)))
		changed := 0
		for path, value := range flatValues(compile(t, r).Match(c)) {
			if reflect.DeepEqual(value, untouched[path]) || (strings.HasSuffix(path, ".Enabled") && !strings.HasSuffix(f.path, ".enabled")) {
				continue
			}
			changed++
			if other, twice := reached[path]; twice {
				t.Errorf("%s is set by %s and by %s", path, other, f.path)
			}
			reached[path] = f.path
		}
		if changed == 0 {
			t.Errorf("%s changes nothing in Effective", f.path)
		}
	}
	// Provenance decides this one, see TestOnlyAFilePolicyOpensLoopback.
	reached["Egress.Rules.AllowLoopback"] = "egress.allow_cidrs"
	for path := range untouched {
		if reached[path] == "" {
			t.Errorf("%s has no leaf", path)
		}
	}
}

func TestLeafPathsAreTheTags(t *testing.T) {
	var want []string
	for _, f := range fields(reflect.TypeFor[policy.Settings](), "", nil) {
		want = append(want, f.path)
	}
	if got := policy.LeafPaths(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// caPEM makes a certificate nobody trusts.
func caPEM(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
