package h2_test

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/egress/h2"
)

// TestResetsAndGoAwayAreToldApart: what the peer says of a stream, and what that proves.
func TestResetsAndGoAwayAreToldApart(t *testing.T) {
	for _, row := range []struct {
		name  string
		say   func(p *peer, id uint32)
		kind  h2.Kind
		text  string
		begun bool
		lives bool // the connection serves others
	}{
		{"REFUSED_STREAM", func(p *peer, id uint32) { p.rst(id, http2.ErrCodeRefusedStream) }, h2.Refused, "the server refused the stream: REFUSED_STREAM", false, true},
		{"REFUSED_STREAM after an interim answer", func(p *peer, id uint32) {
			p.head(id, false, ":status", "103")
			p.rst(id, http2.ErrCodeRefusedStream)
		}, h2.Reset, "the server reset the stream: REFUSED_STREAM", true, true},
		{"REFUSED_STREAM after a head", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200")
			p.rst(id, http2.ErrCodeRefusedStream)
		}, h2.Reset, "the server reset the stream: REFUSED_STREAM", true, true},
		{"CANCEL", func(p *peer, id uint32) { p.rst(id, http2.ErrCodeCancel) }, h2.Reset, "the server reset the stream: CANCEL", false, true},
		{"NO_ERROR", func(p *peer, id uint32) { p.rst(id, http2.ErrCodeNo) }, h2.Reset, "the server reset the stream: NO_ERROR", false, true},
		{"PROTOCOL_ERROR", func(p *peer, id uint32) { p.rst(id, http2.ErrCodeProtocol) }, h2.Reset, "the server reset the stream: PROTOCOL_ERROR", false, true},
		{"HTTP_1_1_REQUIRED", func(p *peer, id uint32) { p.rst(id, http2.ErrCodeHTTP11Required) }, h2.Reset, "the server reset the stream: HTTP_1_1_REQUIRED", false, true},
		{"a code of its own", func(p *peer, id uint32) { p.rst(id, 77) }, h2.Reset, "the server reset the stream: unknown error code 0x4d", false, true},
		{"INTERNAL_ERROR in the body", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", "9")
			p.data(id, false, "half")
			p.rst(id, http2.ErrCodeInternal)
		}, h2.Reset, "the server reset the stream: INTERNAL_ERROR", true, true},
		{
			"GOAWAY below", func(p *peer, id uint32) { p.goAway(id-2, http2.ErrCodeNo) }, h2.GoneAway,
			"the server sent GOAWAY (NO_ERROR), last stream 1, which leaves this one out: stream 3", false, false,
		},
		{
			"GOAWAY of nothing", func(p *peer, _ uint32) { p.goAway(0, http2.ErrCodeEnhanceYourCalm) }, h2.GoneAway,
			"the server sent GOAWAY (ENHANCE_YOUR_CALM), last stream 0, which leaves this one out: stream 3", false, false,
		},
		{"GOAWAY twice, the second one lower", func(p *peer, id uint32) {
			p.goAway(1<<31-1, http2.ErrCodeNo)
			p.goAway(id-2, http2.ErrCodeNo)
		}, h2.GoneAway, "the server sent GOAWAY (NO_ERROR), last stream 1, which leaves this one out: stream 3", false, false},
		{"GOAWAY that covers the stream, and the end", func(p *peer, id uint32) {
			p.goAway(id, http2.ErrCodeInternal)
			_ = p.c.Close()
		}, h2.Lost, "the connection was lost before the answer was complete; before that the server sent GOAWAY (INTERNAL_ERROR), last stream 3", false, false},
		{"GOAWAY below once an answer has begun, and the end", func(p *peer, id uint32) {
			p.head(id, false, ":status", "103")
			p.goAway(id-2, http2.ErrCodeNo)
			_ = p.c.Close()
		}, h2.Lost, "the connection was lost before the answer was complete; before that the server sent GOAWAY (NO_ERROR), last stream 1", true, false},
		{"GOAWAY twice, the second one higher, and the end", func(p *peer, id uint32) {
			p.goAway(id, http2.ErrCodeNo)
			p.goAway(1<<31-1, http2.ErrCodeNo)
			_ = p.c.Close()
		}, h2.Lost, "the connection was lost before the answer was complete; before that the server sent GOAWAY (NO_ERROR), last stream 3", false, false},
		{"the end", func(p *peer, _ uint32) { _ = p.c.Close() }, h2.Lost, "the connection was lost before the answer was complete", false, false},
		{"the end within the head", func(p *peer, id uint32) {
			p.write(func() error {
				return p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}})
			})
			_ = p.c.Close()
		}, h2.Lost, "the connection was lost before the answer was complete", true, false},
		{"the end within the body", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200")
			p.data(id, false, "half")
			_ = p.c.Close()
		}, h2.Lost, "the connection was lost before the answer was complete", true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := connect(t)
				answers(t, c, p)
				out := send(t.Context(), c, post([]byte("x")), roomy())
				id := p.want(http2.FrameHeaders).id
				p.want(http2.FrameData)
				row.say(p, id)
				fails(t, <-out, row.kind, row.text, row.begun, true)
				synctest.Wait()
				if !row.lives {
					if limit(c) != -1 {
						t.Error("it would take another stream")
					}
					return
				}
				answers(t, c, p)
			})
		})
	}
}

