package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
)

func TestConnectionIsUsedAgain(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	tr := newTransport(t, nil)
	for i := range 3 {
		r := tr.Send(t.Context(), newCall(t, "POST", u.url("/a"), "x"), loopback(t), attempt())
		want(t, r, call.EvidenceAnswered, call.FailureNone)
		if r.Reused != (i > 0) || r.Status != 200 || string(r.Response.Body) != "ok" || r.Protocol != "HTTP/1.1" {
			t.Errorf("attempt %d: reused %t, %d %q", i, r.Reused, r.Status, r.Response.Body)
		}
		if r.RemoteAddress != u.listener.Addr().String() {
			t.Errorf("remote address %s", r.RemoteAddress)
		}
	}
	if n := u.connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestClosedPortIsProofOfNothingSent(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	url := u.url("/")
	u.stop()
	r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", url, "x"), loopback(t), attempt())
	want(t, r, call.EvidenceNotSent, call.FailureConnect)
	if r.Detail != "no connection: connection refused" {
		t.Errorf("detail %q", r.Detail)
	}
}

func TestLostAnswerIsNoProof(t *testing.T) {
	for name, lose := range map[string]func(net.Conn){
		"close": func(c net.Conn) { _ = c.Close() },
		"reset": reset,
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, func(_ int, c net.Conn) {
				_, _, _ = request(bufio.NewReader(c))
				lose(c)
			})
			r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", u.url("/"), "x"), loopback(t), attempt())
			want(t, r, call.EvidenceSentNoResponse, call.FailureConnectionLost)
		})
	}
}

func TestBrokenAnswersAreTold(t *testing.T) {
	rows := []struct {
		name, answer string
		evidence     call.Evidence
		failure      call.Failure
		status       int
	}{
		{"short body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", call.EvidencePartialResponse, call.FailureConnectionLost, 200},
		{"half a head", "HTTP/1.1 200 OK\r\nX: ", call.EvidencePartialResponse, call.FailureConnectionLost, 0},
		{"another protocol", "SSH-2.0-OpenSSH_9.9\r\n", call.EvidencePartialResponse, call.FailureProtocol, 0},
		{"too large", "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", call.EvidencePartialResponse, call.FailureResponseTooLarge, 200},
		{"switching protocols", "HTTP/1.1 101 X\r\n\r\n", call.EvidencePartialResponse, call.FailureProtocol, 0},
		{"two framings", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", call.EvidencePartialResponse, call.FailureProtocol, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			u := newUpstream(t, func(_ int, c net.Conn) {
				_, _, _ = request(bufio.NewReader(c))
				_, _ = io.WriteString(c, row.answer)
			})
			r := newTransport(t, nil).Send(t.Context(), newCall(t, "GET", u.url("/"), ""), loopback(t), attempt())
			want(t, r, row.evidence, row.failure)
			if r.Status != row.status || r.Response != nil {
				t.Errorf("status %d, response %v", r.Status, r.Response)
			}
		})
	}
}

func TestAttemptEndsAtItsTime(t *testing.T) {
	held := make(chan struct{})
	u := newUpstream(t, func(_ int, c net.Conn) {
		_, _, _ = request(bufio.NewReader(c))
		<-held
	})
	defer close(held)
	start := time.Now()
	r := newTransport(t, nil).Send(t.Context(), newCall(t, "GET", u.url("/"), ""), loopback(t), attemptOf(100*time.Millisecond))
	want(t, r, call.EvidenceSentNoResponse, call.FailureAttemptTimeout)
	if took := time.Since(start); !r.TimedOut || took < 100*time.Millisecond {
		t.Errorf("timed out %t after %s", r.TimedOut, took)
	}
}

func TestSubLimitsShortenTheAttempt(t *testing.T) {
	held := make(chan struct{})
	u := newUpstream(t, func(_ int, c net.Conn) {
		req, _, _ := request(bufio.NewReader(c))
		if req.URL.Path == "/body" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
		}
		<-held
	})
	defer close(held)
	p := loopback(t)
	p.Attempt.HeaderTimeout, p.Attempt.IdleBodyTimeout = 50*time.Millisecond, 50*time.Millisecond
	for path, evidence := range map[string]call.Evidence{"/head": call.EvidenceSentNoResponse, "/body": call.EvidencePartialResponse} {
		r := newTransport(t, nil).Send(t.Context(), newCall(t, "GET", u.url(path), ""), p, attempt())
		want(t, r, evidence, call.FailureAttemptTimeout)
		if r.TimedOut {
			t.Errorf("%s: the attempt's own time was not up", path)
		}
	}
}

