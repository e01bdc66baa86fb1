package egress

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

func TestHTTP2CarriesAttemptsOnOneConnection(t *testing.T) {
	u := newStreams(t, (*stream).ok, nil)
	tr, p := newTransport(t, nil), u.policy(t)
	for i := range 3 {
		c := newCall(t, "POST", u.url("/a?b=c"), "hello")
		c.Headers = []call.Header{{Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}}
		r := tr.Send(t.Context(), c, p, attempt())
		want(t, r, call.EvidenceAnswered, call.FailureNone)
		if r.Protocol != "HTTP/2" || r.Response.Protocol != "HTTP/2" || r.Reused != (i > 0) || string(r.Response.Body) != "ok" {
			t.Errorf("attempt %d: %s, reused %t, %q", i, r.Protocol, r.Reused, r.Response.Body)
		}
		if r.RemoteAddress != u.listener.Addr().String() {
			t.Errorf("remote address %s", r.RemoteAddress)
		}
	}
	if n := u.connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
	for _, r := range u.seen() {
		host := u.listener.Addr().String()
		if r.method != "POST" || r.body != "hello" || r.fields[":path"][0] != "/a?b=c" || r.fields[":authority"][0] != host || r.fields[":scheme"][0] != "https" ||
			!slices.Equal(r.fields["x-a"], []string{"1", "2"}) || !slices.Equal(r.fields["user-agent"], []string{"sallyport/test"}) || !slices.Equal(r.fields["content-length"], []string{"5"}) {
			t.Errorf("%+v", r)
		}
	}
}

// TestHTTP2RequestHasTheBrokersFields as that of HTTP/1.1 has them.
func TestHTTP2RequestHasTheBrokersFields(t *testing.T) {
	u := newStreams(t, (*stream).ok, nil)
	tr, p := newTransport(t, nil), u.policy(t)
	p.Secrets = secrets(t, "api", "s3cr3t\n")
	p.Credentials = []policy.Credential{{Header: "X-Api-Key", Prefix: "k ", Secret: "api", Hosts: []string{"127.0.0.1"}}}
	p.Headers.Set, p.Headers.Remove = []call.Header{{Name: "X-Set", Value: "7"}}, []string{"x-debug"}
	p.Idempotency.Enabled, p.Deadline.Header = true, "X-Remaining-Ms"
	c := newCall(t, "POST", u.url("/"), "")
	c.Caller, c.OperationID = "spiffe://example.com/till", "order-1"
	c.Headers = []call.Header{{Name: "x_api_key", Value: "mine"}, {Name: "x-set", Value: "9"}, {Name: "X-Debug", Value: "1"}, {Name: "X-Bytes", Value: "a\xff"}}
	a := attempt()
	a.TraceParent, a.Remaining = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", -time.Second
	want(t, tr.Send(t.Context(), c, p, a), call.EvidenceAnswered, call.FailureNone)
	got := u.seen()[0].fields
	for name, value := range map[string]string{
		"x-api-key": "k s3cr3t", "x-set": "7", "idempotency-key": "685a840ce5891ca9fb2ad68505824c8d9051158332da81bb16d84f27a36cc62a", "x-remaining-ms": "0", "traceparent": a.TraceParent, "x-bytes": "a\xff",
		"content-length": "0",
	} {
		if !slices.Equal(got[name], []string{value}) {
			t.Errorf("%s: %q, want %q", name, got[name], value)
		}
	}
	for _, name := range []string{"x_api_key", "x-debug", "host", "connection", "transfer-encoding"} {
		if _, there := got[name]; there {
			t.Errorf("%s was sent", name)
		}
	}
}

func TestHTTP2AnswersLoseWhatSpeaksOfTheConnection(t *testing.T) {
	u := newStreams(t, func(st *stream) {
		st.head(false, ":status", "200", "connection", "x-internal", "x-internal", "1", "keep-alive", "timeout=5", "transfer-encoding", "chunked",
			"set-cookie", "a=1", "set-cookie", "b=2")
		st.data(false, "ok")
		st.head(true, "x-sum", "7", "x-internal", "2")
	}, nil)
	r := newTransport(t, nil).Send(t.Context(), newCall(t, "GET", u.url("/"), ""), u.policy(t), attempt())
	want(t, r, call.EvidenceAnswered, call.FailureNone)
	if !slices.Equal(r.Response.Headers, []call.Header{{Name: "Set-Cookie", Value: "a=1"}, {Name: "Set-Cookie", Value: "b=2"}}) {
		t.Errorf("headers %q", r.Response.Headers)
	}
	if !slices.Equal(r.Response.Trailers, []call.Header{{Name: "X-Sum", Value: "7"}}) {
		t.Errorf("trailers %q", r.Response.Trailers)
	}
}

