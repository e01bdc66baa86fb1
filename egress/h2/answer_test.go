package h2_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/egress/h2"
)

// TestAnswersThatCannotBeTaken: each costs its own stream and no other, which a second stream beside it shows.
func TestAnswersThatCannotBeTaken(t *testing.T) {
	many := func(n int) []string {
		fields := []string{":status", "200"}
		for range n {
			fields = append(fields, "a", "b")
		}
		return fields
	}
	for _, row := range []struct {
		name   string
		method string
		answer func(p *peer, id uint32)
		kind   h2.Kind
		text   string
		status int
		code   http2.ErrCode // that the peer is told
	}{
		{"status 99", "GET", heads(":status", "099"), h2.Malformed, "status outside 100 to 599", 0, http2.ErrCodeProtocol},
		{"status 600", "GET", heads(":status", "600"), h2.Malformed, "status outside 100 to 599", 0, http2.ErrCodeProtocol},
		{"status of four digits", "GET", heads(":status", "0200"), h2.Malformed, "status outside 100 to 599", 0, http2.ErrCodeProtocol},
		{"status +20", "GET", heads(":status", "+20"), h2.Malformed, "status outside 100 to 599", 0, http2.ErrCodeProtocol},
		{"101", "GET", func(p *peer, id uint32) { p.head(id, false, ":status", "101") }, h2.Malformed, "101 to a request that asked for no upgrade", 0, http2.ErrCodeProtocol},
		{"an interim answer at the end", "GET", heads(":status", "103"), h2.Malformed, "an interim answer that ends the stream", 0, http2.ErrCodeProtocol},
		{"no status", "GET", heads("a", "b"), h2.Malformed, "no status", 0, http2.ErrCodeProtocol},
		{"two", "GET", heads(":status", "200", ":status", "200"), h2.Malformed, "a pseudo-header that has no place there", 0, http2.ErrCodeProtocol},
		{"a status after a field", "GET", heads("a", "b", ":status", "200"), h2.Malformed, "a pseudo-header that has no place there", 0, http2.ErrCodeProtocol},
		{"another pseudo-header", "GET", heads(":status", "200", ":path", "/"), h2.Malformed, "a pseudo-header that has no place there", 0, http2.ErrCodeProtocol},
		{"a name in upper case", "GET", heads(":status", "200", "X-A", "b"), h2.Malformed, "field name", 0, http2.ErrCodeProtocol},
		{"a name with a blank", "GET", heads(":status", "200", "x a", "b"), h2.Malformed, "field name", 0, http2.ErrCodeProtocol},
		{"no name", "GET", heads(":status", "200", "", "b"), h2.Malformed, "field name", 0, http2.ErrCodeProtocol},
		{"a line break in a value", "GET", heads(":status", "200", "a", "b\r\nc: d"), h2.Malformed, "control byte in a field value", 0, http2.ErrCodeProtocol},
		{"NUL in a value", "GET", heads(":status", "200", "a", "\x00"), h2.Malformed, "control byte in a field value", 0, http2.ErrCodeProtocol},
		{"a length that is none", "GET", heads(":status", "200", "content-length", "2x"), h2.Malformed, "Content-Length", 0, http2.ErrCodeProtocol},
		{"a negative length", "GET", heads(":status", "200", "content-length", "-1"), h2.Malformed, "Content-Length", 0, http2.ErrCodeProtocol},
		{"an endless length", "GET", heads(":status", "200", "content-length", "99999999999999999999"), h2.Malformed, "Content-Length", 0, http2.ErrCodeProtocol},
		{"two lengths", "GET", heads(":status", "200", "content-length", "2", "content-length", "3"), h2.Malformed, "different Content-Length values", 0, http2.ErrCodeProtocol},
		{"a list of two lengths", "GET", heads(":status", "200", "content-length", "2, 3"), h2.Malformed, "different Content-Length values", 0, http2.ErrCodeProtocol},
		{"a body before its head", "GET", func(p *peer, id uint32) { p.data(id, true, "x") }, h2.Malformed, "a body before its head", 0, http2.ErrCodeProtocol},
		{"a body longer than declared", "GET", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", "1")
			p.data(id, true, "xy")
		}, h2.Malformed, "a body longer than declared", 200, http2.ErrCodeProtocol},
		{"a body shorter than declared", "GET", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", "3")
			p.data(id, true, "xy")
		}, h2.Lost, "the answer ended before it was complete: its body is shorter than declared", 200, 0},
		{"no body where one was declared", "GET", heads(":status", "200", "content-length", "3"), h2.Lost, "the answer ended before it was complete: its body is shorter than declared", 200, 0},
		{"a body for HEAD", "HEAD", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", "1")
			p.data(id, true, "x")
		}, h2.Malformed, "a body where there can be none", 200, http2.ErrCodeProtocol},
		{"a body for 204", "GET", func(p *peer, id uint32) {
			p.head(id, false, ":status", "204")
			p.data(id, true, "x")
		}, h2.Malformed, "a body where there can be none", 204, http2.ErrCodeProtocol},
		{"a second head", "GET", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200")
			p.head(id, true, ":status", "200")
		}, h2.Malformed, "a second head", 200, http2.ErrCodeProtocol},
		{"trailers that do not end", "GET", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200")
			p.head(id, false, "a", "b")
		}, h2.Malformed, "a second head", 200, http2.ErrCodeProtocol},
		{"64 KiB of head", "GET", heads(":status", "200", "a", strings.Repeat("x", 64<<10)), h2.TooLarge, "a head over the limit", 0, http2.ErrCodeCancel},
		{"1 MiB of head", "GET", heads(":status", "200", "a", strings.Repeat("\xff", 1<<20)), h2.TooLarge, "a head over the limit", 0, http2.ErrCodeCancel},
		{"257 fields", "GET", heads(many(257)...), h2.TooLarge, "too many fields", 0, http2.ErrCodeCancel},
		{"257 fields, trailers included", "GET", func(p *peer, id uint32) {
			p.head(id, false, many(256)...)
			p.head(id, true, "a", "b")
		}, h2.TooLarge, "too many fields", 200, http2.ErrCodeCancel},
		{"a declared length over the limit", "GET", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", "3145729")
		}, h2.TooLarge, "declared length over the limit", 200, http2.ErrCodeCancel},
		{"a body over the limit", "GET", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200")
			for range 3<<20>>14 + 1 {
				p.data(id, false, strings.Repeat("x", 16<<10))
			}
		}, h2.TooLarge, "body over the limit", 200, http2.ErrCodeCancel},
		{"101 interim answers", "GET", func(p *peer, id uint32) {
			for range 101 {
				p.head(id, false, ":status", "102")
			}
		}, h2.TooLarge, "too many interim answers", 0, http2.ErrCodeCancel},
		{"interim answers over the limit of heads", "GET", func(p *peer, id uint32) {
			for range 3 {
				p.head(id, false, ":status", "103", "link", strings.Repeat("x", 30_000))
			}
		}, h2.TooLarge, "a head over the limit", 0, http2.ErrCodeCancel},
		{"a window too large", "GET", func(p *peer, id uint32) {
			p.write(func() error { return p.fr.WriteWindowUpdate(id, 1<<31-1) })
		}, h2.Malformed, "a window over its maximum", 0, http2.ErrCodeFlowControl},
		{"more than the window", "GET", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200")
			p.write(func() error { return p.fr.WriteDataPadded(id, false, make([]byte, 1), make([]byte, 255)) })
			for range 1 << 20 / 256 {
				p.write(func() error { return p.fr.WriteDataPadded(id, false, nil, make([]byte, 255)) })
			}
		}, h2.Malformed, "more than the window allows", 200, http2.ErrCodeFlowControl},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := connect(t)
				beside := send(t.Context(), c, get(), roomy())
				first := p.want(http2.FrameHeaders).id
				out := send(t.Context(), c, request(row.method, nil), roomy())
				id := p.want(http2.FrameHeaders).id
				row.answer(p, id)
				o := <-out
				begun := row.code != http2.ErrCodeFlowControl || row.status != 0
				fails(t, o, row.kind, row.text, begun, true)
				if o.Status != row.status {
					t.Errorf("status %d, want %d", o.Status, row.status)
				}
				if row.code != 0 {
					if f := p.want(http2.FrameRSTStream); f.id != id || f.code != row.code {
						t.Errorf("stream %d was reset by %v, want %d by %v", f.id, f.code, id, row.code)
					}
				}
				p.ok(first)
				if o := <-beside; o.err != nil {
					t.Errorf("the other stream: %v", o.err)
				}
				answers(t, c, p)
			})
		})
	}
}

