package h1_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/egress/h1"
)

// TestNothingOfAnExchangeReachesTheNext runs every complete and reusable row of the table on one connection, twice over, each followed
// by an answer that has none of its features.
func TestNothingOfAnExchangeReachesTheNext(t *testing.T) {
	p := whole("")
	c := h1.New(p)
	var r h1.Response
	do := func(name, method, raw string) {
		t.Helper()
		p.fragments = append(p.fragments, []byte(raw))
		p.wrote = p.wrote[:0]
		c.Start(method, "/", "example.com")
		c.Field("X-Name", "1")
		if err := c.Send(nil, true); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := method + " / HTTP/1.1\r\nHost: example.com\r\nX-Name: 1\r\n\r\n"; string(p.wrote) != want || c.Written() != int64(len(want)) {
			t.Fatalf("%s: wrote %q, counted %d", name, p.wrote, c.Written())
		}
		if err := c.ReadResponse(&r, roomy()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !c.Reusable() || c.Idle() != nil {
			t.Fatalf("%s: not reusable", name)
		}
	}
	served := 0
	for range 2 {
		for _, a := range answers() {
			if !a.reusable {
				continue
			}
			method := a.method
			if method == "" {
				method = "GET"
			}
			do(a.name, method, a.raw)
			if r.Status != a.status || string(r.Body) != a.body || len(r.Trailers) != len(a.trailers) || r.KeepAlive != a.keepAlive {
				t.Fatalf("%s: %+v", a.name, r)
			}
			do("plain", "GET", "HTTP/1.1 201 x\r\nContent-Length: 1\r\n\r\np")
			if r.Status != 201 || string(r.Body) != "p" || len(r.Fields) != 1 || len(r.Trailers) != 0 || r.KeepAlive != 0 || r.Close {
				t.Fatalf("after %s: %+v", a.name, r)
			}
			served += 2
		}
	}
	if served < 50 {
		t.Errorf("only %d exchanges on one connection", served)
	}
}

func TestBodyAndStringsOutliveTheNextAnswer(t *testing.T) {
	p := whole("")
	c := h1.New(p)
	var r h1.Response
	read := func(raw string) {
		p.fragments = append(p.fragments, []byte(raw))
		c.Start("GET", "/", "example.com")
		if err := errors.Join(c.Send(nil, true), c.ReadResponse(&r, roomy())); err != nil {
			t.Fatal(err)
		}
	}
	read(ok + "X-A: first\r\nContent-Length: 5\r\n\r\nfirst")
	field, body := r.Fields[0], r.Body
	read(ok + "Y-B: other\r\nContent-Length: 5\r\n\r\nother")
	if field != (h1.Field{Name: "X-A", Value: "first"}) || string(body) != "first" {
		t.Errorf("%q %q", field, body)
	}
}

func TestSpentConnectionSendsNothing(t *testing.T) {
	for name, raw := range map[string]string{
		"surplus":   ok + "Content-Length: 2\r\n\r\nok" + ok + "Content-Length: 4\r\n\r\nevil",
		"close":     ok + "Connection: close\r\nContent-Length: 2\r\n\r\nok",
		"malformed": "HTTP/1.1 999 x\r\n\r\n" + ok + "Content-Length: 4\r\n\r\nevil",
		"lost":      ok + "Content-Length: 9\r\n\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			p := whole(raw)
			c := h1.New(p)
			_, _ = exchange(t, c, "GET", roomy())
			if c.Reusable() {
				t.Error("reusable")
			}
			sent := len(p.wrote)
			c.Start("GET", "/", "example.com")
			if err := c.Send(nil, true); kindOf(t, err) != h1.Refused || len(p.wrote) != sent {
				t.Errorf("sent %q: %v", p.wrote[sent:], err)
			}
		})
	}
}

func TestSurplusBesideTheEndOfABodyShows(t *testing.T) {
	p := &peer{takes: -1, end: os.ErrDeadlineExceeded, fragments: [][]byte{
		[]byte(ok + "Content-Length: 20000\r\n\r\n"), make([]byte, 19_000), make([]byte, 1001),
	}}
	c := h1.New(p)
	if r, err := exchange(t, c, "GET", roomy()); err != nil || len(r.Body) != 20_000 {
		t.Fatal(err)
	}
	if c.Reusable() {
		t.Error("reusable with a byte too many")
	}
}

// TestLossOnAReusedConnectionHasNotBegun: bytes of the last answer prove nothing of this one.
func TestLossOnAReusedConnectionHasNotBegun(t *testing.T) {
	c := h1.New(whole(ok + "Content-Length: 2\r\n\r\nok"))
	if r, err := exchange(t, c, "GET", roomy()); err != nil || !r.Begun {
		t.Fatal(err)
	}
	if r, err := exchange(t, c, "GET", roomy()); kindOf(t, err) != h1.Lost || r.Begun || r.Status != 0 {
		t.Errorf("begun %v, status %d: %v", r.Begun, r.Status, err)
	}
}

// dated keeps the read deadline it was given last.
type dated struct {
	*peer

	read time.Time
}

