package egress

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// files makes a directory of them.
func files(t *testing.T, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// asPEM writes a certificate as an operator has it: NAME.crt and NAME.key.
func asPEM(t *testing.T, name string, c tls.Certificate) map[string]string {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		name + ".crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})),
		name + ".key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
	}
}

func TestSecretIsTheFilesContentWithoutItsLineEnd(t *testing.T) {
	dir := files(t, map[string]string{"a": "fine\r\n", "b": "two\n\n", "c": ""})
	if err := os.Mkdir(filepath.Join(dir, "..data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "linked")); err != nil { // as secrets are mounted
		t.Fatal(err)
	}
	s, err := LoadSecrets(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "fine", "b": "two\n", "c": "", "linked": "fine"} {
		if got, ok := s.Value(name); !ok || got != want {
			t.Errorf("%s: %q, %t, want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"..data", "none"} {
		if _, ok := s.Value(name); ok {
			t.Errorf("%s is a secret", name)
		}
	}
}

func TestUnreadableSecretsAreRefused(t *testing.T) {
	for name, dir := range map[string]string{
		"no directory":       filepath.Join(t.TempDir(), "none"),
		"a secret too large": files(t, map[string]string{"big": strings.Repeat("x", secretMax+1)}),
		"a chain too large":  files(t, map[string]string{"big.crt": strings.Repeat("x", pemMax+1)}),
	} {
		if _, err := LoadSecrets(dir); err == nil || strings.Contains(err.Error(), "xx") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := LoadSecrets(files(t, map[string]string{"long.crt": strings.Repeat("x", secretMax+1)})); err != nil {
		t.Errorf("a chain may be longer than a secret: %v", err)
	}
}

// Files that are no pair keep nobody from starting who does not refer to them.
func TestBrokenPairIsToldWhereItIsUsed(t *testing.T) {
	a := newAuthority(t)
	contents := asPEM(t, "good", a.server(t, nil))
	contents["other.crt"], contents["other.key"] = contents["good.crt"], asPEM(t, "other", a.server(t, nil))["other.key"]
	contents["alone.crt"] = contents["good.crt"]
	contents["text.crt"], contents["text.key"] = "s3cr3t", "s3cr3t"
	s, err := LoadSecrets(files(t, contents))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.ClientCertificate("good"); err != nil || len(c.Certificate) != 1 {
		t.Errorf("good: %v", err)
	}
	for name, says := range map[string]string{"other": "are no pair", "text": "are no pair", "alone": "not both in the directory", "none": "not both in the directory"} {
		if _, err := s.ClientCertificate(name); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingIsSentWithoutItsCredential(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	for name, held := range map[string]policy.Secrets{"no secrets": nil, "not among them": secrets(t, "other", "x")} {
		p := loopback(t)
		p.Secrets = held
		p.Credentials = []policy.Credential{{Header: "Authorization", Secret: "api", Hosts: []string{"127.0.0.1"}}}
		r := newTransport(t, nil).Send(t.Context(), newCall(t, "GET", u.url("/"), ""), p, attempt())
		if r.Evidence != call.EvidenceNotSent || r.Failure != call.FailureDenied {
			t.Errorf("%s: %s, %s", name, r.Evidence, r.Failure)
		}
	}
}
