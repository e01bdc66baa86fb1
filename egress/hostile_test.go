package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
)

const (
	hostileAtOnce = 50
	// hostileBody is the body limit of these attempts.
	hostileBody = 64 << 10
	// hostileBound is what one attempt may hold, whatever comes: its body and the piece it outgrew, garbage not yet collected included,
	// and besides them the buffers and heads of a connection.
	hostileBound = 4*hostileBody + 512<<10
	hostileTime  = 300 * time.Millisecond
)

// endlessly writes first, and then the same again and again until the peer ends the connection.
func endlessly(first, again string) func(net.Conn) {
	block := []byte(strings.Repeat(again, max(1, 16<<10/len(again))))
	return func(c net.Conn) {
		_, err := io.WriteString(c, first)
		for err == nil {
			_, err = c.Write(block)
		}
	}
}

// trickling writes first, and then a little every few milliseconds until the peer ends the connection.
func trickling(first, again string) func(net.Conn) {
	return func(c net.Conn) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		_, err := io.WriteString(c, first)
		for err == nil {
			<-tick.C
			_, err = io.WriteString(c, again)
		}
	}
}

// peakOf runs f and gives the highest heap seen beside it, over the heap before it.
func peakOf(f func()) int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, peak := m.HeapAlloc, m.HeapAlloc
	done := make(chan struct{}) // closed when f has returned
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
	})
	f()
	close(done)
	watching.Wait()
	return int(peak - before)
}

const (
	okHead      = "HTTP/1.1 200 OK\r\n"
	chunkedHead = okHead + "Transfer-Encoding: chunked\r\n\r\n"
)

