package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stalled is a reader that takes nothing until it is let go.
type stalled struct {
	bytes.Buffer
	held chan struct{}
}

func (s *stalled) Write(b []byte) (int, error) {
	<-s.held
	return s.Buffer.Write(b)
}

func TestStalledReaderOfTheLogHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &stalled{held: make(chan struct{})}
		w := newLogWriter(to)
		for i := range 2 * logQueue {
			_, _ = fmt.Fprintf(w, "line %d\n", i) // would hang for ever if it waited
		}
		start := time.Now()
		w.close()
		if took := time.Since(start); took != logCloseTime {
			t.Errorf("the end waited for %s, want %s", took, logCloseTime)
		}
		close(to.held)
		<-w.done
		if !strings.HasPrefix(to.String(), "line 0\nlevel=WARN msg=\"log lines dropped") {
			t.Errorf("wrote %.200s", to.String())
		}
	})
}

func TestLogIsWrittenInOrderAndToItsEnd(t *testing.T) {
	var to bytes.Buffer
	w := newLogWriter(&to)
	want := ""
	for i := range 100 {
		line := fmt.Sprintf("line %d\n", i)
		want += line
		_, _ = w.Write([]byte(line))
	}
	w.close()
	if to.String() != want {
		t.Errorf("wrote %q", to.String())
	}
}
