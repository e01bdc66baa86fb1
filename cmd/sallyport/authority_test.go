package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs the certificates of clients.
type authority struct {
	dir, pem string
	cert     *x509.Certificate
	key      *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert = template
	der, key := a.sign(t, template)
	a.key = key
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert = cert
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

// sign gives a certificate with a new key, which signs an authority's own.
func (a *authority) sign(t *testing.T, template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	by := a.key
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

// client writes a certificate with that SPIFFE id, or DNS name, and its key.
func (a *authority) client(t *testing.T, name string) (cert, key string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if u, err := url.Parse(name); err == nil && u.Scheme != "" {
		template.URIs = []*url.URL{u}
	} else {
		template.DNSNames = []string{name}
	}
	der, private := a.sign(t, template)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	file := strings.NewReplacer("/", "_", ":", "_").Replace(name)
	cert, key = filepath.Join(a.dir, file+".crt"), filepath.Join(a.dir, file+".key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// tls is the client's part of a handshake with a broker of that certificate.
func (a *authority) tls(t *testing.T, broker, name string) *tls.Config {
	t.Helper()
	cert, key := a.client(t, name)
	cfg, err := (&brokerFlags{ca: broker, clientCert: cert, clientKey: key}).tls()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