// TestWhatHTTP2Proves goes through every way an attempt can end, with a POST that nobody may repeat: each costs exactly one send.
func TestWhatHTTP2Proves(t *testing.T) {
	hangUp := func(st *stream) { _ = st.c.Close() }
	for _, row := range []struct {
		name     string
		serve    func(*stream)
		trust    bool
		evidence call.Evidence
		failure  call.Failure
		detail   string
		status   int
	}{
		{
			"REFUSED_STREAM", func(st *stream) { st.rst(http2.ErrCodeRefusedStream) }, false, call.EvidenceRefused, call.FailureConnectionLost,
			"the server refused the stream: REFUSED_STREAM", 0,
		},
		{
			"GOAWAY below, not trusted", func(st *stream) { st.goAway(0, http2.ErrCodeNo) }, false, call.EvidenceSentNoResponse, call.FailureConnectionLost,
			"the server sent GOAWAY (NO_ERROR), last stream 0, which leaves this one out: stream 1", 0,
		},
		{
			"GOAWAY below, trusted", func(st *stream) { st.goAway(0, http2.ErrCodeEnhanceYourCalm) }, true, call.EvidenceRefused, call.FailureConnectionLost,
			"the server sent GOAWAY (ENHANCE_YOUR_CALM), last stream 0, which leaves this one out: stream 1", 0,
		},
		{
			"GOAWAY that covers it, trusted", func(st *stream) { st.goAway(1, http2.ErrCodeNo); hangUp(st) }, true, call.EvidenceSentNoResponse, call.FailureConnectionLost,
			"the connection was lost before the answer was complete; before that the server sent GOAWAY (NO_ERROR), last stream 1", 0,
		},
		{
			"GOAWAY below after a head, trusted", func(st *stream) {
				st.head(false, ":status", "200")
				st.goAway(0, http2.ErrCodeNo)
				hangUp(st)
			}, true, call.EvidencePartialResponse, call.FailureConnectionLost,
			"the connection was lost before the answer was complete; before that the server sent GOAWAY (NO_ERROR), last stream 0", 200,
		},
		{
			"PROTOCOL_ERROR of the peer", func(st *stream) { st.rst(http2.ErrCodeProtocol) }, true, call.EvidenceSentNoResponse, call.FailureConnectionLost,
			"the server reset the stream: PROTOCOL_ERROR", 0,
		},
		{"CANCEL", func(st *stream) { st.rst(http2.ErrCodeCancel) }, true, call.EvidenceSentNoResponse, call.FailureConnectionLost, "the server reset the stream: CANCEL", 0},
		{"a reset in the body", func(st *stream) {
			st.head(false, ":status", "200")
			st.data(false, "x")
			st.rst(http2.ErrCodeInternal)
		}, true, call.EvidencePartialResponse, call.FailureConnectionLost, "the server reset the stream: INTERNAL_ERROR", 200},
		{"the end", hangUp, true, call.EvidenceSentNoResponse, call.FailureConnectionLost, "the connection was lost before the answer was complete", 0},
		{"a shorter body", func(st *stream) {
			st.head(false, ":status", "200", "content-length", "9")
			st.data(true, "x")
		}, true, call.EvidencePartialResponse, call.FailureConnectionLost, "the answer ended before it was complete: its body is shorter than declared", 200},
		{"a longer body", func(st *stream) {
			st.head(false, ":status", "200", "content-length", "1")
			st.data(true, "xy")
		}, true, call.EvidencePartialResponse, call.FailureProtocol, "the answer is malformed: a body longer than declared", 200},
		{"frames that are none", func(st *stream) {
			st.write(func() error { return st.fr.WriteRawFrame(http2.FramePing, 0, 0, []byte("x")) })
		}, true, call.EvidenceSentNoResponse, call.FailureProtocol, "the answer is malformed: frames that break the protocol (FRAME_SIZE_ERROR)", 0},
		{
			"101", func(st *stream) { st.head(false, ":status", "101") }, true, call.EvidencePartialResponse, call.FailureProtocol,
			"the answer is malformed: 101 to a request that asked for no upgrade", 0,
		},
		{
			"too large a head", func(st *stream) { st.head(true, ":status", "200", "a", strings.Repeat("x", 70_000)) }, true, call.EvidencePartialResponse, call.FailureResponseTooLarge,
			"the answer is too large: a head over the limit", 0,
		},
		{
			"too large a value", func(st *stream) { st.head(true, ":status", "200", "a", strings.Repeat("x", 4<<20)) }, true, call.EvidencePartialResponse, call.FailureResponseTooLarge,
			"the answer is too large: a header block without end", 0,
		},
		{
			"too large, as declared", func(st *stream) { st.head(false, ":status", "200", "content-length", "99999999") }, true, call.EvidencePartialResponse, call.FailureResponseTooLarge,
			"the answer is too large: declared length over the limit", 200,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			u := newStreams(t, func(st *stream) { <-st.done; row.serve(st) }, nil)
			p := u.policy(t)
			p.Retry.TrustGoaway = row.trust
			r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", u.url("/pay"), "charge"), p, attempt())
			want(t, r, row.evidence, row.failure)
			if r.Detail != row.detail || r.Status != row.status || r.Response != nil || r.Terminal || r.TimedOut {
				t.Errorf("%+v", r)
			}
			if seen := u.seen(); len(seen) != 1 || seen[0].body != "charge" || u.connections() != 1 {
				t.Errorf("%d requests on %d connections", len(seen), u.connections())
			}
		})
	}
}