// TestGoAwayLetsThoseBelowFinish, and takes nobody new.
func TestGoAwayLetsThoseBelowFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		below := send(t.Context(), c, get(), roomy())
		first := p.want(http2.FrameHeaders).id
		begun := send(t.Context(), c, get(), roomy())
		second := p.want(http2.FrameHeaders).id
		above := send(t.Context(), c, get(), roomy())
		p.want(http2.FrameHeaders)
		p.head(second, false, ":status", "200")
		p.goAway(first, http2.ErrCodeNo)
		if o := <-above; o.err == nil || o.Begun {
			t.Errorf("%v", o)
		}
		fails(t, <-send(t.Context(), c, get(), roomy()), h2.NotTaken, "the connection takes no new stream; nothing was sent", false, false)
		p.ok(first)
		p.data(second, true, "ok") // left out, and answered all the same: it counts
		for _, out := range []<-chan outcome{below, begun} {
			if o := <-out; o.err != nil || string(o.Body) != "ok" {
				t.Errorf("%v", o.err)
			}
		}
		if !c.GoneAway() {
			t.Error("not told")
		}
	})
}

// TestGoAwayFindsAStreamThatIsNotWrittenYet, which costs nothing.
func TestGoAwayFindsAStreamThatIsNotWrittenYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, ch := connectChoked(t)
		hang := make(chan struct{})
		ch.hang = hang
		first := send(t.Context(), c, get(), roomy())
		synctest.Wait()
		second := send(t.Context(), c, get(), roomy())
		synctest.Wait()
		p.goAway(3, http2.ErrCodeNo)
		fails(t, <-second, h2.NotTaken, "the server sent GOAWAY (NO_ERROR), last stream 3; nothing was sent", false, false)
		close(hang)
		p.ok(p.want(http2.FrameHeaders).id)
		if o := <-first; o.err != nil {
			t.Error(o.err)
		}
	})
}

func TestGoAwayOnAnIdleConnectionEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		answers(t, c, p)
		p.goAway(1, http2.ErrCodeNo)
		if _, open := <-p.in; open || limit(c) != -1 {
			t.Error("it lives on")
		}
	})
}

// choked is a connection whose writes can be made to fail, or to hang: the faults of one that died, or whose peer stopped reading.
type choked struct {
	net.Conn

	takes int           // bytes of the next write before it fails; -1: all
	hang  chan struct{} // writes wait for it to be closed
}

var errDead = errors.New("dead")

func (c *choked) Write(b []byte) (int, error) {
	if c.hang != nil {
		<-c.hang
	}
	if c.takes < 0 {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:min(c.takes, len(b))])
	return n, errDead
}

func connectChoked(t *testing.T, settings ...http2.Setting) (*h2.Conn, *peer, *choked) {
	t.Helper()
	var ch *choked
	c, p := connectSilent(t, func(nc net.Conn) net.Conn {
		ch = &choked{Conn: nc, takes: -1}
		return ch
	})
	p.write(func() error { return p.fr.WriteSettings(settings...) })
	p.listen()
	synctest.Wait()
	answersAfter(t, c, p)
	p.choke = ch
	return c, p, ch
}

