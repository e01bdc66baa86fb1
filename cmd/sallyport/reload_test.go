package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// Fifty reloads a second under a load of several hundred calls: every call succeeds, and has one policy from its first attempt to
// its last.
func TestReloadUnderLoadDropsAndMixesNothing(t *testing.T) {
	const reloads, callers = 100, 8
	s := testSettings(t)
	s.Policies = filepath.Join(t.TempDir(), "policies.yaml")
	replaceFile(t, s.Policies, marked("1"))
	n := startTestNode(t, s)
	url, c := echo(t), dialNode(t, n)
	var calls, used sync.Map
	var made atomic.Int64
	over := make(chan struct{})
	var load sync.WaitGroup
	for i := range callers {
		load.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-over:
					return
				default:
				}
				id := fmt.Sprintf("/%d-%d", i, k)
				resp, err := callFor(t, c, url+id)
				if err != nil {
					calls.Store(id, err.Error())
					return
				}
				made.Add(1)
				revision := strings.TrimPrefix(resp.GetPolicy(), "policies/all@")
				used.Store(revision, true)
				if got := string(resp.GetResponse().GetBody()); resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || got != revision+","+revision {
					calls.Store(id, fmt.Sprintf("%s, revision %s, marks %q: %s", resp.GetOutcome(), revision, got, resp.GetDetail()))
				}
			}
		})
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for i := 2; i <= reloads; i++ {
		<-tick.C
		replaceFile(t, s.Policies, marked(fmt.Sprint(i)))
		reread(t, n)
	}
	took := time.Since(begin)
	close(over)
	load.Wait()
	calls.Range(func(id, problem any) bool {
		t.Errorf("%s: %s", id, problem)
		return true
	})
	revisions := 0
	used.Range(func(any, any) bool { revisions++; return true })
	t.Logf("%d calls in %v, %d revisions in %d replies", made.Load(), took, revisions, made.Load())
	if revisions < reloads/2 || made.Load() < reloads {
		t.Errorf("%d revisions ruled %d calls: the load met too few of %d reloads", revisions, made.Load(), reloads)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBrokenFileIsRefusedWithItsLineAndTheOldOneStays(t *testing.T) {
	s := testSettings(t)
	s.Policies = filepath.Join(t.TempDir(), "policies.yaml")
	replaceFile(t, s.Policies, marked("1"))
	n, log := logOf(t, s)
	url, c := echo(t), dialNode(t, n)
	policyOf := func(path string) string {
		t.Helper()
		resp, err := callFor(t, c, url+path)
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetPolicy()
	}
	replaceFile(t, s.Policies, "policies:\n  - name: policies/all\n    retry: { max_attempts: 0 }\n")
	reread(t, n)
	if got := policyOf("/a"); got != "policies/all@1" {
		t.Errorf("after a broken file: %s", got)
	}
	replaceFile(t, s.Policies, marked("1")+"# the same, with a remark\n")
	reread(t, n)
	if got := policyOf("/b"); got != "policies/all@1" {
		t.Errorf("after a file that says the same: %s", got)
	}
	replaceFile(t, s.Policies, "policies: []\n")
	reread(t, n)
	if got := policyOf("/c"); got != "policies/default@0" {
		t.Errorf("after an empty file: %s", got)
	}
	replaceFile(t, s.Policies, marked("2"))
	reread(t, n)
	if got := policyOf("/d"); got != "policies/all@2" {
		t.Errorf("a policy that came back with another content: %s", got)
	}
	if err := os.Remove(s.Policies); err != nil {
		t.Fatal(err)
	}
	reread(t, n)
	if got := policyOf("/e"); got != "policies/all@2" {
		t.Errorf("after the file was lost: %s", got)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
	for _, line := range []string{
		`level=ERROR msg="reload refused; what was in force stays" what=policies error="` + s.Policies + `:3:28: policies[0].retry.max_attempts: must be greater than 0 and less than or equal to 1000"`,
		`msg="policies and secrets are unchanged"`,
		`what="policies and secrets" policies=2 changed="policies/all@2 policies/other@1" removed="" secrets_changed=false`,
		`removed="policies/all policies/other"`,
	} {
		if !strings.Contains(log(), line) {
			t.Errorf("no %s in\n%s", line, log())
		}
	}
}

// A policy and the secret it needs may come in any order, and leave in any.
func TestPoliciesAndSecretsGoIntoForceTogether(t *testing.T) {
	dir := t.TempDir()
	s := testSettings(t)
	s.Policies, s.Secrets = filepath.Join(dir, "policies.yaml"), filepath.Join(dir, "secrets")
	if err := os.Mkdir(s.Secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	replaceFile(t, s.Policies, "policies: []\n")
	n, log := logOf(t, s)
	url, c := echo(t), dialNode(t, n)
	ids := 0
	markOf := func() string {
		t.Helper()
		ids++
		resp, err := callFor(t, c, fmt.Sprintf("%s/%d", url, ids))
		if err != nil {
			t.Fatal(err)
		}
		return string(resp.GetResponse().GetBody())
	}
	expect := func(step, want string) {
		t.Helper()
		if got := markOf(); got != want {
			t.Errorf("%s: marks %q, want %q", step, got, want)
		}
	}
	key := filepath.Join(s.Secrets, "key")
	needs := "policies:\n  - name: policies/needs\n    credentials: [{ header: X-Mark, secret: key, hosts: [127.0.0.1] }]\n"
	expect("without", "")
	replaceFile(t, s.Policies, needs)
	reread(t, n)
	expect("a policy whose secret is not there is refused", "")
	replaceFile(t, key, "k1\n")
	reread(t, n)
	expect("both are there", "k1,k1")
	replaceFile(t, key, "k2\n")
	reread(t, n)
	expect("another secret", "k2,k2")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	reread(t, n)
	expect("a secret that is needed stays", "k2,k2")
	replaceFile(t, s.Policies, "policies: []\n")
	reread(t, n)
	expect("neither is there", "")
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
	for _, line := range []string{
		`what=policies error="` + s.Policies + `:3:45: policies[0].credentials[0].secret: secret \"key\" is no file`,
		`what=secrets error="` + s.Policies + `:3:45: policies[0].credentials[0].secret: secret \"key\" is no file`,
		"secrets_changed=true",
	} {
		if !strings.Contains(log(), line) {
			t.Errorf("no %s in\n%s", line, log())
		}
	}
	if strings.Contains(log(), "k1") || strings.Contains(log(), "k2") {
		t.Error("a secret stands in the log")
	}
}

func TestPolicyThatNarrowsClosesItsConnections(t *testing.T) {
	s := testSettings(t)
	s.Dev, s.Policies = false, filepath.Join(t.TempDir(), "policies.yaml")
	const open = "policies:\n  - name: policies/open\n    egress: { allow_cidrs: [127.0.0.0/8], any_port: true }\n"
	replaceFile(t, s.Policies, open)
	n := startTestNode(t, s)
	accepted, gone := make(chan struct{}, 4), make(chan struct{}, 4)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				accepted <- struct{}{}
			case http.StateClosed:
				gone <- struct{}{}
			}
		},
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	c := dialNode(t, n)
	call := func() pb.Outcome {
		t.Helper()
		resp, err := callFor(t, c, "http://"+l.Addr().String()+"/")
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetOutcome()
	}
	if got := call(); got != pb.Outcome_OUTCOME_SUCCESS {
		t.Fatal(got)
	}
	<-accepted
	select {
	case <-gone:
		t.Fatal("the connection was not kept")
	default:
	}
	replaceFile(t, s.Policies, open+"  - name: policies/closed\n    match: { ports: ["+fmt.Sprint(l.Addr().(*net.TCPAddr).Port)+"] }\n    egress: { deny_cidrs: [127.0.0.0/8] }\n")
	reread(t, n)
	late := time.NewTimer(30 * time.Second) // a third of the idle time
	defer late.Stop()
	select {
	case <-gone:
	case <-late.C:
		t.Error("the connection is still open")
	}
	if got := call(); got != pb.Outcome_OUTCOME_DENIED {
		t.Errorf("after the narrowing: %s", got)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
	_ = server.Close()
	<-served
}

func tokensOf(token string) string {
	return fmt.Sprintf("tokens:\n  - identity: billing\n    sha256: %x\n    roles: [caller]\n", sha256.Sum256([]byte(token)))
}

func TestTokensAndCertificateAreReloaded(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	s := testSettings(t)
	s.TLSCert, s.TLSKey = certificate(t, dir)
	s.Tokens = filepath.Join(dir, "tokens.yaml")
	replaceFile(t, s.Tokens, tokensOf("old"))
	n, log := logOf(t, s)
	authority := func(path string) *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(readFile(t, path)))
		return pool
	}
	// Every client has a connection of its own, so that it sees the certificate of now.
	call := func(ca *x509.CertPool, token string) client.Refusal {
		t.Helper()
		c, err := client.Dial(address(n.grpc), client.Config{Token: token, TLS: &tls.Config{RootCAs: ca, MinVersion: tls.VersionTLS12}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err = callForDraining(t, c); err != nil {
			return client.Explain(err)
		}
		return client.Refusal{}
	}
	first := authority(s.TLSCert)
	if r := call(first, "old"); r.Code != codes.OK {
		t.Fatal(r)
	}
	newCert, newKey := certificate(t, other)
	second := authority(newCert)
	replaceFile(t, s.Tokens, tokensOf("new"))
	replaceFile(t, s.TLSCert, readFile(t, newCert))
	reread(t, n) // the key is still the old one: no pair
	if r := call(first, "new"); r.Code != codes.OK {
		t.Errorf("a new token under the old certificate: %v", r)
	}
	if r := call(first, "old"); r.Code != codes.Unauthenticated {
		t.Errorf("the old token: %v", r)
	}
	replaceFile(t, s.TLSKey, readFile(t, newKey))
	replaceFile(t, s.Tokens, "tokens: []\n")
	reread(t, n)
	if r := call(second, "new"); r.Code != codes.OK {
		t.Errorf("the new certificate, and a token file that was refused: %v", r)
	}
	if r := call(first, "new"); r.Code != codes.Unavailable {
		t.Errorf("the old certificate is still shown: %v", r)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
	for _, line := range []string{"what=certificate error=", "what=tokens error=", `msg=reloaded what=tokens`, "msg=reloaded what=certificate not_after="} {
		if !strings.Contains(log(), line) {
			t.Errorf("no %s in\n%s", line, log())
		}
	}
}

// Nobody has to tell the broker: it looks by itself, and follows the links of a mounted directory.
func TestChangeIsNoticedByItself(t *testing.T) {
	dir := t.TempDir()
	s := testSettings(t)
	s.Policies = filepath.Join(dir, "mounted", "policies.yaml")
	for version := 1; version <= 2; version++ {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint(version)), 0o700); err != nil {
			t.Fatal(err)
		}
		replaceFile(t, filepath.Join(dir, fmt.Sprint(version), "policies.yaml"), marked(fmt.Sprint(version)))
	}
	if err := os.Symlink(filepath.Join(dir, "1"), filepath.Join(dir, "mounted")); err != nil {
		t.Fatal(err)
	}
	n := startTestNode(t, s)
	url, c := echo(t), dialNode(t, n)
	if err := os.Symlink(filepath.Join(dir, "2"), filepath.Join(dir, "next")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "mounted")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		resp, err := callFor(t, c, fmt.Sprintf("%s/%d", url, i))
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetPolicy() == "policies/all@2" {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("still %s", resp.GetPolicy())
		}
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A file that is being written may be sound by half: it is read when it has been still from one look to the next.
func TestFileIsReadWhenItIsStill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	replaceFile(t, path, "one")
	reads := 0
	s := newSource(path, "")
	s.reload = func() { reads++ }
	look := func(what string, want int) {
		t.Helper()
		s.againIfChanged()
		if reads != want {
			t.Errorf("%s: read %d times, want %d", what, reads, want)
		}
	}
	look("unchanged", 0)
	replaceFile(t, path, "two and")
	look("just changed", 0)
	replaceFile(t, path, "two and a half")
	look("changing", 0)
	look("still", 1)
	look("still as it was read", 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	look("gone", 1)
	look("gone for good", 2)
	look("gone as it was read", 2)
}
