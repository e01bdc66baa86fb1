package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/internal/proxytest"
	"github.com/sallyport/sallyport/policy"
)

// shortTime is what the caller of a late attempt has; its answers come after it.
const shortTime = 100 * time.Millisecond

// leaving is an attempt that may outlive its caller.
func leaving() call.Attempt {
	a := attemptOf(shortTime)
	a.Departure = &call.Departure{Latest: a.Start.Add(5 * time.Second)}
	return a
}

// tardy answers every request a while after it was read, which is after its caller's time.
func tardy(read *atomic.Int32) func(int, net.Conn) {
	return func(_ int, c net.Conn) {
		for r := bufio.NewReader(c); ; {
			req, _, err := request(r)
			if err != nil {
				return
			}
			read.Add(1)
			if req.URL.Path != "/quick" {
				timer := time.NewTimer(3 * shortTime)
				<-timer.C
			}
			if _, err := io.WriteString(c, okAnswer); err != nil {
				return
			}
		}
	}
}

// road is a way for a request to leave.
type road struct {
	name   string
	policy func(t *testing.T) (p *policy.Effective, url string, read *atomic.Int32)
	large  bool
}

func roads() []road {
	plain := func(t *testing.T) (*policy.Effective, string, *atomic.Int32) {
		t.Helper()
		read := new(atomic.Int32)
		return loopback(t), newUpstream(t, tardy(read)).url("/"), read
	}
	return []road{
		{name: "HTTP/1.1", policy: plain},
		{name: "a large body", policy: plain, large: true},
		{name: "over TLS", policy: func(t *testing.T) (*policy.Effective, string, *atomic.Int32) {
			t.Helper()
			read, a := new(atomic.Int32), newAuthority(t)
			u := newUpstream(t, overTLS(&tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}}, tardy(read)))
			return a.trusting(t), secure(u, "/"), read
		}},
		{name: "through a proxy", policy: func(t *testing.T) (*policy.Effective, string, *atomic.Int32) {
			t.Helper()
			read := new(atomic.Int32)
			u := newUpstream(t, tardy(read))
			return through(t, proxytest.Start(t, nil).URL(), nil), u.url("/"), read
		}},
		{name: "HTTP/2", policy: func(t *testing.T) (*policy.Effective, string, *atomic.Int32) {
			t.Helper()
			read := new(atomic.Int32)
			u := newStreams(t, func(st *stream) {
				read.Add(1)
				if st.path() != "/quick" {
					timer := time.NewTimer(3 * shortTime)
					defer timer.Stop()
					select {
					case <-timer.C:
					case <-st.done:
						<-timer.C
					}
				}
				st.ok()
			}, nil)
			return u.policy(t), u.url("/"), read
		}},
	}
}

func (r *road) body() string {
	if r.large {
		return strings.Repeat("x", 4<<20)
	}
	return "body"
}

// TestDepartedAttemptHasItsLongerTime on a fresh connection and on one that has served before.
func TestDepartedAttemptHasItsLongerTime(t *testing.T) {
	for _, row := range roads() {
		for _, reused := range []bool{false, true} {
			t.Run(row.name, func(t *testing.T) {
				p, url, read := row.policy(t)
				tr := newTransport(t, nil)
				if reused {
					want(t, tr.Send(t.Context(), newCall(t, "POST", url+"quick", ""), p, attempt()), call.EvidenceAnswered, call.FailureNone)
					read.Store(0)
				}
				c := newCall(t, "POST", url, row.body())
				a := leaving()
				r := tr.Send(t.Context(), c, p, a)
				want(t, r, call.EvidenceAnswered, call.FailureNone)
				d := a.Departure
				if took := time.Since(a.Start); took < 2*shortTime || read.Load() != 1 {
					t.Errorf("after %s, %d requests read", took, read.Load())
				}
				if d.Stay() {
					t.Fatal("it has not departed")
				}
				if d.Way.RemoteAddress != r.RemoteAddress || d.Way.Protocol != r.Protocol || d.Way.Reused != reused || (d.Way.Opening == nil) != reused ||
					d.Heard.Load() != 200 {
					t.Errorf("way %+v, heard %d; it went %+v", d.Way, d.Heard.Load(), r)
				}
				if f := d.SoFar(); f.Evidence != call.EvidencePartialResponse || f.Status != 200 {
					t.Errorf("so far: %s, %d", f.Evidence, f.Status)
				}
			})
		}
	}
}