// answersAfter reads over what came before.
func answersAfter(t *testing.T, c *h2.Conn, p *peer) {
	t.Helper()
	synctest.Wait()
	for len(p.in) > 0 {
		<-p.in
	}
	out := send(t.Context(), c, get(), roomy())
	p.ok(p.want(http2.FrameHeaders).id)
	if o := <-out; o.err != nil {
		t.Fatal(o.err)
	}
	synctest.Wait()
}

// TestWriteThatFailsProvesWhatItSays: not a byte of a stream was taken, or one was.
func TestWriteThatFailsProvesWhatItSays(t *testing.T) {
	for name, row := range map[string]struct {
		takes int
		kind  h2.Kind
		text  string
		sent  bool
	}{
		"nothing":  {0, h2.Lost, "the connection was lost; nothing was sent", false},
		"one byte": {1, h2.Lost, "the connection was lost before the answer was complete", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p, ch := connectChoked(t)
				ch.takes = row.takes
				out := send(t.Context(), c, post([]byte("x")), roomy())
				synctest.Wait()
				if limit(c) != -1 {
					t.Error("it would take another stream")
				}
				_ = p.c.Close()
				fails(t, <-out, row.kind, row.text, false, row.sent)
			})
		})
	}
}

// TestStreamBehindAFailedOneWasNotSent: of two in one write the first was begun, the second was not.
func TestStreamBehindAFailedOneWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, ch := connectChoked(t)
		ch.hang = make(chan struct{})
		first := send(t.Context(), c, get(), roomy()) // hangs in its write
		synctest.Wait()
		second := send(t.Context(), c, get(), roomy())
		synctest.Wait()
		third := send(t.Context(), c, get(), roomy()) // in one batch with the second
		synctest.Wait()
		hang := ch.hang
		ch.hang, ch.takes = nil, 10
		close(hang)
		synctest.Wait()
		fails(t, <-second, h2.Lost, "the connection was lost; nothing was sent", false, false)
		fails(t, <-third, h2.Lost, "the connection was lost; nothing was sent", false, false)
		_ = p.c.Close()
		fails(t, <-first, h2.Lost, "the connection was lost before the answer was complete", false, true)
	})
}

// TestEndDuringAWriteWaitsForItsOutcome: the reader sees the end first, but what the write took is the proof.
func TestEndDuringAWriteWaitsForItsOutcome(t *testing.T) {
	for name, row := range map[string]struct {
		takes int
		sent  bool
	}{"nothing": {0, false}, "all": {-1, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p, ch := connectChoked(t)
				hang := make(chan struct{})
				ch.hang = hang
				out := send(t.Context(), c, get(), roomy())
				synctest.Wait()
				_ = p.c.Close()
				synctest.Wait()
				ch.takes = row.takes
				if row.takes < 0 {
					ch.Conn = sink{ch.Conn} // the kernel took it before the end
				}
				close(hang)
				fails(t, <-out, h2.Lost, "the connection was lost before the answer was complete", false, row.sent)
			})
		})
	}
}

type sink struct{ net.Conn }

func (sink) Write(b []byte) (int, error) { return len(b), nil }

// TestAnswerCountsThoughTheWritingFailed: a server that refuses an upload answers, and hangs up.
func TestAnswerCountsThoughTheWritingFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, ch := connectChoked(t)
		out := send(t.Context(), c, post(make([]byte, 1<<20)), roomy())
		id := p.want(http2.FrameHeaders).id
		synctest.Wait()
		ch.takes = 0 // the peer's window is used up; what comes next fails
		p.write(func() error { return p.fr.WriteWindowUpdate(0, 1<<20) })
		p.write(func() error { return p.fr.WriteWindowUpdate(id, 1<<20) })
		synctest.Wait()
		p.head(id, false, ":status", "413", "content-length", "3")
		p.data(id, true, "big")
		if o := <-out; o.err != nil || o.Status != 413 || string(o.Body) != "big" {
			t.Errorf("%v", o)
		}
		if limit(c) != -1 {
			t.Error("it would take another stream")
		}
	})
}

func TestCloseEndsWhatIsOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		out := send(t.Context(), c, get(), roomy())
		p.want(http2.FrameHeaders)
		c.Close()
		fails(t, <-out, h2.Lost, "the connection was closed by this side", false, true)
		c.Close()
	})
}
