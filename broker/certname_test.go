package broker

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
)

// named makes a certificate that says this, as the parser of crypto/x509 would give it.
func named(t testing.TB, uris, dns []string) *x509.Certificate {
	t.Helper()
	cert := &x509.Certificate{DNSNames: dns, KeyUsage: x509.KeyUsageDigitalSignature}
	for _, s := range uris {
		u, err := url.Parse(s)
		if err != nil {
			t.Skip("crypto/x509 takes no such certificate")
		}
		cert.URIs = append(cert.URIs, u)
	}
	return cert
}

func TestCertificateNamesOneCallerOrNobody(t *testing.T) {
	const id = "spiffe://example.com/billing"
	for _, tt := range []struct {
		name      string
		uris, dns []string
		want      string // "" is nobody
		why       string
	}{
		{"a SPIFFE id", []string{id}, nil, id, ""},
		{"a SPIFFE id of several segments", []string{"spiffe://prod.example.com/ns/pay/sa/Billing_1.2-3"}, nil, "spiffe://prod.example.com/ns/pay/sa/Billing_1.2-3", ""},
		{"a DNS name", nil, []string{"billing.example.com"}, "billing.example.com", ""},
		{"a DNS name in capitals", nil, []string{"Billing.EXAMPLE.com"}, "billing.example.com", ""},
		{"another URI beside a DNS name", []string{"https://example.com/"}, []string{"billing.example.com"}, "billing.example.com", ""},
		{"a SPIFFE id wins over DNS names", []string{id}, []string{"a.example.com", "b.example.com"}, id, ""},

		{"nothing", nil, nil, "", "neither a SPIFFE id nor a DNS name"},
		{"two SPIFFE ids", []string{id, "spiffe://example.com/ledger"}, nil, "", "a SPIFFE id and 2 URIs in all"},
		{"two SPIFFE ids and one DNS name", []string{id, "spiffe://example.com/ledger"}, []string{"billing.example.com"}, "", "2 URIs in all"},
		{"a SPIFFE id after another URI", []string{"https://example.com/", id}, []string{"billing.example.com"}, "", "2 URIs in all"},
		{"two DNS names", nil, []string{"a.example.com", "b.example.com"}, "", "2 DNS names and no SPIFFE id"},
		{"the same DNS name twice", nil, []string{"a.example.com", "a.example.com"}, "", "2 DNS names"},
		{"another URI alone", []string{"https://example.com/billing"}, nil, "", "neither"},
		{"a broken SPIFFE id is not read by its DNS name", []string{"spiffe://example.com"}, []string{"billing.example.com"}, "", "without a path"},
		{"SPIFFE without slashes", []string{"spiffe:billing"}, []string{"billing.example.com"}, "", "begins with spiffe://"},
		{"root path", []string{"spiffe://example.com/"}, nil, "", "without a path"},
		{"slash at the end", []string{id + "/"}, nil, "", "empty segment"},
		{"empty segment", []string{"spiffe://example.com//billing"}, nil, "", "empty segment"},
		{"dot segment", []string{"spiffe://example.com/a/../billing"}, nil, "", "dot segment"},
		{"escape", []string{"spiffe://example.com/bil%6cing"}, nil, "", "letters, digits"},
		{"escaped slash", []string{"spiffe://example.com/a%2fb"}, nil, "", "letters, digits"},
		{"letters outside ASCII", []string{"spiffe://example.com/b\u0456lling"}, nil, "", "letters, digits"},
		{"query", []string{id + "?a=b"}, nil, "", "letters, digits"},
		{"empty query", []string{id + "?"}, nil, "", "letters, digits"},
		{"fragment", []string{id + "#a"}, nil, "", "letters, digits"},
		{"port", []string{"spiffe://example.com:443/billing"}, nil, "", "trust domain"},
		{"user", []string{"spiffe://root@example.com/billing"}, nil, "", "trust domain"},
		{"no trust domain", []string{"spiffe:///billing"}, nil, "", "trust domain"},
		{"trust domain in capitals", []string{"spiffe://Example.com/billing"}, nil, "", "trust domain"},
		{"too long", []string{"spiffe://example.com/" + strings.Repeat("a", 255)}, nil, "", "more than 255 bytes"},
		{"wildcard", nil, []string{"*.example.com"}, "", "a wildcard names nobody"},
		{"one label", nil, []string{"local"}, "", "one label"},
		{"dot at the end", nil, []string{"billing.example.com."}, "", "labels"},
		{"empty label", nil, []string{"billing..com"}, "", "labels"},
		{"blank and line end", nil, []string{"a b.example.com\nx"}, "", "labels"},
		{"a user", nil, []string{"uid:0.example.com"}, "", "labels"},
		{"an address", nil, []string{"10.0.0.1"}, "", "that is an address"},
		{"a long label", nil, []string{strings.Repeat("a", 64) + ".example.com"}, "", "labels"},
		{"a long name", nil, []string{strings.Repeat("a.", 127) + "a"}, "", "more than 253 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name, err := nameIn(named(t, tt.uris, tt.dns))
			if tt.why == "" && (err != nil || name != tt.want) {
				t.Errorf("got %q, %v; want %q", name, err, tt.want)
			}
			if tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why)) {
				t.Errorf("got %q, %v; want an error with %q", name, err, tt.why)
			}
			for _, secret := range append(tt.uris, tt.dns...) {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("the reason repeats the certificate: %v", err)
				}
			}
		})
	}
}

func TestSPIFFECertificateSignsNoOthers(t *testing.T) {
	for _, change := range []func(*x509.Certificate){
		func(c *x509.Certificate) { c.IsCA = true },
		func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign },
		func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign },
	} {
		cert := named(t, []string{"spiffe://example.com/billing"}, []string{"billing.example.com"})
		change(cert)
		if name, err := nameIn(cert); err == nil || !strings.Contains(err.Error(), "may sign") {
			t.Errorf("%q, %v", name, err)
		}
	}
}

// FuzzCertificateName: whatever a certificate says, it names nobody, or one caller in a form that is compared byte by byte and is safe
// in logs, labels and policies.
func FuzzCertificateName(f *testing.F) {
	f.Add("spiffe://example.com/billing", "billing.example.com", "")
	f.Add("spiffe://example.com/a%2f..", "a.example.com", "b.example.com")
	f.Add("SPIFFE://example.com/a#", "*.example.com", "")
	f.Add("https://example.com/", "Billing.Example.COM", "")
	f.Add("", "uid:0", "")
	f.Fuzz(func(t *testing.T, uri, one, two string) {
		var uris, dns []string
		for _, s := range []string{uri} {
			if s != "" {
				uris = append(uris, s)
			}
		}
		for _, s := range []string{one, two} {
			if s != "" {
				dns = append(dns, s)
			}
		}
		name, err := nameIn(named(t, uris, dns))
		if err != nil {
			return
		}
		if !validOperationID(name) || strings.HasPrefix(name, userPrefix) || name == localIdentity {
			t.Fatalf("%q is no name of a certificate", name)
		}
		isSPIFFE := strings.HasPrefix(strings.ToLower(uri), "spiffe:")
		if isSPIFFE != strings.HasPrefix(name, spiffeScheme) {
			t.Fatalf("%q from %q", name, uri)
		}
		if !isSPIFFE && (len(dns) != 1 || !strings.EqualFold(name, dns[0]) || name != strings.ToLower(name)) {
			t.Fatalf("%q from %q", name, dns)
		}
	})
}
