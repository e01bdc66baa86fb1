package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// losses are the spans that were not exported, by cause.
type losses struct {
	dropped atomic.Int64 // the queue was full
	failed  atomic.Int64 // the collector did not take them
	late    atomic.Int64 // no time was left at the end
}

// causes are the numbers by the word of each cause.
func (l *losses) causes() map[string]int64 {
	return map[string]int64{"QUEUE_FULL": l.dropped.Load(), "EXPORT_FAILED": l.failed.Load(), "NO_TIME": l.late.Load()}
}

// backlog counts the spans that wait for their export, and those that found no room. The SDK drops without a word; since no more than
// capacity are let through to its queue, which holds as many, it never has to.
type backlog struct {
	*losses
	capacity int64
	waiting  atomic.Int64 // those of an export that is under way included
}

// queue stands in front of the SDK's queue.
type queue struct {
	sdktrace.SpanProcessor
	backlog *backlog
}

// OnEnd takes a span or drops it, and never waits.
func (q queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return // the SDK's queue does not take it
	}
	if q.backlog.waiting.Add(1) > q.backlog.capacity {
		q.backlog.waiting.Add(-1)
		q.backlog.dropped.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// dropsEvery is the least time between two lines about spans that were dropped: a flood of spans must not become one of lines.
const dropsEvery = time.Minute

// exporter is the end of the queue. What is lost goes to the log of the broker: the SDK would print it on a line of its own making.
// Its calls come one after the other (trace SDK specification, §Span Exporter), so that the log is written by no call's goroutine.
type exporter struct {
	out     sdktrace.SpanExporter
	backlog *backlog
	log     *slog.Logger
	stopped atomic.Bool   // the time of the last export is up
	ended   chan struct{} // closed by Shutdown

	told     int64     // of dropped, as far as the log knows
	toldTime time.Time // of the last line about them
}

// ExportSpans exports a batch.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer e.backlog.waiting.Add(int64(-len(spans)))
	if e.stopped.Load() {
		e.backlog.late.Add(int64(len(spans)))
		return nil
	}
	if err := e.out.ExportSpans(ctx, spans); err != nil {
		e.backlog.failed.Add(int64(len(spans)))
		e.log.Warn("spans are lost: the export failed", "spans", len(spans), "error", err)
	}
	if time.Since(e.toldTime) >= dropsEvery {
		e.tellDropped()
	}
	return nil
}

func (e *exporter) tellDropped() {
	if total := e.backlog.dropped.Load(); total > e.told {
		e.log.Warn("spans are lost: the queue was full", "spans", total-e.told, "total", total)
		e.told, e.toldTime = total, time.Now()
	}
}

// Shutdown comes once, after the last ExportSpans has returned: the SDK calls it when its queue is empty.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer close(e.ended)
	e.tellDropped()
	if late := e.backlog.late.Load(); late > 0 {
		e.log.Warn("spans are lost: no time was left to export them", "spans", late)
	}
	return e.out.Shutdown(ctx) //nolint:wrapcheck // Close says what it was
}

// abort ends an export that is under way, and has those behind it give up at once.
func (e *exporter) abort(ctx context.Context) {
	e.stopped.Store(true)
	over, now := context.WithCancel(ctx)
	now()
	_ = e.out.Shutdown(over) // which says that the time is up
}
