package egress

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/h2"
)

const trunkOrigin = "https://127.0.0.1:8443"

// openTrunks is what the census says of the one origin.
func (b *trunkBubble) openTrunks(t *testing.T) (active, idle int64) {
	t.Helper()
	b.tr.EachOrigin(func(origin string, a, i int64) {
		if origin != trunkOrigin {
			t.Errorf("origin %q", origin)
		}
		active, idle = active+a, idle+i
	})
	return active, idle
}

// firstThen answers, and does that after its first answer.
func firstThen(then func(*stream)) func(*stream) {
	return func(st *stream) {
		st.ok()
		if st.n == 1 {
			then(st)
		}
	}
}

// hangsUpIdle is a server that ends idle connections without a word.
var hangsUpIdle = firstThen(func(st *stream) {
	time.Sleep(10500 * time.Millisecond)
	_ = st.c.Close()
})

func one(t *testing.T, b *trunkBubble) { t.Helper(); b.ok(t, "GET") }

// Whatever becomes of a connection of HTTP/2 is counted once, and in the end none is left in the census.
func TestCensusCountsWhatBecomesOfTrunks(t *testing.T) {
	for _, row := range []struct {
		name         string
		serve        func(*stream)
		first        func(t *testing.T, b *trunkBubble)
		wait         time.Duration
		second       func(t *testing.T, b *trunkBubble) // nil: nothing
		want         Connections
		active, idle int64 // after that
	}{
		{"one attempt", (*stream).ok, one, 0, nil, Connections{Fresh: 1}, 0, 1},
		{"one after the other", (*stream).ok, one, time.Second, one, Connections{Fresh: 1, Reused: 1}, 0, 1},
		{"several at once", slowly, one, 0, func(t *testing.T, b *trunkBubble) {
			t.Helper()
			all := make(chan []call.Result)
			go func() { all <- b.burst(t, 3, "GET") }()
			synctest.Wait()
			if active, idle := b.openTrunks(t); active != 1 || idle != 0 {
				t.Errorf("%d active, %d idle while three are on it", active, idle)
			}
			<-all
		}, Connections{Fresh: 1, Reused: 1, Shared: 2}, 0, 1},
		{"two connections", slowly, func(t *testing.T, b *trunkBubble) { t.Helper(); b.burst(t, 60, "GET") }, 0, nil, Connections{Fresh: 2, Shared: 58}, 0, 2},
		{"found closed before the write", hangsUpIdle, one, 10600 * time.Millisecond, one, Connections{Fresh: 2, FoundClosed: 1}, 0, 1},
		{"died idle", hangsUpIdle, one, 12 * time.Second, nil, Connections{Fresh: 1, DiedIdle: 1}, 0, 0},
		{"too old for everybody", (*stream).ok, one, idleLife + sweepEvery, nil, Connections{Fresh: 1}, 0, 0},
		{"too old for this attempt", (*stream).ok, one, 3 * time.Second, func(t *testing.T, b *trunkBubble) { t.Helper(); b.ok(t, "POST") }, Connections{Fresh: 2}, 0, 1},
		{"the server's wish", firstThen(func(st *stream) { st.goAway(st.id, http2.ErrCodeNo) }), one, 2 * time.Second, one, Connections{Fresh: 2}, 0, 1},
		{"died under the request that ended its idle time", func(st *stream) {
			if st.n == 2 {
				_ = st.c.Close()
				return
			}
			st.ok()
		}, one, time.Second, func(t *testing.T, b *trunkBubble) {
			t.Helper()
			want(t, b.send(t, "POST"), call.EvidenceSentNoResponse, call.FailureConnectionLost)
		}, Connections{Fresh: 1, Reused: 1, DiedInUse: 1}, 0, 0},
		{"alive under a stream given up", func(st *stream) {
			if st.n == 1 {
				st.ok()
				return
			}
			time.Sleep(time.Second) // something comes while the attempt waits
			st.write(func() error { return st.fr.WritePing(false, [8]byte{}) })
		}, one, time.Second, func(t *testing.T, b *trunkBubble) {
			t.Helper()
			want(t, b.send(t, "POST"), call.EvidenceSentNoResponse, call.FailureAttemptTimeout)
		}, Connections{Fresh: 1, Reused: 1}, 0, 1},
		{"silent under a stream given up", func(st *stream) {
			if st.n == 1 {
				st.ok()
			}
		}, one, time.Second, func(t *testing.T, b *trunkBubble) {
			t.Helper()
			want(t, b.send(t, "POST"), call.EvidenceSentNoResponse, call.FailureAttemptTimeout)
		}, Connections{Fresh: 1, Reused: 1}, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			inTrunkBubble(t, row.serve, settings(40), func(t *testing.T, b *trunkBubble) {
				t.Helper()
				row.first(t, b)
				time.Sleep(row.wait)
				if row.second != nil {
					row.second(t, b)
				}
				synctest.Wait()
				if got := b.tr.Connections(); got != row.want {
					t.Errorf("%+v, want %+v", got, row.want)
				}
				if active, idle := b.openTrunks(t); active != row.active || idle != row.idle {
					t.Errorf("%d active and %d idle, want %d and %d", active, idle, row.active, row.idle)
				}
				b.tr.Close()
				if n := len(b.tr.pool.census.origins); n != 0 {
					t.Errorf("%d origins are left", n)
				}
				time.Sleep(time.Minute) // the server ends
			})
		})
	}
}

