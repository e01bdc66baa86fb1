package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// received makes one attempt and gives the head that the upstream read, line by line.
func received(t *testing.T, tr *Transport, c *call.Call, p *policy.Effective, a call.Attempt) []string {
	t.Helper()
	heads := make(chan string, 1)
	u := newUpstream(t, func(_ int, conn net.Conn) {
		r := bufio.NewReader(conn)
		head := ""
		for {
			line, err := r.ReadString('\n')
			if err != nil || line == "\r\n" {
				break
			}
			head += line
		}
		heads <- head
		_, _ = io.WriteString(conn, okAnswer)
	})
	c.Target.Port = u.port()
	want(t, tr.Send(t.Context(), c, p, a), call.EvidenceAnswered, call.FailureNone)
	return strings.Split(strings.TrimSuffix(<-heads, "\r\n"), "\r\n")
}

func has(head []string, line string) bool { return slices.Contains(head, line) }

func TestRequestOnTheWire(t *testing.T) {
	tr := newTransport(t, nil)
	rows := map[string]struct {
		method, body string
		change       func(*call.Call, *policy.Effective, *call.Attempt)
		want         []string
		never        []string
	}{
		"plain":                      {"GET", "", nil, []string{"GET /a?b=c HTTP/1.1", "Host: 127.0.0.1:80", "User-Agent: sallyport/test"}, []string{"Content-Length", "Transfer-Encoding"}},
		"empty POST has a length":    {"POST", "", nil, []string{"Content-Length: 0"}, []string{"Transfer-Encoding"}},
		"empty DELETE has none":      {"DELETE", "", nil, nil, []string{"Content-Length"}},
		"a GET may have a body":      {"GET", "xyz", nil, []string{"Content-Length: 3"}, nil},
		"an unknown method, as such": {"PURGE", "", nil, []string{"PURGE /a?b=c HTTP/1.1"}, []string{"Content-Length"}},
		"the caller's fields in canonical form and order": {"GET", "", func(c *call.Call, _ *policy.Effective, _ *call.Attempt) {
			c.Headers = []call.Header{{Name: "x-a", Value: "1"}, {Name: "X-A", Value: "2"}, {Name: "user-agent", Value: "mine/1"}}
		}, []string{"X-A: 1", "X-A: 2", "User-Agent: mine/1"}, []string{"sallyport/test"}},
		"set wins in any spelling, remove removes": {"GET", "", func(c *call.Call, p *policy.Effective, _ *call.Attempt) {
			c.Headers = []call.Header{{Name: "x_api-version", Value: "9"}, {Name: "X-Debug", Value: "1"}, {Name: "X_Debug", Value: "2"}}
			p.Headers.Set = []call.Header{{Name: "X-Api-Version", Value: "7"}}
			p.Headers.Remove = []string{"x-debug"}
		}, []string{"X-Api-Version: 7"}, []string{": 9", "ebug"}},
		"a policy may name the program": {"GET", "", func(_ *call.Call, p *policy.Effective, _ *call.Attempt) {
			p.Headers.Set = []call.Header{{Name: "User-Agent", Value: "theirs/1"}}
		}, []string{"User-Agent: theirs/1"}, []string{"sallyport/test"}},
		"the contract's key": {"POST", "x", func(c *call.Call, p *policy.Effective, _ *call.Attempt) {
			p.Idempotency.Enabled, c.OperationID = true, "order-1"
			c.Headers = []call.Header{{Name: "idempotency_key", Value: "order-2"}}
		}, []string{"Idempotency-Key: order-1"}, []string{"order-2"}},
		"without a contract the caller's header is an ordinary one": {"POST", "x", func(c *call.Call, _ *policy.Effective, _ *call.Attempt) {
			c.OperationID = "order-1"
			c.Headers = []call.Header{{Name: "Idempotency-Key", Value: "order-2"}}
		}, []string{"Idempotency-Key: order-2"}, []string{"order-1"}},
		"the remaining time": {"GET", "", func(c *call.Call, p *policy.Effective, a *call.Attempt) {
			p.Deadline.Header, a.Remaining = "X-Remaining-Ms", -time.Second // its own share of the time is taken off, never below 0
			c.Headers = []call.Header{{Name: "X-Remaining-Ms", Value: "9"}}
		}, []string{"X-Remaining-Ms: 0"}, []string{": 9"}},
		"the attempt's own trace": {"GET", "", func(_ *call.Call, _ *policy.Effective, a *call.Attempt) {
			a.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		}, []string{"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, nil},
		"bytes outside ASCII": {"GET", "", func(c *call.Call, _ *policy.Effective, _ *call.Attempt) {
			c.Headers = []call.Header{{Name: "X-Name", Value: "a\xff"}}
		}, []string{"X-Name: a\xff"}, nil},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			c, p, a := newCall(t, row.method, "http://127.0.0.1:80/a?b=c", row.body), loopback(t), attempt()
			if row.change != nil {
				row.change(c, p, &a)
			}
			head := received(t, tr, c, p, a)
			for _, line := range row.want {
				if !has(head, line) {
					t.Errorf("no line %q in %q", line, head)
				}
			}
			for _, text := range row.never {
				if strings.Contains(strings.Join(head, "\n"), text) {
					t.Errorf("%q stands in %q", text, head)
				}
			}
		})
	}
}

