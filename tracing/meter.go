package tracing

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"

	"github.com/sallyport/sallyport/call"
)

// meter counts and times what the observer hears. What happens on the path of a call costs an addition, or one record of a histogram,
// under a series that was made once; everything else is read when somebody scrapes. Instruments are of OpenTelemetry, and Prometheus
// reads them (docs/metrics.md has all).
type meter struct {
	provider *sdkmetric.MeterProvider
	registry *prometheus.Registry
	watched  atomic.Pointer[Watched]
	lost     *losses

	origins *names[originSeries]
	callers *names[callerSeries]

	calls     *family[callEnd, *counter]
	attempts  *family[attemptEnd, *counter]
	refused   *family[refusalKey, *counter]
	moves     *family[moveKey, *counter]
	tokens    *family[bool, *counter]
	holdsSet  *family[bool, *counter]
	requests  *family[requestKey, *timer]
	outcomes  *family[call.Outcome, *counter]
	tokensNot *family[bool, *counter]

	rpcErrors      table[string, *counter]
	operations     table[string, *counter]
	probes         table[string, *counter]
	ledgerFailures table[string, *counter]
	reloads        table[reloadKey, *counter]

	callTimes [call.OutcomeDeferred + 1]*timer // by outcome
	steps     [3]*timer                        // of a fresh connection: DNS, connect, TLS
	queued    *timer
}

// timer is one series of a histogram.
type timer struct {
	histogram metric.Float64Histogram
	options   []metric.RecordOption // the attributes, resolved once
}

func newTimer(h metric.Float64Histogram, set attribute.Set) *timer {
	return &timer{h, []metric.RecordOption{metric.WithAttributeSet(set)}}
}

// record takes a duration. ctx tells the trace of an exemplar, if the trace is sampled.
func (t *timer) record(ctx context.Context, seconds float64) {
	t.histogram.Record(ctx, seconds, t.options...)
}

// bounds are those of every histogram, in seconds: 1 ms to 60 s, which is as far as deadlines go without a policy.
func bounds() metric.HistogramOption {
	return metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
}

// cardinality is the SDK's own bound of an instrument's series. It is beyond what names and families allow, and so the second of two
// locks: the SDK would put all that is beyond it into one series without any label.
const cardinality = 20_000

// newMeter makes the instruments. More readers get the same as Prometheus.
func newMeter(version string, lost *losses, options ...sdkmetric.Option) (*meter, error) {
	m := &meter{registry: prometheus.NewRegistry(), lost: lost}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(m.registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithoutTargetInfo(), otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	m.provider = sdkmetric.NewMeterProvider(append([]sdkmetric.Option{
		sdkmetric.WithReader(reader), sdkmetric.WithExemplarFilter(exemplar.TraceBasedFilter), sdkmetric.WithCardinalityLimit(cardinality),
	}, options...)...)
	in := &instruments{meter: m.provider.Meter("github.com/sallyport/sallyport")}
	m.histograms(in)
	m.families()
	m.observed(in, version)
	if in.err != nil {
		return nil, fmt.Errorf("metrics: %w", in.err)
	}
	return m, nil
}

func (m *meter) histograms(in *instruments) {
	calls := in.histogram("sallyport.call.duration", "How long calls took, from the moment the broker took them.")
	requests := in.histogram("http.client.request.duration", "How long attempts took.")
	opening := in.histogram("sallyport.connection.open.duration", "How long the steps to a fresh connection took.")
	queue := in.histogram("sallyport.queue.wait", "How long attempts waited for a slot of the concurrency limit, of those that waited.")
	for o := range m.callTimes {
		m.callTimes[o] = newTimer(calls, attribute.NewSet(keyOutcome.String(call.Outcome(o).String())))
	}
	for i, step := range []string{"DNS", "CONNECT", "TLS"} {
		m.steps[i] = newTimer(opening, attribute.NewSet(keyStep.String(step)))
	}
	m.queued = newTimer(queue, *attribute.EmptySet())
	const (
		// exemplarWidth is what the line of a bucket with an exemplar has more: the ids, the value and the time.
		exemplarWidth = 110
		buckets       = 16
		lines         = buckets + 2 // sum and count
		width         = len(`http_client_request_duration_seconds_bucket{le="0.0025"} `) + digits + exemplarWidth*buckets/lines
	)
	m.requests = newFamily(2_100<<10, lines, width, requestKey.attributes, func(set attribute.Set) *timer { return newTimer(requests, set) })
}

// digits are those of a large number.
const digits = 12

// families gives the counters of origins and callers their room.
func (m *meter) families() {
	const line = 1
	m.calls = newFamily(384<<10, line, len("sallyport_calls_total{} ")+digits, callEnd.attributes, newCounter)
	m.attempts = newFamily(448<<10, line, len("sallyport_attempts_total{} ")+digits, attemptEnd.attributes, newCounter)
	m.refused = newFamily(96<<10, line, len("sallyport_attempts_refused_total{} ")+digits, refusalKey.attributes, newCounter)
	m.moves = newFamily(96<<10, line, len("sallyport_breaker_transitions_total{} ")+digits, moveKey.attributes, newCounter)
	m.tokens = newFamily(112<<10, line, len("sallyport_budget_tokens_total{} ")+digits, tokenEvent, newCounter)
	m.holdsSet = newFamily(48<<10, line, len("sallyport_holds_set_total{} ")+digits, holdScope, newCounter)
	m.outcomes = newFamily(160<<10, line, len("sallyport_caller_calls_total{} ")+digits,
		func(o call.Outcome) []attribute.KeyValue { return []attribute.KeyValue{keyOutcome.String(o.String())} }, newCounter)
	m.tokensNot = newFamily(64<<10, line, len("sallyport_budget_refused_total{} ")+digits, tokenBound, newCounter)
	for _, what := range reloadable() {
		m.reload(reloadKey{what, false})
		m.reload(reloadKey{what, true})
	}
	m.operationFamilies()
	m.origins = newNames(newOriginSeries)
	m.callers = newNames(newCallerSeries)
}

// instruments makes instruments, and keeps the first error.
type instruments struct {
	meter metric.Meter
	all   []metric.Observable
	err   error
}

func (in *instruments) keep(err error) {
	if in.err == nil {
		in.err = err
	}
}

func (in *instruments) histogram(name, about string) metric.Float64Histogram {
	h, err := in.meter.Float64Histogram(name, metric.WithDescription(about), metric.WithUnit("s"), bounds())
	in.keep(err)
	return h
}

func (in *instruments) counter(name, unit, about string) metric.Int64Observable {
	c, err := in.meter.Int64ObservableCounter(name, metric.WithDescription(about), metric.WithUnit(unit))
	in.keep(err)
	in.all = append(in.all, c)
	return c
}

// level is what goes up and down and may be added up.
func (in *instruments) level(name, unit, about string) metric.Int64Observable {
	c, err := in.meter.Int64ObservableUpDownCounter(name, metric.WithDescription(about), metric.WithUnit(unit))
	in.keep(err)
	in.all = append(in.all, c)
	return c
}
