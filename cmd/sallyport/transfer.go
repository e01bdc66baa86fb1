package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// progressEvery is how often a person is told how far it is.
const progressEvery = 200 * time.Millisecond

// progressLine is one line that is written again and again while something goes on, at a terminal only.
type progressLine struct {
	to    io.Writer
	shown time.Time // when it was last written
}

// show writes the line, if it is time.
func (l *progressLine) show(text func() string) {
	if now := clock(); isTerminal(l.to) && now.Sub(l.shown) >= progressEvery {
		l.shown = now
		sayf(l.to, "\r\x1b[K%s", text())
	}
}

// off takes the line away, so that what comes next begins at the left.
func (l *progressLine) off() {
	if isTerminal(l.to) {
		sayf(l.to, "\r\x1b[K")
		l.shown = time.Time{}
	}
}

// transfer tells a person how far a stream is.
type transfer struct {
	upSize int64 // 0: not known

	mu       sync.Mutex // protects the fields below
	line     progressLine
	began    time.Time // with the first byte
	up, down int64
	downSize int64
}

func (t *transfer) add(up, down int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began.IsZero() {
		t.began = clock()
	}
	t.up, t.down = t.up+int64(up), t.down+int64(down)
	t.line.show(func() string { return t.textLocked(clock()) })
}

// head reads the size of the answer.
func (t *transfer) head(r *pb.HttpResponse) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range r.GetHeaders() {
		if n, err := strconv.ParseInt(h.GetValue(), 10, 64); err == nil && n > 0 && strings.EqualFold(h.GetName(), "Content-Length") {
			t.downSize = n
		}
	}
	return nil
}

func (t *transfer) off() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line.off()
}

// received is how many bytes of the answer came.
func (t *transfer) received() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.down
}

func (t *transfer) textLocked(now time.Time) string {
	passed := now.Sub(t.began).Seconds()
	var parts []string
	for _, way := range []struct {
		name    string
		n, size int64
	}{{"sent", t.up, t.upSize}, {"received", t.down, t.downSize}} {
		if way.n == 0 {
			continue
		}
		text := way.name + " " + sizeText(float64(way.n))
		if way.size > 0 {
			text += " of " + sizeText(float64(way.size)) + " " + bar(float64(way.n)/float64(way.size))
		}
		if passed > 0 {
			text += ", " + sizeText(float64(way.n)/passed) + "/s"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// bar is a share as a picture.
func bar(share float64) string {
	const cells = 20
	full := int(min(max(share, 0), 1) * cells)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", cells-full) + "]"
}

// sizeText writes bytes with a binary unit (IEC 80000-13).
func sizeText(n float64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%.0f B", n)
	}
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		if n /= 1 << 10; n < 1<<10 {
			return fmt.Sprintf("%.1f %s", n, unit)
		}
	}
	return fmt.Sprintf("%.1f TiB", n/(1<<10))
}

// reading counts what is read.
func (t *transfer) reading(r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		t.add(n, 0)
		return n, err //nolint:wrapcheck // io.EOF must stay it
	})
}

// writing counts what is written.
func (t *transfer) writing(w io.Writer) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		t.add(0, n)
		return n, err //nolint:wrapcheck // as it is
	})
}

type (
	readerFunc func([]byte) (int, error)
	writerFunc func([]byte) (int, error)
)

// Read calls the function (io.Reader).
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Write calls the function (io.Writer).
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