func TestVanishedCallerEndsTheAttemptAndTheConnection(t *testing.T) {
	closed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	u := newUpstream(t, func(_ int, c net.Conn) {
		r := bufio.NewReader(c)
		_, _, _ = request(r)
		cancel()
		_, err := r.ReadByte()
		closed <- err
	})
	r := newTransport(t, nil).Send(ctx, newCall(t, "GET", u.url("/"), ""), loopback(t), attempt())
	want(t, r, call.EvidenceSentNoResponse, call.FailureCancelled)
	if err := <-closed; err == nil {
		t.Error("the upstream did not see the connection end")
	}
}

// An upload that is refused while it runs: the answer counts, and the connection is not used again.
func TestEarlyAnswerToAnUploadCounts(t *testing.T) {
	const body = 1 << 20
	for name, end := range map[string]func(net.Conn){
		"half-close": func(c net.Conn) {
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		},
		"stops reading": func(c net.Conn) { _, _ = io.Copy(io.Discard, io.LimitReader(c, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			held := make(chan struct{})
			u := newUpstream(t, func(_ int, c net.Conn) {
				_, _ = io.ReadFull(c, make([]byte, 1000))
				_, _ = io.WriteString(c, "HTTP/1.1 413 X\r\nContent-Length: 3\r\n\r\nbig")
				end(c)
				<-held
			})
			defer close(held)
			tr := newTransport(t, nil)
			for range 10 {
				// Half a minute: a kernel that is busy sending may drop the answer's segment, and the peer repeats it late.
				r := tr.Send(t.Context(), newCall(t, "POST", u.url("/"), strings.Repeat("x", body)), loopback(t), attemptOf(30*time.Second))
				want(t, r, call.EvidenceAnswered, call.FailureNone)
				if r.Status != 413 || string(r.Response.Body) != "big" || r.Reused {
					t.Fatalf("%d %q, reused %t", r.Status, r.Response.Body, r.Reused)
				}
			}
		})
	}
}

func TestLargeUploadArrivesWholeOnOneConnection(t *testing.T) {
	sizes := make(chan int, 2)
	u := newUpstream(t, func(_ int, c net.Conn) {
		for r := bufio.NewReader(c); ; {
			_, body, err := request(r)
			if err != nil {
				return
			}
			sizes <- len(body)
			_, _ = io.WriteString(c, okAnswer)
		}
	})
	tr := newTransport(t, nil)
	const size = 3 << 20
	for range 2 {
		r := tr.Send(t.Context(), newCall(t, "PUT", u.url("/"), strings.Repeat("x", size)), loopback(t), attempt())
		want(t, r, call.EvidenceAnswered, call.FailureNone)
		if got := <-sizes; got != size {
			t.Errorf("%d bytes arrived of %d", got, size)
		}
	}
	if n := u.connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestHangingUploadEndsAtItsTime(t *testing.T) {
	held := make(chan struct{})
	u := newUpstream(t, func(int, net.Conn) { <-held })
	defer close(held)
	r := newTransport(t, nil).Send(t.Context(), newCall(t, "POST", u.url("/"), strings.Repeat("x", 16<<20)), loopback(t), attemptOf(150*time.Millisecond))
	want(t, r, call.EvidenceSentNoResponse, call.FailureAttemptTimeout)
	if !r.TimedOut {
		t.Error("not called timed out")
	}
}

// A caller that went away before the request is written gets nothing sent, however warm the connection.
func TestNothingIsWrittenForACallerWhoIsGone(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	tr, p := newTransport(t, nil), loopback(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		want(t, tr.Send(t.Context(), newCall(t, "GET", u.url("/"), ""), p, attempt()), call.EvidenceAnswered, call.FailureNone)
		want(t, tr.Send(gone, newCall(t, "POST", u.url("/"), "x"), p, attempt()), call.EvidenceNotSent, call.FailureCancelled)
	}
}

func TestCallersShareNoConnection(t *testing.T) {
	u := newUpstream(t, always(okAnswer))
	tr, p := newTransport(t, nil), loopback(t)
	for _, caller := range []string{"one", "two"} {
		c := newCall(t, "GET", u.url("/"), "")
		c.Caller = caller
		if r := tr.Send(t.Context(), c, p, attempt()); r.Reused {
			t.Errorf("%s got another caller's connection", caller)
		}
	}
}
