package h1_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/egress/h1"
)

// TestLimitsAreExact reads answers of a known size under a limit one below, at and one above it.
func TestLimitsAreExact(t *testing.T) {
	const head = ok + "A: 1\r\nB: 2\r\nContent-Length: 3\r\n\r\n"
	long := strings.Repeat("x", 20_000)
	headers := func(l *h1.Limits, n int) { l.Headers = n }
	bytes := func(l *h1.Limits, n int) { l.HeaderBytes = n }
	body := func(l *h1.Limits, n int) { l.BodyBytes = int64(n) }
	for _, row := range []struct {
		name, raw string
		set       func(*h1.Limits, int)
		size      int
	}{
		{"bytes of a head", head + "abc", bytes, len(head)},
		{"bytes of a head with LF alone", strings.ReplaceAll(head, "\r", "") + "abc", bytes, len(head) - 5},
		{"bytes of a head longer than the buffer", ok + "A: " + long + "\r\nContent-Length: 0\r\n\r\n", bytes, len(ok) + 3 + 20_000 + 2 + 19 + 2},
		{"bytes of all heads", "HTTP/1.1 103 x\r\nA: 1\r\n\r\n" + head + "abc", bytes, 16 + 6 + 2 + len(head)},
		{"bytes of head and trailers", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: 1\r\n\r\n", bytes, len(ok) + 28 + 2 + 6 + 2},
		{"fields of a head", head + "abc", headers, 3},
		{"fields of all heads and trailers", "HTTP/1.1 103 x\r\nA: 1\r\n\r\n" + ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: 1\r\n\r\n", headers, 3},
		{"body by length", ok + "Content-Length: 1024\r\n\r\n" + long[:1024], body, 1024},
		{"body by chunks", ok + "Transfer-Encoding: chunked\r\n\r\n200\r\n" + long[:512] + "\r\n1FF\r\n" + long[:511] + "\r\n1\r\nx\r\n0\r\n\r\n", body, 1024},
		{"body until close", ok + "\r\n" + long[:1024], body, 1024},
		{"long body until close", ok + "\r\n" + long, body, 20_000},
		{"long body by length", ok + "Content-Length: 20000\r\n\r\n" + long, body, 20_000},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, peer := range []func(string) *peer{whole, dripping} {
				for off, want := range map[int]h1.Kind{-1: h1.TooLarge, 0: 0, 1: 0} {
					lim := roomy()
					row.set(&lim, row.size+off)
					_, err := exchange(t, h1.New(peer(row.raw)), "GET", lim)
					if got := kindOf(t, err); got != want {
						t.Errorf("limit %d%+d: kind %v, want %v (%v)", row.size, off, got, want, err)
					}
				}
			}
		})
	}
}

func TestLineThatFillsTheLimitIsNotWaitedFor(t *testing.T) {
	for _, peer := range []func(string) *peer{whole, dripping} {
		p := peer("HTTP/1.1 200 " + strings.Repeat("x", 87))
		p.end = os.ErrDeadlineExceeded // one more read would end in a time-out
		lim := roomy()
		lim.HeaderBytes = 100
		if _, err := exchange(t, h1.New(p), "GET", lim); kindOf(t, err) != h1.TooLarge {
			t.Error(err)
		}
	}
}

func TestZeroLimitsAllowNothing(t *testing.T) {
	lim := roomy()
	lim.BodyBytes = 0
	for raw, want := range map[string]h1.Kind{
		ok + "Content-Length: 0\r\n\r\n":                             0,
		ok + "Content-Length: 1\r\n\r\nx":                            h1.TooLarge,
		ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n":           0,
		ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n": h1.TooLarge,
		ok + "\r\n":  0,
		ok + "\r\nx": h1.TooLarge,
	} {
		if _, err := exchange(t, h1.New(whole(raw)), "GET", lim); kindOf(t, err) != want {
			t.Errorf("%q: %v, want kind %v", raw, err, want)
		}
	}
	if _, err := exchange(t, h1.New(whole(ok+"\r\n")), "GET", h1.Limits{}); kindOf(t, err) != h1.TooLarge {
		t.Errorf("no header bytes: %v", err)
	}
}

func TestDeclaredLengthOverTheLimitIsRefusedBeforeTheBody(t *testing.T) {
	p := whole(ok + "Content-Length: 1000000000000\r\n\r\n")
	p.end = os.ErrDeadlineExceeded // a read for the body would end in a time-out
	r, err := exchange(t, h1.New(p), "GET", roomy())
	if kindOf(t, err) != h1.TooLarge || r.Status != 200 {
		t.Errorf("status %d: %v", r.Status, err)
	}
}

func TestEndlessAnswersEnd(t *testing.T) {
	interim := "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
	last := ok + "Content-Length: 0\r\n\r\n"
	chunked := ok + "Transfer-Encoding: chunked\r\n\r\n"
	chunk := func(extension int) string { return "1;" + strings.Repeat("e", extension-1) + "\r\nx\r\n" }
	end := "0\r\n\r\n"
	for _, row := range []struct {
		name, raw string
		want      h1.Kind
	}{
		{"100 interim answers", strings.Repeat("HTTP/1.1 100 x\r\n\r\n", 100) + last, 0},
		{"101 interim answers", strings.Repeat("HTTP/1.1 100 x\r\n\r\n", 101) + last, h1.TooLarge},
		{"a flood of interim answers", strings.Repeat(interim, 100_000), h1.TooLarge},
		{"a status line without end", "HTTP/1.1 200 " + strings.Repeat("x", 100_000), h1.TooLarge},
		{"folds without end", ok + "A: b\r\n" + strings.Repeat(" c\r\n", 100_000), h1.TooLarge},
		{"empty folds without end", ok + "A: b\r\n" + strings.Repeat(" \r\n", 100_000), h1.TooLarge},
		{"trailers without end", chunked + "0\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 1000), h1.TooLarge},
		{"a chunk line of 1024 bytes", chunked + chunk(1024-3) + end, 0},
		{"a chunk line of 1025 bytes", chunked + chunk(1024-2) + end, h1.TooLarge},
		{"extensions of 8 KiB", chunked + strings.Repeat(chunk(512), 16) + end, 0},
		{"extensions over 8 KiB", chunked + strings.Repeat(chunk(512), 16) + "1;\r\nx\r\n" + end, h1.TooLarge},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := exchange(t, h1.New(whole(row.raw)), "GET", roomy())
			if kindOf(t, err) != row.want {
				t.Errorf("%v, want kind %v", err, row.want)
			}
		})
	}
}

// TestDeclaredChunkAllocatesLittle: one header line must not cost the memory of the largest body.
func TestDeclaredChunkAllocatesLittle(t *testing.T) {
	lim := roomy()
	lim.BodyBytes = 16 << 20
	c := h1.New(whole(fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", ok, lim.BodyBytes, strings.Repeat("x", 9000))))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := exchange(t, c, "GET", lim)
	runtime.ReadMemStats(&after)
	if kindOf(t, err) != h1.Lost {
		t.Fatal(err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("allocated %d bytes for a body of 9000", grown)
	}
}
