package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// New makes the observer that the standard OTEL_* variables ask for. Without an OTLP endpoint in them it exports nothing; with one, a
// variable that is broken is an error, which names all that are and holds no secret. The endpoint need not be there: spans wait in a
// bounded queue and are dropped when it is full. log hears of every span that is lost. It counts in every case, for Scrape.
func New(ctx context.Context, env Environment, version string, log *slog.Logger) (*Observer, error) {
	var wrong []error
	for _, s := range []signal{env.traces(), env.metrics()} {
		if !s.off() {
			wrong = append(wrong, s.check())
		}
	}
	if err := once(wrong); err != nil {
		return nil, err
	}
	var res *resource.Resource
	if !env.traces().off() || !env.metrics().off() {
		var err error
		if res, err = whoWeAre(ctx, version); err != nil {
			return nil, err
		}
	}
	o, lost := &Observer{}, &losses{}
	if s := env.traces(); !s.off() {
		name, protocol := s.otlp("PROTOCOL")
		out, err := newExporter(ctx, protocol)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", name, protocol, err)
		}
		o = newObserver(out, env.sampler(), res, env.numberOr("OTEL_BSP_MAX_QUEUE_SIZE", sdktrace.DefaultMaxQueueSize), lost, log)
	}
	readers, err := metricReaders(ctx, env.metrics(), res, log)
	if err != nil {
		return nil, err
	}
	o.meter, err = newMeter(version, lost, readers...)
	return o, err
}

// once joins errors, each once: two signals may have the same broken variable in force.
func once(all []error) error {
	var lines []string
	for _, err := range all {
		if err == nil {
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSuffix(line, "\n"); !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// whoWeAre is the resource. Of the attributes of the environment the name wins over ours, as OTEL_SERVICE_NAME should.
func whoWeAre(ctx context.Context, version string) (*resource.Resource, error) {
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "sallyport"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return res, nil
}

// newObserver puts the queue between the spans and the exporter. Its times come from OTEL_BSP_*, which the SDK reads itself.
func newObserver(out sdktrace.SpanExporter, sampler sdktrace.Sampler, res *resource.Resource, capacity int, lost *losses, log *slog.Logger) *Observer {
	b := &backlog{losses: lost, capacity: int64(capacity)}
	e := &exporter{out: out, backlog: b, log: log, ended: make(chan struct{})}
	batches := sdktrace.NewBatchSpanProcessor(e, sdktrace.WithMaxQueueSize(capacity))
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(queue{batches, b}), sdktrace.WithResource(res),
		sdktrace.WithSampler(sampler), sdktrace.WithIDGenerator(ids{}))
	return &Observer{provider: provider, exporter: e, sampler: sampler, tracer: provider.Tracer("github.com/sallyport/sallyport")}
}

func newExporter(ctx context.Context, protocol string) (sdktrace.SpanExporter, error) {
	if protocol == "http/protobuf" {
		return otlptracehttp.New(ctx) //nolint:wrapcheck // New names the variable
	}
	return otlptracegrpc.New(ctx) //nolint:wrapcheck // as above
}

// The last export is bounded: a collector that hangs must not hold up the end of the process.
const (
	shutdownTime = 3 * time.Second
	// hurriedTime is what is left of it once the context of Close has ended: who sends a second signal wants the end now.
	hurriedTime = 300 * time.Millisecond
)

// Close exports what is left, for a short while, and for a shorter one from the moment at which ctx ends. It returns after every
// export has ended.
func (o *Observer) Close(ctx context.Context) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(hurriedTime, cancel) })()
	// Both at once: a collector that hangs must not have the time twice.
	measured := make(chan error, 1) // receives one value, is never closed
	go func() { measured <- o.meter.close(last) }()
	err := o.closeSpans(last)
	return errors.Join(err, <-measured)
}

func (o *Observer) closeSpans(last context.Context) error {
	if o.provider == nil {
		return nil
	}
	if err := o.provider.Shutdown(last); err != nil {
		// The SDK stops waiting, and leaves its export running: it ends with the exporter, at once when the time is already up.
		o.exporter.abort(last)
		<-o.exporter.ended
		return fmt.Errorf("last export: %w", err)
	}
	return nil
}
