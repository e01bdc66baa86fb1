package h1_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/sallyport/sallyport/egress/h1"
)

// TestStreamedAnswersAreThoseThatAreRead, whatever their framing: each row of the table of answers, in one piece and dripping.
func TestStreamedAnswersAreThoseThatAreRead(t *testing.T) {
	for _, row := range answers() {
		for _, delivery := range []struct {
			name string
			of   func(raw string) *peer
		}{{"whole", whole}, {"dripping", dripping}} {
			t.Run(row.name+"/"+delivery.name, func(t *testing.T) {
				p := delivery.of(row.raw)
				p.end = row.end
				body, headed := bytes.Buffer{}, 0
				lim := roomy()
				lim.Sink = &h1.Sink{
					Head:  func() (time.Time, error) { headed++; return time.Time{}, nil },
					Piece: func(b []byte) error { body.Write(b); return nil },
				}
				method := row.method
				if method == "" {
					method = "GET"
				}
				r, err := exchange(t, h1.New(p), method, lim)
				if row.kind == h1.TooLarge {
					return // no limit of a body in memory holds here
				}
				if kind := kindOf(t, err); kind != row.kind {
					t.Errorf("%v, want kind %v", err, row.kind)
				}
				if row.kind == 0 && (body.String() != row.body || headed != 1) {
					t.Errorf("%d bytes after %d heads, want %d", body.Len(), headed, len(row.body))
				}
				if r.Status != row.status || r.Body != nil {
					t.Errorf("status %d, want %d, and no body in memory", r.Status, row.status)
				}
			})
		}
	}
}

// TestStreamedLengthsBeyondMeasure are those that a buffer's place may not be added to.
func TestStreamedLengthsBeyondMeasure(t *testing.T) {
	for _, row := range []struct{ name, head string }{
		{"declared", "Content-Length: 9223372036854775807\r\n\r\n"},
		{"a chunk", "Transfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n"},
		{"a chunk beyond 64 bits", "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := ""
			lim := roomy()
			lim.Sink = &h1.Sink{
				Head:  func() (time.Time, error) { return time.Time{}, nil },
				Piece: func(b []byte) error { got += string(b); return nil },
			}
			_, err := exchange(t, h1.New(whole(ok+row.head+"some")), "GET", lim)
			if kindOf(t, err) != h1.Lost || got != "some" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// hungUp is a connection that takes so many writes and says io.EOF to the next one.
type hungUp struct {
	*peer

	after int
}

func (h *hungUp) Write(b []byte) (int, error) {
	if h.after--; h.after == -1 {
		return 0, io.EOF
	}
	return h.peer.Write(b)
}

// TestStreamedBodyHasItsEndFromItsSource: a write that failed is no end, whatever its error says. What follows it would tell the peer that
// this was all.
func TestStreamedBodyHasItsEndFromItsSource(t *testing.T) {
	for after, last := range []string{"start", "head", "first piece"} {
		h := &hungUp{whole(""), after}
		c := h1.New(h)
		c.Start("POST", "/", "example.com")
		pieces := []string{"one", "two", "three"}
		err := c.SendStream(func() ([]byte, error) {
			if len(pieces) == 0 {
				return nil, io.EOF
			}
			p := pieces[0]
			pieces = pieces[1:]
			return []byte(p), nil
		})
		if kindOf(t, err) != h1.WriteFailed || bytes.Contains(h.wrote, []byte("0\r\n\r\n")) || h.writes != after {
			t.Errorf("after the %s: %v, wrote %q", last, err, h.wrote)
		}
	}
}
