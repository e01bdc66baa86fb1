package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/sallyport/sallyport/call"
)

// hungExporter is one whose collector says nothing: an export ends a while after the exporter was shut down.
type hungExporter struct {
	shut     chan struct{} // closed by Shutdown
	while    time.Duration
	begun    int
	finished int // exports that have returned
}

func (h *hungExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	h.begun++
	<-h.shut
	time.Sleep(h.while)
	h.finished++
	return errors.New("the client is stopped")
}

func (h *hungExporter) Shutdown(context.Context) error {
	select {
	case <-h.shut:
	default:
		close(h.shut)
	}
	return nil
}

// slowExporter takes its time for every batch.
type slowExporter struct{ takes time.Duration }

func (s slowExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	time.Sleep(s.takes)
	return nil
}

func (slowExporter) Shutdown(context.Context) error { return nil }

// spans ends that many.
func spans(t *testing.T, o *Observer, n int) {
	t.Helper()
	for range n {
		_, c := o.Begin(t.Context(), "", "")
		c.End(&call.Call{}, &call.Final{}, "")
	}
}

// lines is what was logged, by whatever goroutine.
type lines struct {
	mu   sync.Mutex // protects the fields below
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// plainLog is a log without times.
func plainLog(b *lines) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// One span is in an export of 10 s, ten wait, and what comes above them is counted; the log says so once a minute, and at the end.
func TestSpansDroppedByAFullQueueAreCounted(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	synctest.Test(t, func(t *testing.T) {
		var log lines
		lost := &losses{}
		o := newObserver(slowExporter{10 * time.Second}, sdktrace.AlwaysSample(), resource.Empty(), 10, lost, plainLog(&log))
		spans(t, o, 25) // 10 are taken: those of an export count
		synctest.Wait()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		const first = "msg=\"spans are lost: the queue was full\" spans=15 total=15\n"
		if log.String() != first {
			t.Errorf("after the first export:\n%s", log.String())
		}
		spans(t, o, 3) // room for one
		time.Sleep(47 * time.Second)
		synctest.Wait()
		if log.String() != first {
			t.Errorf("within the minute:\n%s", log.String())
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		const second = "msg=\"spans are lost: the queue was full\" spans=2 total=17\n"
		if log.String() != first+second {
			t.Errorf("after the minute:\n%s", log.String())
		}
		time.Sleep(time.Hour)
		spans(t, o, 11)
		synctest.Wait()
		_ = o.Close(t.Context()) // in which one export ends
		const last = "msg=\"spans are lost: the queue was full\" spans=1 total=18\nmsg=\"spans are lost: no time was left to export them\" spans=9\n"
		if log.String() != first+second+last {
			t.Errorf("at the end:\n%s", log.String())
		}
		if got := lost.causes()["QUEUE_FULL"]; got != 18 {
			t.Errorf("counted %d", got)
		}
	})
}

func TestNothingIsSaidOfAQueueThatWasNeverFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		o := newObserver(slowExporter{}, sdktrace.AlwaysSample(), resource.Empty(), 10, &losses{}, plainLog(&log))
		for range 5 {
			spans(t, o, 10)
			time.Sleep(10 * time.Second)
		}
		if err := o.Close(t.Context()); err != nil || log.String() != "" {
			t.Errorf("%v\n%s", err, log.String())
		}
	})
}

// A hung collector holds up the end for a known time, and when Close has returned, no export runs and every loss has been told.
func TestCloseWaitsForTheExportItGivesUp(t *testing.T) {
	for _, tt := range []struct {
		name string
		ends time.Duration // of the context; negative: before Close
		want time.Duration
	}{
		{"drained", time.Hour, 3 * time.Second},
		{"hurried", -1, 300 * time.Millisecond},
		{"hurried while it exports", time.Second, 1300 * time.Millisecond},
		{"hurried at the last moment", 2900 * time.Millisecond, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
			synctest.Test(t, func(t *testing.T) {
				const while = 50 * time.Millisecond
				var log lines
				h, lost := &hungExporter{shut: make(chan struct{}), while: while}, &losses{}
				o := newObserver(h, sdktrace.AlwaysSample(), resource.Empty(), 10, lost, plainLog(&log))
				spans(t, o, 3)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), tt.ends)
				defer cancel()
				began := time.Now()
				err := o.Close(ctx)
				if took := time.Since(began); err == nil || took != tt.want+while {
					t.Errorf("took %s (%v)", took, err)
				}
				if h.begun != 1 || h.finished != 1 {
					t.Errorf("%d exports begun, %d finished", h.begun, h.finished)
				}
				want := fmt.Sprintf("%s spans=1 error=%q\n%s spans=2\n", `msg="spans are lost: the export failed"`, "the client is stopped",
					`msg="spans are lost: no time was left to export them"`)
				if got := log.String(); got != want {
					t.Errorf("logged\n%s\nwant\n%s", got, want)
				}
				if got := lost.causes(); got["EXPORT_FAILED"] != 1 || got["NO_TIME"] != 2 || got["QUEUE_FULL"] != 0 {
					t.Errorf("counted %v", got)
				}
			})
		})
	}
}