// secrets is a directory with one secret.
func secrets(t *testing.T, name, content string) *Secrets {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadSecrets(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCredentialIsAddedForItsHostsOnlyAndWinsOverTheCaller(t *testing.T) {
	tr, held := newTransport(t, nil), secrets(t, "api", "s3cr3t\n")
	for hosts, want := range map[string]string{"127.0.0.1": "Authorization: Bearer s3cr3t", "other.example.com": "Authorization: mine"} {
		c, p := newCall(t, "GET", "http://127.0.0.1:80/", ""), loopback(t)
		c.Headers = []call.Header{{Name: "Authorization", Value: "mine"}}
		p.Headers.Set, p.Secrets = nil, held
		p.Credentials = []policy.Credential{{Header: "Authorization", Prefix: "Bearer ", Secret: "api", Hosts: []string{hosts}}}
		head := received(t, tr, c, p, attempt())
		if !has(head, want) || strings.Count(strings.Join(head, "\n"), "Authorization") != 1 {
			t.Errorf("%s: %q", hosts, head)
		}
	}
}

func TestCredentialIsNotSentInClearOverANetwork(t *testing.T) {
	p := loopback(t)
	p.Secrets = secrets(t, "api", "s3cr3t")
	p.Credentials = []policy.Credential{{Header: "Authorization", Secret: "api", Hosts: []string{"api.example.com"}}}
	far := newRawConn(farConn{})
	c := newCall(t, "GET", "http://api.example.com/", "")
	if r := withheld(c, p, far); r == nil || r.Failure != call.FailureDenied || r.Evidence != call.EvidenceNotSent {
		t.Errorf("%v", r)
	}
	c.Target.Scheme = "https"
	if r := withheld(c, p, far); r != nil {
		t.Errorf("https: %v", r)
	}
	c = newCall(t, "GET", "http://free.example.com/", "")
	if r := withheld(c, p, far); r != nil {
		t.Errorf("a host without a credential: %v", r)
	}
}

// farConn looks like a connection to another machine.
type farConn struct{ net.Conn }

func (farConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:80"))
}

func TestAnswersLoseWhatSpeaksOfTheConnection(t *testing.T) {
	u := newUpstream(t, always("HTTP/1.1 200 OK\r\nConnection: X-Internal\r\nX-Internal: 1\r\nKeep-Alive: timeout=5\r\n"+
		"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Bytes: a\xffb\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n"))
	r := newTransport(t, nil).Send(t.Context(), newCall(t, "GET", u.url("/"), ""), loopback(t), attempt())
	want(t, r, call.EvidenceAnswered, call.FailureNone)
	got := http.Header{}
	for _, h := range r.Response.Headers {
		got[h.Name] = append(got[h.Name], h.Value)
	}
	if len(got) != 2 || len(got["Set-Cookie"]) != 2 || got["X-Bytes"][0] != "a\xffb" {
		t.Errorf("headers %q", r.Response.Headers)
	}
	if tr := r.Response.Trailers; len(tr) != 1 || tr[0] != (call.Header{Name: "X-Sum", Value: "7"}) {
		t.Errorf("trailers %q", tr)
	}
}

// Where two of the broker's own fields claim one name, exactly one is written: the key before a credential before the time.
func TestOneNameIsWrittenOnce(t *testing.T) {
	tr, held := newTransport(t, nil), secrets(t, "api", "s3cr3t")
	credential := policy.Credential{Header: "X_Left", Secret: "api", Hosts: []string{"127.0.0.1"}}
	for name, row := range map[string]struct {
		change func(*policy.Effective)
		line   string
	}{
		"key": {func(p *policy.Effective) {
			p.Idempotency.Enabled, p.Idempotency.Header = true, "X-Left"
			p.Credentials, p.Deadline.Header = []policy.Credential{credential}, "X-Left"
		}, "X-Left: order-1"},
		"credential": {func(p *policy.Effective) {
			p.Credentials, p.Deadline.Header = []policy.Credential{credential, credential}, "X-Left"
			p.Headers.Set = []call.Header{{Name: "X-Left", Value: "set"}}
		}, "X_Left: s3cr3t"},
	} {
		c, p := newCall(t, "POST", "http://127.0.0.1:80/", "x"), loopback(t)
		c.OperationID, p.Secrets = "order-1", held
		row.change(p)
		head := strings.Join(received(t, tr, c, p, attempt()), "\n")
		if !strings.Contains(head, row.line) || strings.Count(head, "Left") != 1 {
			t.Errorf("%s: %q", name, head)
		}
	}
}

func TestEmptyAndPaddedSecretsAreRefused(t *testing.T) {
	for _, content := range []string{"", "\n", " key", "key ", "key\t\n"} {
		rules := []policy.Rule{{Name: "policies/a", Settings: policy.Settings{
			Credentials: []policy.Credential{{Header: "X-Key", Secret: "api", Hosts: []string{"api.example.com"}}},
		}}}
		if problems := policy.CheckSecrets(rules, secrets(t, "api", content)); len(problems) == 0 {
			t.Errorf("%q was taken", content)
		}
	}
}

func TestRemainingTimeIsThatOfTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan string, 1)
		n := &pipes{serve: func(c net.Conn) {
			req, _, _ := request(bufio.NewReader(c))
			told <- req.Header.Get("X-Remaining-Ms")
			_, _ = io.WriteString(c, okAnswer)
			_ = c.Close()
		}}
		slow := func(ctx context.Context, network string, to netip.AddrPort, permit func(netip.AddrPort) error) (net.Conn, error) {
			time.Sleep(700 * time.Millisecond)
			return n.dial(ctx, network, to, permit)
		}
		tr := New(Config{Guard: guard.New(guard.Config{}), UserAgent: "sallyport/test", Dial: slow})
		defer tr.Close()
		p, a := loopback(t), attempt()
		p.Deadline.Header, a.Remaining = "X-Remaining-Ms", time.Second
		want(t, tr.Send(t.Context(), newCall(t, "GET", "http://127.0.0.1:8080/", ""), p, a), call.EvidenceAnswered, call.FailureNone)
		if got := <-told; got != "300" {
			t.Errorf("told %s ms, want the 300 that were left", got)
		}
	})
}