func (d *dated) SetReadDeadline(t time.Time) error { d.read = t; return nil }

func TestReadDeadlineIsTheAttemptsAgainAfterAnAnswer(t *testing.T) {
	d := &dated{peer: whole(ok + "Content-Length: 20000\r\n\r\n" + strings.Repeat("x", 20_000))}
	lim := roomy()
	lim.HeaderTimeout, lim.IdleBody = time.Hour, time.Hour
	lim.Deadline = time.Now().Add(24 * time.Hour)
	if _, err := exchange(t, h1.New(d), "GET", lim); err != nil || !d.read.Equal(lim.Deadline) {
		t.Errorf("read deadline %v, want %v: %v", d.read, lim.Deadline, err)
	}
}

func TestOurOwnCloseEndsTheConnection(t *testing.T) {
	c := h1.New(whole(ok + "Content-Length: 2\r\n\r\nok"))
	c.Start("GET", "/", "example.com")
	c.Field("connection", "x, Close")
	var r h1.Response
	if err := errors.Join(c.Send(nil, true), c.ReadResponse(&r, roomy())); err != nil || c.Reusable() {
		t.Errorf("reusable %v: %v", c.Reusable(), err)
	}
}

func TestAnswerBeforeTheRequestIsSentSpoilsTheConnection(t *testing.T) {
	p := whole(ok + "Content-Length: 2\r\n\r\nok")
	p.end = os.ErrDeadlineExceeded
	c := h1.New(p)
	c.Start("POST", "/", "example.com")
	var r h1.Response
	if err := c.ReadResponse(&r, roomy()); err != nil || r.Status != 200 {
		t.Fatal(err)
	}
	if err := c.Send([]byte("x"), false); err != nil {
		t.Fatal(err)
	}
	if c.Reusable() {
		t.Error("reusable after an early answer")
	}
}

// TestBytesOnAFreshConnectionAreTheAnswer: a server may answer as soon as it accepts, 408 or 503 say.
func TestBytesOnAFreshConnectionAreTheAnswer(t *testing.T) {
	p := whole("HTTP/1.1 503 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	p.takes = 0
	c := h1.New(p)
	c.Start("GET", "/", "example.com")
	if err := c.Send(nil, true); kindOf(t, err) != h1.WriteFailed {
		t.Fatal(err)
	}
	var r h1.Response
	if err := c.ReadResponse(&r, roomy()); err != nil || r.Status != 503 {
		t.Errorf("%d: %v", r.Status, err)
	}
}

func TestIdleSeesWhatTheConnectionSays(t *testing.T) {
	for _, row := range []struct {
		name string
		n    int
		err  error
		want error // nil: quiet
	}{
		{"nothing there", 0, os.ErrDeadlineExceeded, nil},
		{"nothing there, wrapped", 0, fmt.Errorf("read: %w", os.ErrDeadlineExceeded), nil},
		{"nothing there, by deadline", 0, os.ErrDeadlineExceeded, nil},
		{"closed", 0, io.EOF, io.EOF},
		{"a byte", 1, nil, h1.ErrUnsolicited},
		{"a byte and the end", 1, io.EOF, h1.ErrUnsolicited},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := whole(ok + "Content-Length: 2\r\n\r\nok")
			p.readNow = func(b []byte) (int, error) {
				if len(b) != 1 {
					t.Errorf("asked for %d bytes", len(b))
				}
				return row.n, row.err
			}
			c := h1.New(look{p})
			if _, err := exchange(t, c, "GET", roomy()); err != nil {
				t.Fatal(err)
			}
			if err := c.Idle(); !errors.Is(err, row.want) || (row.want == nil) != (err == nil) {
				t.Errorf("idle: %v, want %v", err, row.want)
			}
			if c.Reusable() != (row.want == nil) {
				t.Errorf("reusable %v", c.Reusable())
			}
		})
	}
	t.Run("surplus in the buffer", func(t *testing.T) {
		c := h1.New(whole(ok + "Content-Length: 2\r\n\r\nok!"))
		if _, err := exchange(t, c, "GET", roomy()); err != nil {
			t.Fatal(err)
		}
		if err := c.Idle(); !errors.Is(err, h1.ErrUnsolicited) {
			t.Error(err)
		}
	})
}

func TestConnectionThatGivesNeitherBytesNorErrorsIsLost(t *testing.T) {
	c := h1.New(mute{whole("")})
	if _, err := exchange(t, c, "GET", roomy()); !errors.Is(err, io.ErrNoProgress) || kindOf(t, err) != h1.Lost {
		t.Error(err)
	}
}

type mute struct{ *peer }

func (mute) Read([]byte) (int, error) { return 0, nil }

func TestKindsAndPhasesHaveNames(t *testing.T) {
	for k := h1.Malformed; k <= h1.Refused; k++ {
		for p := h1.PhaseIdle; p <= h1.PhaseTrailers; p++ {
			e := &h1.Error{Kind: k, Phase: p, Problem: "why", Err: io.EOF}
			if strings.Contains(e.Error(), "unknown") || !strings.HasSuffix(e.Error(), ": why: EOF") {
				t.Error(e)
			}
		}
	}
}