// TestHostileUpstreamIsBoundedInTimeAndMemory sends fifty attempts at once to an upstream that would answer for ever, or too much,
// or too slowly.
func TestHostileUpstreamIsBoundedInTimeAndMemory(t *testing.T) {
	for _, row := range []struct {
		name    string
		answer  func(net.Conn)
		failure call.Failure
		cut     bool // by the attempt's time
	}{
		{"no answer", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, call.FailureAttemptTimeout, true},
		{"a status line that drips", trickling("HTTP/1.1 200 ", "x"), call.FailureAttemptTimeout, true},
		{"headers that drip", trickling(okHead+"A: ", "x"), call.FailureAttemptTimeout, true},
		{"fields that drip", trickling(okHead, "A: x\r\n"), call.FailureAttemptTimeout, true},
		{"interim answers that drip", trickling("", "HTTP/1.1 102 Processing\r\n\r\n"), call.FailureAttemptTimeout, true},
		{"a body of a declared length that drips", trickling(okHead+"Content-Length: 50000\r\n\r\n", "x"), call.FailureAttemptTimeout, true},
		{"chunks that drip", trickling(chunkedHead, "1\r\nx\r\n"), call.FailureAttemptTimeout, true},
		{"a body until close that drips", trickling(okHead+"\r\n", "x"), call.FailureAttemptTimeout, true},
		{"trailers that drip", trickling(chunkedHead+"0\r\n", "A: x\r\n"), call.FailureAttemptTimeout, true},
		{"interim answers without end", endlessly("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), call.FailureResponseTooLarge, false},
		{"a header of 90 KB", endlessly(okHead+"A: "+strings.Repeat("x", 90_000)+"\r\n\r\n", "x"), call.FailureResponseTooLarge, false},
		{"90 KB of headers", endlessly(okHead+strings.Repeat("A: "+strings.Repeat("x", 995)+"\r\n", 90)+"\r\n", "x"), call.FailureResponseTooLarge, false},
		{"a line without end", endlessly(okHead+"A: ", "x"), call.FailureResponseTooLarge, false},
		{"fields without end", endlessly(okHead, "A: x\r\n"), call.FailureResponseTooLarge, false},
		{"chunks without end", endlessly(chunkedHead, "1000\r\n"+strings.Repeat("x", 4096)+"\r\n"), call.FailureResponseTooLarge, false},
		{"chunks of one byte without end", endlessly(chunkedHead, "1\r\nx\r\n"), call.FailureResponseTooLarge, false},
		{"a body until close without end", endlessly(okHead+"\r\n", "x"), call.FailureResponseTooLarge, false},
		{"a declared terabyte", endlessly(okHead+"Content-Length: 1000000000000\r\n\r\n", "x"), call.FailureResponseTooLarge, false},
		{"a chunk of a terabyte", endlessly(chunkedHead+"E8D4A51000\r\n", "x"), call.FailureResponseTooLarge, false},
		{"a chunk extension without end", endlessly(chunkedHead+"1;", "x"), call.FailureResponseTooLarge, false},
		{"chunk extensions without end", endlessly(chunkedHead, "1;a=b\r\nx\r\n"), call.FailureResponseTooLarge, false},
		{"trailers without end", endlessly(chunkedHead+"0\r\n", "A: x\r\n"), call.FailureResponseTooLarge, false},
		{"zeros", endlessly("", "\x00"), call.FailureProtocol, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			u := newUpstream(t, func(_ int, c net.Conn) {
				if _, _, err := request(bufio.NewReader(c)); err == nil {
					row.answer(c)
				}
			})
			results, took, peak := manyAtOnce(t, u, row.cut)
			for _, r := range results {
				if r.Failure != row.failure || r.TimedOut != row.cut || r.Response != nil {
					t.Fatalf("%s, timed out %v (%s), want %s, %v", r.Failure, r.TimedOut, r.Detail, row.failure, row.cut)
				}
			}
			// What does not end by the clock ends by a limit, long before its thirty seconds.
			if row.cut && took < hostileTime || took > 10*time.Second {
				t.Errorf("ended after %s", took)
			}
			if bound := hostileAtOnce * hostileBound; peak > bound {
				t.Errorf("%d KiB at once, more than %d", peak>>10, bound>>10)
			}
			t.Logf("%s, %d KiB for each attempt", took.Round(time.Millisecond), peak>>10/hostileAtOnce)
		})
	}
}

// manyAtOnce sends the attempts, which have a short time when that is what shall end them.
func manyAtOnce(t *testing.T, u *upstream, short bool) (results []call.Result, took time.Duration, peak int) {
	t.Helper()
	tr, p := newTransport(t, nil), loopback(t)
	p.Body.MaxResponseBytes = hostileBody
	results = make([]call.Result, hostileAtOnce)
	allowed := 30 * time.Second
	if short {
		allowed = hostileTime
	}
	start := time.Now()
	peak = peakOf(func() {
		var attempts sync.WaitGroup
		for i := range results {
			attempts.Go(func() {
				results[i] = tr.Send(t.Context(), newCall(t, "GET", u.url("/"), ""), p, attemptOf(allowed))
			})
		}
		attempts.Wait()
		took = time.Since(start)
	})
	return results, took, peak
}

// A drip that keeps every pause short is still cut, by the limit for the whole head.
func TestHeaderTimeoutIsForTheWholeHead(t *testing.T) {
	u := newUpstream(t, func(_ int, c net.Conn) {
		if _, _, err := request(bufio.NewReader(c)); err == nil {
			trickling(okHead, "A: x\r\n")(c)
		}
	})
	p := loopback(t)
	p.Attempt.HeaderTimeout = 100 * time.Millisecond
	start := time.Now()
	r := newTransport(t, nil).Send(t.Context(), newCall(t, "GET", u.url("/"), ""), p, attemptOf(30*time.Second))
	want(t, r, call.EvidencePartialResponse, call.FailureAttemptTimeout)
	if took := time.Since(start); took < p.Attempt.HeaderTimeout || took > 10*time.Second || r.TimedOut {
		t.Errorf("after %s, by the attempt's time %v", took, r.TimedOut)
	}
}

// What is small on the wire stays small: a compressed body goes through as it came.
func TestGzipBombIsNotInflated(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := io.CopyN(z, zeros{}, 4<<20); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	answer := fmt.Sprintf("%sContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", okHead, bomb.Len(), bomb.String())
	u := newUpstream(t, always(answer))
	results, _, peak := manyAtOnce(t, u, false)
	for _, r := range results {
		want(t, r, call.EvidenceAnswered, call.FailureNone)
		if !bytes.Equal(r.Response.Body, bomb.Bytes()) {
			t.Fatalf("%d bytes of %d", len(r.Response.Body), bomb.Len())
		}
		if len(r.Response.Headers) == 0 || r.Response.Headers[0].Value != "gzip" {
			t.Fatalf("headers %v: the caller could not know what the body is", r.Response.Headers)
		}
	}
	if bound := hostileAtOnce * hostileBound; peak > bound {
		t.Errorf("%d KiB at once, more than %d", peak>>10, bound>>10)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Bytes that nobody asked for, after a sound answer: it counts, and the connection serves nobody else.
func TestSurplusWithoutEndIsNotRead(t *testing.T) {
	u := newUpstream(t, func(_ int, c net.Conn) {
		if _, _, err := request(bufio.NewReader(c)); err == nil {
			endlessly(okAnswer, "x")(c)
		}
	})
	results, _, peak := manyAtOnce(t, u, false)
	for _, r := range results {
		want(t, r, call.EvidenceAnswered, call.FailureNone)
		if string(r.Response.Body) != "ok" || r.Reused {
			t.Fatalf("%q on a used connection %v", r.Response.Body, r.Reused)
		}
	}
	if bound := hostileAtOnce * hostileBound; peak > bound {
		t.Errorf("%d KiB at once, more than %d", peak>>10, bound>>10)
	}
}