func TestHTTP2AttemptEndsAtItsTime(t *testing.T) {
	serve := func(st *stream) {
		switch <-st.done; st.path() {
		case "/body":
			st.head(false, ":status", "200")
		case "/fast":
			st.ok()
		}
	}
	for _, row := range []struct {
		name, path string
		change     func(*policy.Effective)
		cancel     time.Duration
		took       time.Duration
		evidence   call.Evidence
		failure    call.Failure
		timedOut   bool
	}{
		{"its own", "/head", nil, 0, 5 * time.Second, call.EvidenceSentNoResponse, call.FailureAttemptTimeout, true},
		{"its own, in the body", "/body", nil, 0, 5 * time.Second, call.EvidencePartialResponse, call.FailureAttemptTimeout, true},
		{
			"that for the head", "/head", func(p *policy.Effective) { p.Attempt.HeaderTimeout = time.Second }, 0, time.Second,
			call.EvidenceSentNoResponse, call.FailureAttemptTimeout, false,
		},
		{
			"that for the head is over", "/body", func(p *policy.Effective) { p.Attempt.HeaderTimeout = time.Second }, 0, 5 * time.Second,
			call.EvidencePartialResponse, call.FailureAttemptTimeout, true,
		},
		{
			"that for a pause", "/body", func(p *policy.Effective) { p.Attempt.IdleBodyTimeout = time.Second }, 0, time.Second,
			call.EvidencePartialResponse, call.FailureAttemptTimeout, false,
		},
		{"the caller's", "/head", nil, time.Second, time.Second, call.EvidenceSentNoResponse, call.FailureCancelled, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			inTrunkBubble(t, serve, func(b *trunkBubble) {
				if row.change != nil {
					row.change(b.p)
				}
			}, func(t *testing.T, b *trunkBubble) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if row.cancel != 0 {
					defer time.AfterFunc(row.cancel, cancel).Stop()
				}
				send := func(path string) call.Result {
					return b.tr.Send(ctx, newCall(t, "POST", "https://127.0.0.1:8443"+path, ""), b.p, attempt())
				}
				want(t, send("/fast"), call.EvidenceAnswered, call.FailureNone)
				begin := time.Now()
				r := send(row.path)
				want(t, r, row.evidence, row.failure)
				if took := time.Since(begin); took != row.took || r.TimedOut != row.timedOut {
					t.Errorf("after %v, timed out %t", took, r.TimedOut)
				}
			})
		})
	}
}

func TestHTTP2EarlyAnswerToAnUploadCounts(t *testing.T) {
	for name, end := range map[string]func(*stream){
		"resets it politely": func(st *stream) { st.rst(http2.ErrCodeNo) },
		"reads on":           func(*stream) {},
		"hangs up":           func(st *stream) { _ = st.c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			u := newStreams(t, func(st *stream) {
				st.head(false, ":status", "413", "content-length", "3")
				st.data(true, "big")
				end(st)
			}, nil)
			tr, p := newTransport(t, nil), u.policy(t)
			for range 10 {
				r := tr.Send(t.Context(), newCall(t, "POST", u.url("/"), strings.Repeat("x", 3<<20)), p, attemptOf(30*time.Second))
				if r.Evidence == call.EvidenceNotSent { // the connection of the time before had just ended
					continue
				}
				want(t, r, call.EvidenceAnswered, call.FailureNone)
				if r.Status != 413 || string(r.Response.Body) != "big" {
					t.Errorf("%d %q", r.Status, r.Response.Body)
				}
			}
		})
	}
}

func TestHTTP2LargeBodiesBothWays(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 3<<20/16)
	u := newStreams(t, func(st *stream) {
		<-st.done
		st.head(false, ":status", "200")
		for rest := large; rest != ""; rest = rest[16<<10:] {
			st.data(len(rest) == 16<<10, rest[:16<<10])
		}
	}, nil)
	tr, p := newTransport(t, nil), u.policy(t)
	p.Body.MaxResponseBytes = 3 << 20
	for range 2 {
		r := tr.Send(t.Context(), newCall(t, "PUT", u.url("/"), large), p, attemptOf(30*time.Second))
		want(t, r, call.EvidenceAnswered, call.FailureNone)
		if string(r.Response.Body) != large {
			t.Errorf("%d bytes came back", len(r.Response.Body))
		}
	}
	for _, r := range u.seen() {
		if r.body != large {
			t.Errorf("%d bytes arrived", len(r.body))
		}
	}
}

