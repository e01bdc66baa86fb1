package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// logQueue lines may wait for a slow reader of the log; beyond it they are dropped and counted.
	logQueue = 4096
	// logCloseTime bounds the wait for the last lines.
	logCloseTime = time.Second
)

// logWriter hands lines on to where they are written, without ever waiting for it: a reader of the log that stalls must hold up no
// call, and no end of the broker.
type logWriter struct {
	lines   chan []byte   // closed by close
	done    chan struct{} // closed by run
	dropped atomic.Uint64

	mu     sync.Mutex // protects the field below, and the channel from a send after its end
	closed bool
}

func newLogWriter(to io.Writer) *logWriter {
	w := &logWriter{lines: make(chan []byte, logQueue), done: make(chan struct{})}
	go w.run(to)
	return w
}

// Write takes a line, or drops it.
func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return len(line), nil
	}
	select {
	case w.lines <- bytes.Clone(line):
	default:
		w.dropped.Add(1)
	}
	return len(line), nil
}

func (w *logWriter) run(to io.Writer) {
	defer close(w.done)
	for line := range w.lines {
		_, _ = to.Write(line) // there is no other place to say that the log is gone
		if n := w.dropped.Swap(0); n > 0 {
			_, _ = fmt.Fprintf(to, "level=WARN msg=\"log lines dropped, their reader is too slow\" lines=%d\n", n)
		}
	}
}

// close writes what is left, for a while.
func (w *logWriter) close() {
	w.mu.Lock()
	w.closed = true
	close(w.lines)
	w.mu.Unlock()
	timer := time.NewTimer(logCloseTime)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
	}
}