// TestAttemptThatWasKeptBackSendsNothing, on connections of either kind.
func TestAttemptThatWasKeptBackSendsNothing(t *testing.T) {
	for _, row := range roads() {
		for _, reused := range []bool{false, true} {
			t.Run(row.name, func(t *testing.T) {
				p, url, read := row.policy(t)
				tr := newTransport(t, nil)
				if reused {
					want(t, tr.Send(t.Context(), newCall(t, "POST", url+"quick", ""), p, attempt()), call.EvidenceAnswered, call.FailureNone)
					read.Store(0)
				}
				c := newCall(t, "POST", url, row.body())
				a := leaving()
				if !a.Departure.Stay() {
					t.Fatal("departed before it began")
				}
				r := tr.Send(t.Context(), c, p, a)
				want(t, r, call.EvidenceNotSent, call.FailureAttemptTimeout)
				want(t, tr.Send(t.Context(), newCall(t, "POST", url+"quick", ""), p, attempt()), call.EvidenceAnswered, call.FailureNone)
				if read.Load() != 1 {
					t.Errorf("%d requests read, want that of the other attempt alone", read.Load())
				}
			})
		}
	}
}

// TestDepartedAttemptEndsWhenItIsCancelled: torn down for want of a place it has timed out; its caller gone it was cancelled.
func TestDepartedAttemptEndsWhenItIsCancelled(t *testing.T) {
	for _, row := range roads() {
		for cause, failure := range map[error]call.Failure{
			call.ErrTimeUp: call.FailureAttemptTimeout, errors.New("gone"): call.FailureCancelled,
		} {
			t.Run(row.name+", "+cause.Error(), func(t *testing.T) {
				p, url, _ := row.policy(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				c := newCall(t, "POST", url, row.body())
				a := leaving()
				a.Deadline = a.Start.Add(5 * time.Second) // so that it departs for certain
				defer time.AfterFunc(shortTime, func() { cancel(cause) }).Stop()
				r := newTransport(t, nil).Send(ctx, c, p, a)
				want(t, r, call.EvidenceSentNoResponse, failure)
				if r.TimedOut != (failure == call.FailureAttemptTimeout) || time.Since(a.Start) > 3*shortTime {
					t.Errorf("timed out %t after %s", r.TimedOut, time.Since(a.Start))
				}
			})
		}
	}
}

// TestDepartedAttemptEndsWithItsLongerTime.
func TestDepartedAttemptEndsWithItsLongerTime(t *testing.T) {
	for _, row := range roads() {
		t.Run(row.name, func(t *testing.T) {
			p, url, _ := row.policy(t)
			c := newCall(t, "POST", url, row.body())
			a := leaving()
			a.Departure.Latest = a.Start.Add(2 * shortTime)
			r := newTransport(t, nil).Send(t.Context(), c, p, a)
			want(t, r, call.EvidenceSentNoResponse, call.FailureAttemptTimeout)
			if took := time.Since(a.Start); !r.TimedOut || took < 2*shortTime {
				t.Errorf("timed out %t after %s", r.TimedOut, took)
			}
		})
	}
}

// TestQueuedRequestIsKeptBackAtTheDeadline: on HTTP/2 a place on a connection is no proof that anything left. Here the peer reads nothing,
// so that the request of the second stays in the queue behind the body of the first.
func TestQueuedRequestIsKeptBackAtTheDeadline(t *testing.T) {
	a := newAuthority(t)
	release := make(chan struct{})
	u := newUpstream(t, overTLS(&tls.Config{Certificates: []tls.Certificate{a.server(t, nil)}, NextProtos: []string{alpnHTTP2}}, func(_ int, c net.Conn) {
		fr := http2.NewFramer(c, c)
		_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		_ = fr.WriteWindowUpdate(0, 1<<30)
		if _, err := io.ReadFull(c, make([]byte, 9+len(http2.ClientPreface))); err != nil { // begin, and then read no more
			return
		}
		<-release
	}))
	defer close(release)
	p := a.trusting(t)
	p.Attempt.Protocols = []policy.Protocol{policy.ProtocolHTTP2}
	tr := newTransport(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan struct{})
	go func() {
		defer close(first)
		tr.Send(ctx, newCall(t, "POST", secure(u, "/"), strings.Repeat("x", 16<<20)), p, attemptOf(3*time.Second))
	}()
	began := time.Now()
	for tr.Connections().Fresh == 0 && time.Since(began) < time.Second {
		timer := time.NewTimer(10 * time.Millisecond)
		<-timer.C
	}
	timer := time.NewTimer(300 * time.Millisecond) // the kernel's buffers fill up
	<-timer.C
	second := leaving()
	r := tr.Send(t.Context(), newCall(t, "POST", secure(u, "/"), "body"), p, second)
	want(t, r, call.EvidenceNotSent, call.FailureAttemptTimeout)
	if took := time.Since(second.Start); took > 2*time.Second {
		t.Errorf("after %s, want its caller's time", took)
	}
	if !r.TimedOut || !second.Departure.Stay() {
		t.Errorf("timed out %t, kept back %t", r.TimedOut, second.Departure.Stay())
	}
	cancel()
	<-first
}
