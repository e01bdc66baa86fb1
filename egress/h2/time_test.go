package h2_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/egress/h2"
)

// TestTimes: each ends its own stream at its own instant, and the peer is told.
func TestTimes(t *testing.T) {
	const late = "no complete answer within the attempt's time"
	for _, row := range []struct {
		name                 string
		deadline, head, body time.Duration
		play                 func(p *peer, id uint32)
		ends                 time.Duration
		begun, answered      bool
	}{
		{"the deadline, without an answer", 3 * time.Second, 0, 0, func(*peer, uint32) {}, 3 * time.Second, false, false},
		{"the deadline, in the body", 3 * time.Second, 0, 0, func(p *peer, id uint32) {
			p.head(id, false, ":status", "200")
			drip(p, id, time.Second, 9)
		}, 3 * time.Second, true, false},
		{"the head", 3 * time.Second, time.Second, 0, func(*peer, uint32) {}, time.Second, false, false},
		{"the head, interim answers or not", 3 * time.Second, time.Second, 0, func(p *peer, id uint32) {
			for range 9 {
				time.Sleep(300 * time.Millisecond)
				p.head(id, false, ":status", "102")
			}
		}, time.Second, true, false},
		{"the time for the head ends with it", 3 * time.Second, time.Second, 0, func(p *peer, id uint32) {
			time.Sleep(time.Second - 1)
			p.head(id, false, ":status", "200")
			drip(p, id, 500*time.Millisecond, 3)
		}, 2500*time.Millisecond - 1, true, true},
		{"a pause in the body", 3 * time.Second, 0, time.Second, func(p *peer, id uint32) {
			p.head(id, false, ":status", "200")
			drip(p, id, 700*time.Millisecond, 1)
		}, 700 * time.Millisecond, true, true},
		{"a pause too long", 3 * time.Second, 0, time.Second, func(p *peer, id uint32) {
			p.head(id, false, ":status", "200")
			p.data(id, false, "x")
			time.Sleep(800 * time.Millisecond)
			p.data(id, false, "x")
		}, 1800 * time.Millisecond, true, false},
		{"a pause after the head", 3 * time.Second, time.Second, 500 * time.Millisecond, func(p *peer, id uint32) {
			time.Sleep(900 * time.Millisecond)
			p.head(id, false, ":status", "200")
		}, 1400 * time.Millisecond, true, false},
		{"no pause lasts beyond the deadline", time.Second, 5 * time.Second, 5 * time.Second, func(p *peer, id uint32) {
			time.Sleep(500 * time.Millisecond)
			p.head(id, false, ":status", "200")
		}, time.Second, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := connect(t)
				lim := roomy()
				begin := time.Now()
				lim.Deadline, lim.HeaderTimeout, lim.IdleBody = begin.Add(row.deadline), row.head, row.body
				out := send(t.Context(), c, get(), lim)
				id := p.want(http2.FrameHeaders).id
				go row.play(p, id)
				o := <-out
				if took := time.Since(begin); took != row.ends {
					t.Errorf("it took %v, want %v", took, row.ends)
				}
				if row.answered {
					if o.err != nil {
						t.Error(o.err)
					}
					return
				}
				fails(t, o, h2.Timeout, late, row.begun, true)
				if f := p.want(http2.FrameRSTStream); f.id != id || f.code != http2.ErrCodeCancel {
					t.Errorf("%v", f)
				}
				time.Sleep(10 * time.Second) // play ends
			})
		})
	}
}

// drip sends n bytes with pauses, and ends the answer.
func drip(p *peer, id uint32, pause time.Duration, n int) {
	for i := range n {
		time.Sleep(pause)
		p.data(id, i == n-1, "x")
	}
}

