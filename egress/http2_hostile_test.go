package egress

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/call"
)

// again writes the same until the connection ends.
func again(write func(st *stream) error) func(*stream) {
	return func(st *stream) {
		<-st.done
		st.head(false, ":status", "200")
		for err := error(nil); err == nil; {
			st.write(func() error { err = write(st); return err })
		}
	}
}

// TestHostileHTTP2ServerIsBoundedInTimeAndMemory: fifty attempts at once to a server that would answer for ever, or too much, or not at
// all, on connections they share.
func TestHostileHTTP2ServerIsBoundedInTimeAndMemory(t *testing.T) {
	block := []byte(strings.Repeat("x", 16<<10))
	large := append([]byte("\x88\x00\x01a\x7f\x81\xf0\x36"), strings.Repeat("x", 899_200)...) // a field of that many bytes
	for _, row := range []struct {
		name    string
		serve   func(*stream)
		failure []call.Failure // one of these
		cut     bool           // by the attempt's time
	}{
		{"no answer", func(*stream) {}, []call.Failure{call.FailureAttemptTimeout}, true},
		{"no settings and no window", func(st *stream) { st.head(false, ":status", "200") }, []call.Failure{call.FailureAttemptTimeout}, true},
		{"a body that drips", func(st *stream) {
			st.head(false, ":status", "200")
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for err := error(nil); err == nil; <-tick.C {
				st.write(func() error { err = st.fr.WriteData(st.id, false, []byte("x")); return err })
			}
		}, []call.Failure{call.FailureAttemptTimeout}, true},
		{
			"a body without end", again(func(st *stream) error { return st.fr.WriteData(st.id, false, block) }),
			[]call.Failure{call.FailureResponseTooLarge, call.FailureProtocol, call.FailureConnectionLost},
			false,
		},
		{"interim answers without end", func(st *stream) {
			for range 1000 {
				st.head(false, ":status", "103", "link", "</a>")
			}
		}, []call.Failure{call.FailureResponseTooLarge}, false},
		{
			"a head of 900 KB", func(st *stream) { st.write(func() error { return st.block(true, large) }) },
			[]call.Failure{call.FailureResponseTooLarge},
			false,
		},
		{"a head without end", func(st *stream) {
			st.write(func() error {
				err := st.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: st.id, BlockFragment: []byte{0x88}})
				for err == nil {
					err = st.fr.WriteContinuation(st.id, false, block)
				}
				return err
			})
		}, []call.Failure{call.FailureResponseTooLarge, call.FailureConnectionLost, call.FailureProtocol}, false},
		{
			"pings without end", again(func(st *stream) error { return st.fr.WritePing(false, [8]byte{}) }),
			[]call.Failure{call.FailureProtocol, call.FailureConnectionLost},
			false,
		},
		{
			"settings without end", again(func(st *stream) error { return st.fr.WriteSettings() }),
			[]call.Failure{call.FailureProtocol, call.FailureConnectionLost},
			false,
		},
		{
			"empty frames without end", again(func(st *stream) error { return st.fr.WriteData(st.id, false, nil) }),
			[]call.Failure{call.FailureProtocol, call.FailureConnectionLost},
			false,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			u := newStreams(t, row.serve, nil)
			tr, p := newTransport(t, nil), u.policy(t)
			p.Body.MaxResponseBytes = hostileBody
			allowed := 30 * time.Second
			if row.cut {
				allowed = time.Second
			}
			results := make([]call.Result, hostileAtOnce)
			start := time.Now()
			var took time.Duration
			peak := peakOf(func() {
				var attempts sync.WaitGroup
				for i := range results {
					attempts.Go(func() {
						results[i] = tr.Send(t.Context(), newCall(t, "GET", u.url("/"), ""), p, attemptOf(allowed))
					})
				}
				attempts.Wait()
				took = time.Since(start)
			})
			for _, r := range results {
				if r.TimedOut != row.cut || r.Response != nil || !slices.Contains(row.failure, r.Failure) {
					t.Errorf("%s, %s, timed out %t (%s)", r.Evidence, r.Failure, r.TimedOut, r.Detail)
				}
			}
			if took > 20*time.Second {
				t.Errorf("ended after %s", took)
			}
			if bound := hostileAtOnce * hostileBound; peak > bound {
				t.Errorf("%d KiB at once, more than %d", peak>>10, bound>>10)
			}
			t.Logf("%s, %d KiB for each attempt, %d connections", took.Round(time.Millisecond), peak>>10/hostileAtOnce, u.connections())
		})
	}
}