// heads answers by one head that ends the stream.
func heads(fields ...string) func(*peer, uint32) {
	return func(p *peer, id uint32) { p.head(id, true, fields...) }
}

func TestAnswersAtTheirLimitsAreTaken(t *testing.T) {
	for name, row := range map[string]struct {
		method string
		answer func(p *peer, id uint32)
		status int
		body   int
	}{
		"a body of the limit": {"GET", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", fmt.Sprint(3<<20))
			for range 3 << 20 >> 14 {
				p.data(id, false, strings.Repeat("x", 16<<10))
			}
			p.data(id, true, "")
		}, 200, 3 << 20},
		"100 interim answers": {"GET", func(p *peer, id uint32) {
			for range 100 {
				p.head(id, false, ":status", "102")
			}
			p.ok(id)
		}, 200, 2},
		"256 fields": {"GET", func(p *peer, id uint32) {
			fields := []string{":status", "200"}
			for range 256 {
				fields = append(fields, "a", "b")
			}
			p.head(id, true, fields...)
		}, 200, 0},
		"equal lengths": {"GET", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", "2, 2", "content-length", "2")
			p.data(id, true, "ok")
		}, 200, 2},
		"a declared length for HEAD over the limit": {"HEAD", heads(":status", "200", "content-length", "99999999"), 200, 0},
		"an empty piece after the head of HEAD": {"HEAD", func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", "5")
			p.data(id, true, "")
		}, 200, 0},
		"304 with a length":           {"GET", heads(":status", "304", "content-length", "5"), 304, 0},
		"fields of the connection":    {"GET", heads(":status", "200", "connection", "x", "transfer-encoding", "chunked"), 200, 0},
		"status 599":                  {"GET", heads(":status", "599"), 599, 0},
		"padding counts in no length": {"GET", padded, 200, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := connect(t)
				out := send(t.Context(), c, request(row.method, nil), roomy())
				row.answer(p, p.want(http2.FrameHeaders).id)
				if o := <-out; o.err != nil || o.Status != row.status || len(o.Body) != row.body {
					t.Errorf("%d with %d bytes, %v", o.Status, len(o.Body), o.err)
				}
				answers(t, c, p)
			})
		})
	}
}