// TestProtocolIsTheServersChoice of what the policy allows.
func TestProtocolIsTheServersChoice(t *testing.T) {
	both := []policy.Protocol{policy.ProtocolHTTP2, policy.ProtocolHTTP11}
	only := []policy.Protocol{policy.ProtocolHTTP2}
	a := newAuthority(t)
	certificates := []tls.Certificate{a.server(t, nil)}
	for _, row := range []struct {
		name    string
		allowed []policy.Protocol
		offers  []string // of the server
		plain   bool     // http
		want    string   // "": refused
		failure call.Failure
	}{
		{"1.1 alone, of a server that would rather speak 2", []policy.Protocol{policy.ProtocolHTTP11}, []string{"h2", "http/1.1"}, false, "HTTP/1.1", 0},
		{"both, of a server that has 1.1", both, []string{"http/1.1"}, false, "HTTP/1.1", 0},
		{"both, of a server that knows no ALPN", both, nil, false, "HTTP/1.1", 0},
		{"both, http", both, nil, true, "HTTP/1.1", 0},
		{"2 alone, of a server that has 1.1", only, []string{"http/1.1"}, false, "", call.FailureProtocol},
		{"2 alone, of a server that knows no ALPN", only, nil, false, "", call.FailureProtocol},
		{"2 alone, http", only, nil, true, "", call.FailureProtocol},
	} {
		t.Run(row.name, func(t *testing.T) {
			var asked [][]string
			serve := overTLS(&tls.Config{Certificates: certificates, NextProtos: row.offers, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				asked = append(asked, h.SupportedProtos)
				return nil, nil //nolint:nilnil // go on with this one (crypto/tls)
			}}, always(okAnswer))
			if row.plain {
				serve = always(okAnswer)
			}
			u := newUpstream(t, serve)
			url := secure(u, "/")
			if row.plain {
				url = u.url("/")
			}
			p := a.trusting(t)
			p.Attempt.Protocols = row.allowed
			tr := newTransport(t, nil)
			for range 2 {
				r := tr.Send(t.Context(), newCall(t, "POST", url, "x"), p, attempt())
				if row.want != "" {
					want(t, r, call.EvidenceAnswered, call.FailureNone)
					if r.Protocol != row.want {
						t.Errorf("%s, want %s", r.Protocol, row.want)
					}
					continue
				}
				want(t, r, call.EvidenceNotSent, row.failure)
				if !r.Terminal || r.TimedOut || r.Protocol != "" {
					t.Errorf("%+v", r)
				}
			}
			u.stop()
			offered := map[policy.Protocol]string{policy.ProtocolHTTP11: "http/1.1", policy.ProtocolHTTP2: "h2"}
			for _, got := range asked {
				if len(got) != len(row.allowed) || got[0] != offered[row.allowed[0]] {
					t.Errorf("offered %q", got)
				}
			}
			if row.plain && row.want == "" && u.connections() != 0 {
				t.Errorf("%d connections for nothing", u.connections())
			}
			if row.want != "" && u.connections() != 1 {
				t.Errorf("%d connections, want 1", u.connections())
			}
		})
	}
}

// TestHTTP2WithAClientCertificate: the wait for a refusal in TLS 1.3 takes the first byte of the server's settings with it.
func TestHTTP2WithAClientCertificate(t *testing.T) {
	a := newAuthority(t)
	cfg := a.demanding(t)
	cfg.NextProtos = []string{alpnHTTP2}
	u := &streams{authority: a, serve: func(st *stream) {
		timer := time.NewTimer(settleMax) // whatever deadline that wait left would have passed
		defer timer.Stop()
		<-timer.C
		st.ok()
	}}
	u.upstream = newUpstream(t, overTLS(cfg, u.connection))
	allowed := func(p *policy.Effective) *policy.Effective {
		q := *p
		q.Attempt.Protocols = []policy.Protocol{policy.ProtocolHTTP2, policy.ProtocolHTTP11}
		return &q
	}
	tr := newTransport(t, nil)
	held := asPEM(t, "me", a.client(t, "mine", nil))
	with, without := allowed(a.showing(t, "me", held, nil)), allowed(a.showing(t, "", held, nil))
	for range 2 {
		want(t, tr.Send(t.Context(), newCall(t, "POST", u.url("/"), "x"), with, attempt()), call.EvidenceAnswered, call.FailureNone)
	}
	r := tr.Send(t.Context(), newCall(t, "POST", u.url("/"), "x"), without, attempt())
	want(t, r, call.EvidenceNotSent, call.FailureTLS)
}
