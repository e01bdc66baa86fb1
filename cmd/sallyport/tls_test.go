package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a self-signed certificate for 127.0.0.1 and its key.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestCallOverTLSNeedsAuthorityAndToken(t *testing.T) {
	dir := t.TempDir()
	s := testSettings(t)
	s.TLSCert, s.TLSKey = certificate(t, dir)
	s.Tokens = filepath.Join(dir, "tokens.yaml")
	tokens := fmt.Sprintf("tokens:\n  - identity: billing\n    sha256: %x\n    roles: [caller]\n", sha256.Sum256([]byte("t0ken")))
	if err := os.WriteFile(s.Tokens, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 200, body: "hello"}}})
	n := startTestNode(t, s)
	for _, tt := range []struct {
		name, ca, token string
		code            int
		says            string
	}{
		{"both right", s.TLSCert, "t0ken", exitOK, "SUCCESS"},
		{"wrong token", s.TLSCert, "t1ken", exitGRPC, "UNAUTHENTICATED UNAUTHENTICATED: "},
		{"no token", s.TLSCert, "", exitGRPC, "; nothing was sent"},
		{"cleartext", "", "t0ken", exitGRPC, "UNAVAILABLE: "},
		{"an authority that did not sign it", systemCA, "t0ken", exitGRPC, "; unknown whether it was sent"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("SALLYPORT_TOKEN", tt.token)
			var out strings.Builder
			args := []string{"call", "GET", upstream.url + "/", "--broker", address(n.grpc), "--ca", tt.ca, "--deadline", "10s"}
			if code := run(args, strings.NewReader(""), &out, &out); code != tt.code || !strings.Contains(out.String(), tt.says) {
				t.Errorf("exit %d, want %d:\n%s", code, tt.code, out.String())
			}
		})
	}
	if requests, _ := upstream.saw("/"); requests != 1 {
		t.Errorf("the upstream saw %d requests", requests)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}