func padded(p *peer, id uint32) {
	p.head(id, false, ":status", "200", "content-length", "2")
	p.write(func() error { return p.fr.WriteDataPadded(id, true, []byte("ok"), make([]byte, 200)) })
}

// TestFramesThatBreakTheConnection: what cannot be laid to one stream fails all that are on it, and the peer is told why.
func TestFramesThatBreakTheConnection(t *testing.T) {
	raw := func(kind http2.FrameType, flags http2.Flags, id uint32, payload string) func(*peer) {
		return func(p *peer) { p.write(func() error { return p.fr.WriteRawFrame(kind, flags, id, []byte(payload)) }) }
	}
	for _, row := range []struct {
		name string
		say  func(*peer)
		text string
		code http2.ErrCode
	}{
		{"a push", raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, "\x00\x00\x00\x02"), "a push, which was switched off", http2.ErrCodeProtocol},
		{"a head for a stream of the future", raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 5, "\x88"), "a frame for a stream that was never opened", http2.ErrCodeProtocol},
		{"a body for an even stream", raw(http2.FrameData, 0, 2, "x"), "a frame for a stream that was never opened", http2.ErrCodeProtocol},
		{"a reset of a stream of the future", raw(http2.FrameRSTStream, 0, 9, "\x00\x00\x00\x08"), "a frame for a stream that was never opened", http2.ErrCodeProtocol},
		{"a window for a stream of the future", raw(http2.FrameWindowUpdate, 0, 9, "\x00\x00\x00\x08"), "a frame for a stream that was never opened", http2.ErrCodeProtocol},
		{"a window of nothing", raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00"), "frames that break the protocol (PROTOCOL_ERROR)", http2.ErrCodeProtocol},
		{"a window too large", raw(http2.FrameWindowUpdate, 0, 0, "\x7f\xff\xff\xff"), "a window over its maximum", http2.ErrCodeFlowControl},
		{"an initial window too large", raw(http2.FrameSettings, 0, 0, "\x00\x04\xff\xff\xff\xff"), "frames that break the protocol (FLOW_CONTROL_ERROR)", http2.ErrCodeFlowControl},
		{"a frame size too small", raw(http2.FrameSettings, 0, 0, "\x00\x05\x00\x00\x00\x01"), "settings out of their range", http2.ErrCodeProtocol},
		{"pushes switched on", raw(http2.FrameSettings, 0, 0, "\x00\x02\x00\x00\x00\x01"), "settings out of their range", http2.ErrCodeProtocol},
		{"a stray continuation", raw(http2.FrameContinuation, 0, 1, "x"), "frames that break the protocol (PROTOCOL_ERROR)", http2.ErrCodeProtocol},
		{"a ping of seven bytes", raw(http2.FramePing, 0, 0, "1234567"), "frames that break the protocol (FRAME_SIZE_ERROR)", http2.ErrCodeFrameSize},
		{"a frame too large", raw(http2.FrameData, 0, 1, strings.Repeat("x", 16<<10+1)), "a frame larger than allowed, or another protocol than HTTP/2", http2.ErrCodeFrameSize},
		{"padding without a length", raw(http2.FrameData, http2.FlagDataPadded, 1, ""), "frames that break the protocol", http2.ErrCodeProtocol},
		{"HTTP/1.1", func(p *peer) {
			p.write(func() error { _, err := p.c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); return err })
		}, "a frame larger than allowed, or another protocol than HTTP/2", http2.ErrCodeFrameSize},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := connect(t)
				outs := []<-chan outcome{send(t.Context(), c, get(), roomy()), send(t.Context(), c, get(), roomy())}
				p.want(http2.FrameHeaders)
				p.want(http2.FrameHeaders)
				synctest.Wait() // a last word is written only where no write is under way
				row.say(p)
				for _, out := range outs {
					fails(t, <-out, h2.Malformed, row.text, false, true)
				}
				if f := p.want(http2.FrameGoAway); f.code != row.code {
					t.Errorf("the peer was told %v, want %v", f.code, row.code)
				}
				if _, open := <-p.in; open || limit(c) != -1 {
					t.Error("the connection goes on")
				}
				o := <-send(t.Context(), c, get(), roomy())
				fails(t, o, h2.NotTaken, "the connection takes no new stream; nothing was sent", false, false)
			})
		})
	}
}