// A connection that is kept by nobody any more is open as long as an attempt is on it.
func TestCensusKnowsTrunksThatAreNotKept(t *testing.T) {
	inTrunkBubble(t, slowly, nil, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		answered := make(chan call.Result)
		go func() { answered <- b.send(t, "GET") }()
		time.Sleep(500 * time.Millisecond)
		b.tr.Retire(1)
		if active, idle := b.openTrunks(t); active != 1 || idle != 0 {
			t.Errorf("%d active, %d idle", active, idle)
		}
		<-answered
		if n := len(b.tr.pool.census.origins); n != 0 {
			t.Errorf("%d origins are left", n)
		}
	})
}

// The alarm that must stay silent: a request on a connection that no attempt was there to send.
func TestCensusSeesAHiddenSendOnATrunk(t *testing.T) {
	inTrunkBubble(t, (*stream).ok, nil, func(t *testing.T, b *trunkBubble) {
		t.Helper()
		b.ok(t, "GET")
		for _, tk := range b.tr.pool.trunks.all()[0].trunks {
			for range 2 { // what nothing in this package does
				r := new(h2.Request)
				r.Start("GET", "/", "127.0.0.1:8443")
				r.Bodyless = true
				if _, err := tk.http.RoundTrip(t.Context(), r, h2.Limits{HeaderBytes: 1 << 10, Headers: 9, BodyBytes: 9, Deadline: time.Now().Add(time.Second)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 2 {
			b.ok(t, "GET")
			if got := b.tr.Connections().HiddenSends; got != 2 {
				t.Errorf("%d hidden sends, want 2", got)
			}
		}
	})
}

// An attempt of which nothing was sent hides no other one's send, and a write that failed whole is none.
func TestCensusTellsUnsentAttemptsFromSent(t *testing.T) {
	var dead atomic.Bool
	inTrunkBubble(t, (*stream).ok, dying(&dead), func(t *testing.T, b *trunkBubble) {
		t.Helper()
		b.ok(t, "GET")
		tk := b.tr.pool.trunks.all()[0].trunks[0]
		dead.Store(true)
		want(t, b.send(t, "GET"), call.EvidenceNotSent, call.FailureConnectionLost)
		if tk.sent != 1 || tk.http.Requests() != 1 || b.tr.Connections().HiddenSends != 0 {
			t.Errorf("%d attempts sent, %d requests, %+v", tk.sent, tk.http.Requests(), b.tr.Connections())
		}
	})
}
