package h2_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/egress/h2"
)

// received reads the body of a stream until it ends or nothing more comes.
func received(p *peer, id uint32) (body string, ended bool) {
	for {
		synctest.Wait()
		if len(p.in) == 0 {
			return body, false
		}
		f := <-p.in
		if f.kind == http2.FrameData && f.id == id {
			body += f.data
			if f.ends {
				return body, true
			}
		}
	}
}

// TestUploadKeepsToTheWindows of its stream and of the connection, as they open and close.
func TestUploadKeepsToTheWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		upload := bytes.Repeat([]byte("0123456789abcdef"), 8<<10) // 128 KiB
		out := send(t.Context(), c, post(upload), roomy())
		id := p.want(http2.FrameHeaders).id
		all := ""
		expect := func(what string, total int) {
			t.Helper()
			more, _ := received(p, id)
			if all += more; len(all) != total {
				t.Errorf("%s: %d bytes came, want %d", what, len(all), total)
			}
		}
		window := func(id, inc uint32) { p.write(func() error { return p.fr.WriteWindowUpdate(id, inc) }) }
		initial := func(size uint32) {
			p.write(func() error { return p.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: size}) })
		}
		expect("at first", 65535)
		window(0, 1000)
		expect("the connection alone", 65535)
		window(id, 300)
		expect("and the stream", 65835)
		initial(65535 + 200)
		expect("a larger initial window", 66035)
		initial(100) // 65435 below: the stream's window is negative now
		window(id, 65636-1)
		expect("a window of zero", 66035)
		window(id, 1)
		expect("a window of one", 66036)
		window(id, 1<<20)
		expect("the connection's window", 66535)
		window(0, 1<<20)
		expect("all of it", len(upload))
		if all != string(upload) {
			t.Error("not what was sent")
		}
		p.ok(id)
		if o := <-out; o.err != nil {
			t.Error(o.err)
		}
		answers(t, c, p)
	})
}

// TestUploadsTakeTurns: a small request does not wait for the end of a large one.
func TestUploadsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, ch := connectChoked(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 8 << 20})
		p.write(func() error { return p.fr.WriteWindowUpdate(0, 8<<20) })
		hang := make(chan struct{})
		ch.hang = hang
		large := []<-chan outcome{send(t.Context(), c, post(make([]byte, 4<<20)), roomy()), send(t.Context(), c, post(make([]byte, 4<<20)), roomy())}
		synctest.Wait()
		small := send(t.Context(), c, get(), roomy())
		synctest.Wait()
		close(hang)
		before := 0
		for f := range p.in {
			before += len(f.data)
			if f.kind == http2.FrameHeaders && f.ends {
				p.ok(f.id)
				break
			}
		}
		if o := <-small; o.err != nil {
			t.Error(o.err)
		}
		if before > 256<<10 {
			t.Errorf("%d bytes of others came first", before)
		}
		p.ok(3)
		p.ok(5)
		for _, out := range large {
			if o := <-out; o.err != nil {
				t.Error(o.err)
			}
		}
	})
}

// TestAWindowOfNothingForEver costs an upload its time, and nobody else anything.
func TestAWindowOfNothingForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		out := send(t.Context(), c, post([]byte("x")), roomy())
		p.want(http2.FrameHeaders)
		answers(t, c, p)
		fails(t, <-out, h2.Timeout, "no complete answer within the attempt's time", false, true)
		p.want(http2.FrameRSTStream)
		answers(t, c, p)
	})
}

// TestEarlyAnswerEndsTheUpload, and counts.
func TestEarlyAnswerEndsTheUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		out := send(t.Context(), c, post(make([]byte, 1<<20)), roomy())
		id := p.want(http2.FrameHeaders).id
		_, _ = received(p, id)
		p.head(id, false, ":status", "413", "content-length", "3")
		p.data(id, true, "big")
		p.rst(id, http2.ErrCodeNo) // as servers say: the rest is not wanted (RFC 9113 §8.1)
		if o := <-out; o.err != nil || o.Status != 413 || string(o.Body) != "big" {
			t.Errorf("%v", o)
		}
		if f := p.want(http2.FrameRSTStream); f.id != id || f.code != http2.ErrCodeCancel {
			t.Errorf("%v", f)
		}
		p.write(func() error { return p.fr.WriteWindowUpdate(0, 1<<20) })
		answers(t, c, p)
	})
}

// TestWindowsAreGivenBack, also for what came for streams that are over, and for padding.
func TestWindowsAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		lim := roomy()
		lim.BodyBytes = 1000
		for range 6 { // each overruns its limit and goes on for a MiB
			out := send(t.Context(), c, get(), lim)
			id := p.want(http2.FrameHeaders).id
			p.head(id, false, ":status", "200")
			for range 64 {
				p.data(id, false, strings.Repeat("x", 16<<10))
			}
			fails(t, <-out, h2.TooLarge, "body over the limit", true, true)
			p.want(http2.FrameRSTStream)
		}
		out := send(t.Context(), c, get(), roomy())
		id := p.want(http2.FrameHeaders).id
		p.head(id, false, ":status", "200")
		for range 128 { // 2 MiB on one stream
			p.data(id, false, strings.Repeat("x", 16<<10))
		}
		p.data(id, true, "")
		if o := <-out; o.err != nil || len(o.Body) != 2<<20 {
			t.Errorf("%d bytes, %v", len(o.Body), o.err)
		}
		connection, stream := uint32(0), uint32(0)
		synctest.Wait()
		for len(p.in) > 0 {
			if f := <-p.in; f.kind == http2.FrameWindowUpdate {
				if f.id == 0 {
					connection += f.inc
				} else {
					stream += f.inc
				}
			}
		}
		if connection == 0 || stream < 1<<20 {
			t.Errorf("%d and %d were given back", connection, stream)
		}
	})
}

// TestHeaderTableOfThePeerIsKeptTo: a peer without memory decompresses all the same.
func TestHeaderTableOfThePeerIsKeptTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		for range 3 {
			out := send(t.Context(), c, get(), roomy())
			f := p.want(http2.FrameHeaders)
			if len(f.fields) != 5 || f.fields[4].Name != "x-a" {
				t.Errorf("%v", f.fields)
			}
			p.ok(f.id)
			<-out
		}
	})
}

// TestTheEndOfAnUploadTakesNoWindow: a body that fills the windows to the last byte ends, and its peer need not open them before that.
func TestTheEndOfAnUploadTakesNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		pieces := []string{strings.Repeat("x", 65000), strings.Repeat("y", 535)}
		r := post(nil)
		r.Bodyless = false
		r.Next = func() ([]byte, error) {
			if len(pieces) == 0 {
				return nil, io.EOF
			}
			next := pieces[0]
			pieces = pieces[1:]
			return []byte(next), nil
		}
		out := send(t.Context(), c, r, roomy())
		id := p.want(http2.FrameHeaders).id
		if body, ended := received(p, id); len(body) != 65535 || !ended {
			t.Errorf("%d bytes came, the end: %v", len(body), ended)
		}
		p.ok(id)
		if o := <-out; o.err != nil {
			t.Error(o.err)
		}
		answers(t, c, p)
	})
}
