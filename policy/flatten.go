package policy

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
)

// flatten makes the flat form of merged settings. A leaf whose Go names lead to a field of Effective goes there as it is; the
// blocks that are compiled follow by hand. A test changes every leaf in turn and looks for the difference.
func flatten(s *Settings, leaves []leaf, setBy map[string]*Rule, secrets Secrets) *Effective {
	e := &Effective{merged: s, Secrets: secrets}
	flat, sparse := reflect.ValueOf(e).Elem(), reflect.ValueOf(s).Elem()
	for i := range leaves {
		if l := &leaves[i]; l.flat != nil {
			assign(flat.FieldByIndex(l.flat), sparse.FieldByIndex(l.index))
		}
	}
	e.Budget.Window, e.Budget.TokenBucket = flatLimit(s.Budget.Limit)
	if t := s.Hedge.Trigger; t.Delay != nil {
		e.Hedge.Delay = *t.Delay
	} else {
		e.Hedge.Percentile = *t.Percentile
	}
	e.Egress.Rules = guard.Rules{
		Allow: prefixes(s.Egress.AllowCIDRs),
		Deny:  prefixes(s.Egress.DenyCIDRs),
		// An administrator's write must not open the broker's own host; only who starts the broker may (semantics.md §9).
		AllowLoopback: setBy["egress.allow_cidrs"].File,
		Ports:         ports(s.Egress.Ports),
		AnyPort:       *s.Egress.AnyPort,
		AllowHTTP:     *s.Egress.AllowHTTP,
	}
	e.Egress.TLS = clientTLS(&s.Egress.TLS)
	e.Egress.Proxy = flatProxy(*s.Egress.Proxy, setBy["egress.proxy"].File)
	e.Egress.ID = egressID(e, leaves, identified(e.Egress.TLS, *s.Egress.TLS.ClientCertificate, secrets))
	e.Egress.ServerName = *s.Egress.TLS.ServerName
	e.Egress.ClientCertificate = *s.Egress.TLS.ClientCertificate
	e.Credentials = slices.Clone(s.Credentials)
	for i := range e.Credentials {
		e.Credentials[i].Hosts = mapped(e.Credentials[i].Hosts, normalHost)
	}
	for _, name := range sortedKeys(s.Headers.Set) {
		e.Headers.Set = append(e.Headers.Set, call.Header{Name: name, Value: s.Headers.Set[name]})
	}
	e.Headers.Remove = mapped(s.Headers.Remove, strings.ToLower)
	return e
}

// assign copies a leaf to its flat counterpart: a pointer to its value, a status list to a set, an equal type as it is. An absent
// leaf leaves the zero value. Any other pair is compiled by hand.
func assign(dst, src reflect.Value) {
	switch {
	case !isSet(src):
	case dst.Type() == src.Type():
		dst.Set(src)
	case src.Kind() == reflect.Pointer && dst.Type() == src.Type().Elem():
		dst.Set(src.Elem())
	case dst.Type() == reflect.TypeFor[StatusSet]():
		codes, _ := reflect.TypeAssert[[]uint32](src)
		dst.Set(reflect.ValueOf(Statuses(codes...)))
	}
}

// flatLimit fills what the chosen member leaves out with the table's defaults.
func flatLimit(l *BudgetLimitRule) (*BudgetWindow, *TokenBucket) {
	if w := l.Window; w != nil {
		out := &BudgetWindow{Ratio: 0.2, Period: defaultBudgetPeriod, MinPerSecond: 1}
		overlay(out, w)
		return out, nil
	}
	out := &TokenBucket{MaxTokens: 10, TokenRatio: 0.1, Rule: TokenRuleHalf}
	overlay(out, l.TokenBucket)
	return nil, out
}

// overlay sets the fields of dst that the sparse struct src has, by name.
func overlay(dst, src any) {
	d, s := reflect.ValueOf(dst).Elem(), reflect.ValueOf(src).Elem()
	for i := range s.NumField() {
		assign(d.FieldByName(s.Type().Field(i).Name), s.Field(i))
	}
}

// clientTLS is the handshake's part that a policy decides; NextProtos is left to egress. A policy's authorities replace the
// system's: who names one means that one alone.
func clientTLS(r *TLSRule) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if *r.MinVersion == TLSVersion13 {
		c.MinVersion = tls.VersionTLS13
	}
	if *r.CAPEM != "" {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM([]byte(*r.CAPEM)) // Check has read it before
	}
	return c
}

// egressID tells blocks apart by all they say, by who may open loopback, and by the certificate that their reference led to, so that a
// connection made under one is not used under another.
func egressID(e *Effective, leaves []leaf, certificate string) string {
	proxyLoopback := e.Egress.Proxy != nil && e.Egress.Proxy.Rules.AllowLoopback
	text := fmt.Appendf(nil, "loopback %v %v\ncertificate %s\n", e.Egress.Rules.AllowLoopback, proxyLoopback, certificate)
	for i := range leaves {
		if v := leaves[i].in(e.merged); strings.HasPrefix(leaves[i].path, "egress.") && isSet(v) {
			text = fmt.Appendf(text, "%s %#v\n", leaves[i].path, reflect.Indirect(v).Interface())
		}
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

func prefixes(cidrs []string) []netip.Prefix {
	return mapped(cidrs, func(s string) netip.Prefix { return netip.MustParsePrefix(s).Masked() }) // Check has read it before
}

func ports(numbers []uint32) []uint16 {
	return mapped(numbers, func(n uint32) uint16 { return uint16(n) }) //nolint:gosec // Check has bounded it
}

func mapped[T, U any](in []T, f func(T) U) []U {
	var out []U
	for _, v := range in {
		out = append(out, f(v))
	}
	return out
}
