package broker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := &authority{cert: template, key: key}
	a.cert = a.sign(t, template, key)
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(t testing.TB, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// issue makes a certificate for a client, or as change has it.
func (a *authority) issue(t testing.TB, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "subject-is-never-read"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	change(template)
	return tls.Certificate{Certificate: [][]byte{a.sign(t, template, key).Raw}, PrivateKey: key}
}

// client issues the certificate of a client with that SPIFFE id, or DNS name.
func (a *authority) client(t testing.TB, name string) tls.Certificate {
	t.Helper()
	return a.issue(t, func(c *x509.Certificate) {
		if !strings.HasPrefix(name, spiffeScheme) {
			c.DNSNames = []string{name}
			return
		}
		c.URIs = []*url.URL{mustURL(t, name)}
	})
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// server issues the certificate of a broker on loopback.
func (a *authority) server(t testing.TB) tls.Certificate {
	t.Helper()
	return a.issue(t, func(c *x509.Certificate) {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		c.DNSNames = []string{"localhost"}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// believing makes authorities of a file with these.
func believing(t testing.TB, all ...*authority) *Authorities {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clients.pem")
	writeAuthorities(t, path, all...)
	a, err := LoadAuthorities(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func writeAuthorities(t testing.TB, path string, all ...*authority) {
	t.Helper()
	var text strings.Builder
	for _, a := range all {
		text.WriteString("# an authority\n" + a.pem)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBrokenAuthoritiesAreNamedAndTheOldOnesStay(t *testing.T) {
	ca := newAuthority(t, "one")
	good := believing(t, ca)
	before := good.pool.Load()
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "holds no certificate in PEM form"},
		{"no PEM", "hello", "holds no certificate in PEM form"},
		{"a key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "block 1 is no certificate"},
		{"broken DER", ca.pem + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "certificate 2: "},
		{"half of the second", ca.pem + ca.pem[:len(ca.pem)/2], "certificate 2 is broken"},
	} {
		if err := os.WriteFile(good.path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := good.Reload(); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "client-ca: ") || !strings.Contains(err.Error(), "clients.pem") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if a, err := LoadAuthorities(good.path); a != nil || err == nil {
			t.Errorf("%s: loaded", tt.name)
		}
	}
	if err := os.Remove(good.path); err != nil {
		t.Fatal(err)
	}
	if err := good.Reload(); err == nil || good.pool.Load() != before {
		t.Errorf("a file that is gone: %v", err)
	}
	writeAuthorities(t, good.path, ca)
	if err := good.Reload(); err != nil || good.pool.Load() != before {
		t.Errorf("the same again gives every connection another look: %v", err)
	}
}