// TestHeaderBlockThatBreaksTheConnection fails the stream it was for by its own fault, and the others with it.
func TestHeaderBlockThatBreaksTheConnection(t *testing.T) {
	for _, row := range []struct {
		name string
		say  func(p *peer, id uint32) error
		kind h2.Kind
		text string
		code http2.ErrCode
	}{
		{
			"garbage", func(p *peer, id uint32) error { return p.block(id, true, []byte{0xff, 0xff, 0xff}) },
			h2.Malformed, "a header block that cannot be decompressed", http2.ErrCodeCompression,
		},
		{
			"a string of 2 MiB", func(p *peer, id uint32) error { return p.block(id, true, []byte("\x88\x00\x01a\x7f\x81\xff\x7f")) },
			h2.TooLarge, "a field over the limit", http2.ErrCodeEnhanceYourCalm,
		},
		{"a block without end", func(p *peer, id uint32) error {
			err := p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}})
			for i := 0; err == nil && i < 1<<20>>14+5; i++ {
				err = p.fr.WriteContinuation(id, false, []byte(strings.Repeat("\x88", 16<<10)))
			}
			return err
		}, h2.TooLarge, "a header block without end", http2.ErrCodeEnhanceYourCalm},
		{"empty continuations without end", func(p *peer, id uint32) error {
			err := p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}})
			for i := 0; err == nil && i < 200_000; i++ {
				err = p.fr.WriteContinuation(id, false, nil)
			}
			return err
		}, h2.TooLarge, "a header block without end", http2.ErrCodeEnhanceYourCalm},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := connect(t)
				beside := send(t.Context(), c, get(), roomy())
				p.want(http2.FrameHeaders)
				out := send(t.Context(), c, get(), roomy())
				id := p.want(http2.FrameHeaders).id
				synctest.Wait()
				p.write(func() error { return row.say(p, id) })
				fails(t, <-out, row.kind, row.text, true, true)
				fails(t, <-beside, h2.Lost, "the connection was ended, since another answer on it broke it: "+row.text, false, true)
				if f := p.want(http2.FrameGoAway); f.code != row.code {
					t.Errorf("the peer was told %v, want %v", f.code, row.code)
				}
			})
		})
	}
}

func TestFirstFrameMustBeSettings(t *testing.T) {
	for name, say := range map[string]func(*peer) error{
		"a ping":              func(p *peer) error { return p.fr.WritePing(false, [8]byte{}) },
		"an acknowledgement":  func(p *peer) error { return p.fr.WriteSettingsAck() },
		"an answer":           func(p *peer) error { return p.block(1, true, []byte{0x88}) },
		"the end of all that": func(p *peer) error { return p.fr.WriteGoAway(0, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := connectSilent(t, nil)
				p.deaf = true
				p.listen()
				out := send(t.Context(), c, get(), roomy())
				p.want(http2.FrameSettings)
				p.want(http2.FrameHeaders)
				p.write(func() error { return say(p) })
				fails(t, <-out, h2.Malformed, "the first frame is not SETTINGS", false, true)
			})
		})
	}
}