// TestTheTimeForTheHeadBeginsWhenTheRequestIsSent, be it ever so slow.
func TestTheTimeForTheHeadBeginsWhenTheRequestIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		lim := roomy()
		lim.HeaderTimeout = time.Second
		begin := time.Now()
		out := send(t.Context(), c, post(make([]byte, 100_000)), lim)
		id := p.want(http2.FrameHeaders).id
		time.Sleep(2 * time.Second) // the window is used up
		p.write(func() error { return p.fr.WriteWindowUpdate(0, 1<<20) })
		p.write(func() error { return p.fr.WriteWindowUpdate(id, 1<<20) })
		fails(t, <-out, h2.Timeout, "no complete answer within the attempt's time", false, true)
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestCancelledStreamIsResetAndTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		beside := send(t.Context(), c, get(), roomy())
		first := p.want(http2.FrameHeaders).id
		ctx, cancel := context.WithCancel(t.Context())
		out := send(ctx, c, get(), roomy())
		id := p.want(http2.FrameHeaders).id
		cancel()
		fails(t, <-out, h2.Cancelled, "the attempt was cancelled", false, true)
		if f := p.want(http2.FrameRSTStream); f.id != id || f.code != http2.ErrCodeCancel {
			t.Errorf("%v", f)
		}
		p.ok(id) // too late, for nobody
		p.ok(first)
		if o := <-beside; o.err != nil {
			t.Error(o.err)
		}
		answers(t, c, p)
	})
}

// TestWhatWasNotWrittenYetIsNotSent: the peer stopped reading, the request waits for its turn until its time is up.
func TestWhatWasNotWrittenYetIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, ch := connectChoked(t)
		ch.hang = make(chan struct{})
		first := send(t.Context(), c, get(), roomy())
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		second := send(ctx, c, get(), roomy())
		lim := roomy()
		lim.Deadline = time.Now().Add(time.Second)
		third := send(t.Context(), c, get(), lim)
		synctest.Wait()
		cancel()
		fails(t, <-second, h2.Cancelled, "the attempt was cancelled", false, false)
		fails(t, <-third, h2.Timeout, "no complete answer within the attempt's time", false, false)
		if limit(c) != -1 {
			t.Error("a connection that takes nothing would be used again")
		}
		close(ch.hang)
		_ = first
	})
}

// TestSilentConnectionTakesNobodyNew: a time-out without a frame in all of it, or three callers in a row that went away so.
func TestSilentConnectionTakesNobodyNew(t *testing.T) {
	for _, row := range []struct {
		name string
		play func(t *testing.T, c *h2.Conn, p *peer)
		ends bool
	}{
		{"timed out in silence", timedOut(func(*peer) {}), true},
		{"timed out, but it pinged", timedOut(func(p *peer) { p.write(func() error { return p.fr.WritePing(false, [8]byte{}) }) }), false},
		{"timed out, pinged, and took not even the request", func(t *testing.T, c *h2.Conn, p *peer) {
			t.Helper()
			lim := roomy()
			lim.Deadline = time.Now().Add(time.Second)
			hang := make(chan struct{})
			p.choke.hang = hang
			out := send(t.Context(), c, get(), lim)
			synctest.Wait()
			p.write(func() error { return p.fr.WritePing(true, [8]byte{}) })
			if o := <-out; o.err == nil {
				t.Error("answered")
			}
			close(hang)
		}, true},
		{"cancelled once", cancelled(1), false},
		{"cancelled twice", cancelled(2), false},
		{"cancelled three times", cancelled(3), true},
		{"cancelled, with signs of life between", func(t *testing.T, c *h2.Conn, p *peer) {
			t.Helper()
			for range 5 {
				cancelled(2)(t, c, p)
				answersAfter(t, c, p)
			}
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p, _ := connectChoked(t)
				row.play(t, c, p)
				synctest.Wait()
				if (limit(c) == -1) != row.ends {
					t.Errorf("limit %d", limit(c))
				}
			})
		})
	}
}

func timedOut(life func(*peer)) func(*testing.T, *h2.Conn, *peer) {
	return func(t *testing.T, c *h2.Conn, p *peer) {
		t.Helper()
		lim := roomy()
		lim.Deadline = time.Now().Add(time.Second)
		out := send(t.Context(), c, get(), lim)
		p.want(http2.FrameHeaders)
		life(p)
		if o := <-out; o.err == nil {
			t.Error("answered")
		}
	}
}

func cancelled(times int) func(*testing.T, *h2.Conn, *peer) {
	return func(t *testing.T, c *h2.Conn, _ *peer) {
		t.Helper()
		for range times {
			ctx, cancel := context.WithCancel(t.Context())
			out := send(ctx, c, get(), roomy())
			synctest.Wait()
			cancel()
			<-out
		}
	}
}
