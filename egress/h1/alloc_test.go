package h1_test

import (
	"testing"

	"github.com/sallyport/sallyport/egress/h1"
)

// canned answers every read with the same bytes; it allocates nothing.
type canned struct {
	peer

	answer []byte
}

func (c *canned) Read(b []byte) (int, error)  { return copy(b, c.answer), nil }
func (c *canned) Write(b []byte) (int, error) { return len(b), nil }

const smallAnswer = ok + "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: application/json\r\nContent-Length: 11\r\nKeep-Alive: timeout=5\r\n\r\n{\"ok\":true}"

// roundTrip returns one exchange on a connection that has served before.
func roundTrip(tb testing.TB, body []byte) func() {
	tb.Helper()
	c := h1.New(&canned{answer: []byte(smallAnswer)})
	var r h1.Response
	lim := roomy()
	once := func() {
		c.Start("POST", "/v1/charges", "example.com")
		c.Field("User-Agent", "sallyport/1")
		c.Field("Content-Type", "application/json")
		if err := c.Send(body, false); err != nil {
			tb.Fatal(err)
		}
		if err := c.ReadResponse(&r, lim); err != nil {
			tb.Fatal(err)
		}
		if !c.Reusable() || len(r.Body) != 11 {
			tb.Fatal("not reusable")
		}
	}
	once()
	return once
}

// TestKeepAliveRoundTripAllocatesTwice: the text of the head and the body, both of which the caller keeps; nothing else.
func TestKeepAliveRoundTripAllocatesTwice(t *testing.T) {
	if n := testing.AllocsPerRun(1000, roundTrip(t, []byte(`{"amount":1}`))); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkKeepAliveRoundTrip(b *testing.B) {
	once := roundTrip(b, []byte(`{"amount":1}`))
	b.ReportAllocs()
	for b.Loop() {
		once()
	}
}
