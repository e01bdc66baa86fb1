package h2_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sallyport/sallyport/egress/h2"
)

// TestFloodsEndTheConnection: frames without end that carry nothing for anybody.
func TestFloodsEndTheConnection(t *testing.T) {
	for name, say := range map[string]func(p *peer, id uint32) error{
		"pings":                     func(p *peer, _ uint32) error { return p.fr.WritePing(true, [8]byte{}) },
		"settings acknowledged":     func(p *peer, _ uint32) error { return p.fr.WriteSettingsAck() },
		"windows":                   func(p *peer, id uint32) error { return p.fr.WriteWindowUpdate(id, 1) },
		"unknown frames":            func(p *peer, _ uint32) error { return p.fr.WriteRawFrame(0xfe, 0, 0, nil) },
		"priorities":                func(p *peer, id uint32) error { return p.fr.WritePriority(id, http2.PriorityParam{StreamDep: 9}) },
		"empty data":                func(p *peer, id uint32) error { return p.fr.WriteData(id, false, nil) },
		"data of one that is over":  func(p *peer, _ uint32) error { return p.fr.WriteData(1, false, nil) },
		"heads of one that is over": func(p *peer, _ uint32) error { return p.block(1, false, []byte{0x88}) },
		"resets of one that is over": func(p *peer, _ uint32) error {
			return p.fr.WriteRSTStream(1, http2.ErrCodeCancel)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, p := connect(t)
			answers(t, c, p)
			lim := roomy()
			lim.Deadline = time.Now().Add(time.Minute)
			out := send(t.Context(), c, get(), lim)
			id := p.want(http2.FrameHeaders).id
			if name == "empty data" {
				p.head(id, false, ":status", "200")
			}
			go func() {
				for p.err() == nil {
					p.write(func() error { return say(p, id) })
				}
			}()
			fails(t, <-out, h2.Malformed, "too many frames that carry nothing", name == "empty data", true)
		})
	}
}

// err tells that the peer's connection has ended.
func (p *peer) err() error {
	_, err := p.c.Write(nil)
	return err
}

// TestPeerThatSendsAndDoesNotRead: what waits to be written for it is bounded, and so the connection ends.
func TestPeerThatSendsAndDoesNotRead(t *testing.T) {
	for name, say := range map[string]func(p *peer) error{
		"pings":    func(p *peer) error { return p.fr.WritePing(false, [8]byte{}) },
		"settings": func(p *peer) error { return p.fr.WriteSettings() },
		"pings between pieces of a body": func(p *peer) error {
			if err := p.fr.WriteData(3, false, []byte("x")); err != nil {
				return err
			}
			return p.fr.WritePing(false, [8]byte{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p, ch := connectChoked(t)
				if strings.Contains(name, "body") {
					other := send(t.Context(), c, get(), roomy())
					p.head(p.want(http2.FrameHeaders).id, false, ":status", "200")
					defer func() { <-other }()
				}
				hang := make(chan struct{})
				ch.hang = hang
				out := send(t.Context(), c, get(), roomy())
				synctest.Wait()
				said := 0
				for ; p.err() == nil && said < 100_000; said++ {
					p.write(func() error { return say(p) })
				}
				close(hang)
				fails(t, <-out, h2.Malformed, "too many frames that carry nothing", false, false) // the hanging write took nothing
				if said > 64<<10/9+10 {
					t.Errorf("%d frames were taken", said)
				}
			})
		})
	}
}

// TestHeaderBombIsNotKept: a few bytes that stand for the largest entry of the table, again and again.
func TestHeaderBombIsNotKept(t *testing.T) {
	c, p := connect(t)
	answers(t, c, p)
	lim := roomy()
	lim.Deadline = time.Now().Add(time.Minute)
	out := send(t.Context(), c, get(), lim)
	id := p.want(http2.FrameHeaders).id
	p.buf.Reset()
	if err := p.enc.WriteField(hpack.HeaderField{Name: "a", Value: strings.Repeat("x", 4000)}); err != nil {
		t.Fatal(err)
	}
	bomb := append([]byte{0x88}, p.buf.Bytes()...)
	bomb = append(bomb, strings.Repeat("\xbe", 1<<20)...) // the newest entry of the table: 4 GiB of head
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	p.write(func() error { return p.block(id, true, bomb) })
	fails(t, <-out, h2.TooLarge, "a head over the limit", true, true)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20 {
		t.Errorf("%d KiB were allocated", got>>10)
	}
	p.want(http2.FrameRSTStream)
	t.Logf("%s, %d KiB", time.Since(begin).Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>10)
	answers(t, c, p)
}

// TestTinyContinuationsCostNoMoreThanTheirBytes: read one by one they would be read again and again.
func TestTinyContinuationsCostNoMoreThanTheirBytes(t *testing.T) {
	c, p := connect(t)
	lim := roomy()
	lim.Deadline = time.Now().Add(time.Minute)
	out := send(t.Context(), c, get(), lim)
	id := p.want(http2.FrameHeaders).id
	begin := time.Now()
	p.write(func() error {
		err := p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("\x88\x00\x01a\x7f\x81\xff\x3e")}) // a value of 1 MiB begins
		for i := 0; err == nil && i < 200_000; i++ {
			err = p.fr.WriteContinuation(id, false, []byte("x"))
		}
		return err
	})
	fails(t, <-out, h2.TooLarge, "a header block without end", true, true)
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestRapidResetsCostOneStreamEach, and the next one is served.
func TestRapidResetsCostOneStreamEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		for range 1000 {
			out := send(t.Context(), c, get(), roomy())
			p.rst(p.want(http2.FrameHeaders).id, http2.ErrCodeRefusedStream)
			fails(t, <-out, h2.Refused, "the server refused the stream: REFUSED_STREAM", false, true)
		}
		answers(t, c, p)
	})
}
