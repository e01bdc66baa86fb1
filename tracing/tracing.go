// Package tracing is the observer that turns calls and attempts into spans and metrics.
//
// One SERVER span stands for a call, under the caller's span by W3C Trace Context in the gRPC metadata; under it one CLIENT span
// for each attempt, failed connections included, side by side. Waits and refusals are events of the call's span, so that a
// call that sent nothing still shows why. The attempt's own traceparent goes upstream, and nothing a caller writes into a header
// does. Nothing here changes a decision, waits for a collector or fails a call.
//
// Spans follow the OpenTelemetry semantic conventions for HTTP and RPC. They carry no header, no body and no query value.
//
// Metrics are counted by the same observer, and read by Prometheus. Their labels are bounded, whoever makes up origins and callers.
package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/engine"
)

// Observer makes the spans of calls, and counts them. The zero value exports nothing and counts nothing: its ids are real all the
// same, so that an upstream that traces joins the caller's trace.
type Observer struct {
	meter    *meter       // nil: nothing is counted
	tracer   trace.Tracer // nil: nothing is exported
	sampler  sdktrace.Sampler
	provider *sdktrace.TracerProvider
	exporter *exporter
}

// Call is the span of one call. It is used by the goroutine of the call.
type Call struct {
	meter    *meter     // nil: nothing is counted
	span     trace.Span // nil: nothing is exported
	place    place      // in its trace
	spanID   trace.SpanID
	traceID  string
	live     []liveAttempt  // those in flight
	first    [1]liveAttempt // where live begins: one attempt costs no memory of its own
	attempts int
}

// liveAttempt is an attempt in flight.
type liveAttempt struct {
	span   trace.Span // nil: nothing is exported
	spanID trace.SpanID
	number uint32
	method string        // of those that are known, else ""
	origin *originSeries // nil: nothing is counted
}

// Begin places a call: under the caller's span when traceparent is valid, else at the root of a new trace. An invalid one never
// fails a call (Trace Context §4.3). The context it returns is the one to make the call with.
func (o *Observer) Begin(ctx context.Context, traceparent, tracestate string) (context.Context, *Call) {
	return o.place(ctx, parentOf(traceparent, tracestate), rpcName, trace.SpanKindServer, rpcAttributes)
}

// BeginFanOut is Begin for a fan-out, whose branches begin with [Observer.BeginBranch].
func (o *Observer) BeginFanOut(ctx context.Context, traceparent, tracestate string) (context.Context, *Call) {
	return o.place(ctx, parentOf(traceparent, tracestate), fanOutName, trace.SpanKindServer, rpcAttributes)
}

// BeginBranch is Begin for a call that is a branch of f: its span is a child of the fan-out's.
func (o *Observer) BeginBranch(ctx context.Context, f *Call, tracestate string) (context.Context, *Call) {
	return o.place(ctx, parentOf(f.traceParent(f.spanID), tracestate), rpcName, trace.SpanKindInternal, rpcAttributes)
}

// BeginDispatch places a dispatch of the deferred call of that name, at the root of a trace of its own: its submission may be days ago.
func (o *Observer) BeginDispatch(ctx context.Context, name string) (context.Context, *Call) {
	return o.place(ctx, context.Background(), dispatchName, trace.SpanKindInternal, func(string) []attribute.KeyValue {
		return []attribute.KeyValue{keyDeferred.String(text(name))}
	})
}

func (o *Observer) place(ctx, above context.Context, name string, kind trace.SpanKind, attributes func(name string) []attribute.KeyValue) (context.Context, *Call) {
	c := &Call{meter: o.meter}
	c.live = c.first[:0]
	if o.tracer == nil {
		c.place.at = placeOf(trace.SpanContextFromContext(above))
	} else {
		c.place.at, c.span = o.begin(above, name, kind)
		if c.span != nil { // else every sampler would say of the attempts what it said of their call, and nothing is built for them
			c.span.SetAttributes(attributes(name)...)
		}
	}
	c.spanID = c.place.at.SpanID()
	c.traceID = c.place.at.TraceID().String()
	return context.WithValue(ctx, callKey{}, c), c
}

// TraceID is the trace's id in hex.
func (c *Call) TraceID() string { return c.traceID }

type callKey struct{}

// parentOf reads the caller's place into a context that has nothing else: the RPC's own may carry a span of the administrative
// interceptors, and the caller's is the parent, or none.
func parentOf(traceparent, tracestate string) context.Context {
	if traceparent == "" {
		return context.Background()
	}
	carrier := propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate}
	return propagation.TraceContext{}.Extract(context.Background(), carrier)
}

// placeOf gives a call its place where nothing is exported. The caller's sampling decision is passed on.
func placeOf(parent trace.SpanContext) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceIDUnder(parent), SpanID: newSpanID(), TraceFlags: parent.TraceFlags() & trace.FlagsSampled,
	})
}

// traceIDUnder is that of the parent, or of a new trace where there is none.
func traceIDUnder(parent trace.SpanContext) trace.TraceID {
	if id := parent.TraceID(); id.IsValid() {
		return id
	}
	return newTraceID()
}

func newTraceID() (id trace.TraceID) {
	for !id.IsValid() { // all zero is the one id that is none
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// spanIDAt is where the span's id stands in a traceparent (Trace Context §3.2.2).
const spanIDAt = len("00-") + 32 + len("-")

// traceParent names a span of this trace.
func (c *Call) traceParent(span trace.SpanID) string {
	var room [spanIDAt + 16 + len("-00")]byte
	b := append(append(append(room[:0], "00-"...), c.traceID...), '-')
	b = append(hex.AppendEncode(b, span[:]), '-')
	return string(hex.AppendEncode(b, []byte{byte(c.place.at.TraceFlags())}))
}

// AttemptStarted begins the attempt's span and fills in its ids (engine.Observer).
func (o *Observer) AttemptStarted(ctx context.Context, c *call.Call, a *call.Attempt) {
	t, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		return
	}
	live := liveAttempt{number: a.Number}
	if t.span == nil {
		live.spanID = newSpanID()
	} else {
		live.span = o.startAttempt(t, c, a)
		live.spanID = live.span.SpanContext().SpanID()
	}
	if o.meter != nil {
		live.origin = o.meter.origins.of(c.Target.Origin)
		if known(c.Method) {
			live.method = c.Method
		}
	}
	t.live = append(t.live, live)
	a.TraceParent = t.traceParent(live.spanID)
	a.TraceID, a.SpanID = t.traceID, a.TraceParent[spanIDAt:spanIDAt+16]
	t.attempts++
}

// AttemptEnded counts the attempt and ends its span, at the moment at which the attempt ended; what was decided after it is known by now.
func (*Observer) AttemptEnded(ctx context.Context, a *call.Attempt, s engine.Shared) {
	t, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		return
	}
	for i := range t.live {
		if live := &t.live[i]; live.number == a.Number {
			if t.meter != nil {
				t.meter.attempt(t, live, a) //nolint:contextcheck // what it measures is of the span, not of the RPC
			}
			if live.span != nil {
				endAttempt(live.span, a, s)
			}
			t.live = slices.Delete(t.live, i, i+1)
			return
		}
	}
}

// AttemptOutlives parts the attempt from its call, which ends now: from here on nobody else touches what the attempt has (engine.Outliving).
func (*Observer) AttemptOutlives(ctx context.Context, number uint32) context.Context {
	t, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		return ctx
	}
	late := &Call{meter: t.meter, place: t.place, spanID: t.spanID, traceID: t.traceID, span: t.span, attempts: t.attempts}
	late.live = late.first[:0]
	for i := range t.live {
		if t.live[i].number == number {
			late.live = append(late.live, t.live[i])
			t.live = slices.Delete(t.live, i, i+1)
			break
		}
	}
	return context.WithValue(ctx, callKey{}, late)
}

// place is a span that knows its place in the trace and no more.
type place struct {
	noop.Span
	at trace.SpanContext
}

// SpanContext is the place.
func (p *place) SpanContext() trace.SpanContext { return p.at }

// sample is the context for a measurement of a span of this trace, the call's or an attempt's: it names the span when the trace is
// sampled, so that the measurement can become an exemplar. It is good until the next one.
func (c *Call) sample(span trace.SpanID) context.Context {
	if !c.place.at.IsSampled() {
		return context.Background()
	}
	c.place.at = c.place.at.WithSpanID(span)
	return trace.ContextWithSpan(context.Background(), &c.place)
}

// Noticed counts what happens between attempts, and makes an event of the call's span of a wait and of a refusal of ours.
func (o *Observer) Noticed(ctx context.Context, now time.Time, n engine.Notice) {
	if o.meter != nil {
		o.meter.noticed(&n)
	}
	if n.What != engine.WhatWait && n.What != engine.WhatRefusal {
		return
	}
	t, ok := ctx.Value(callKey{}).(*Call)
	if !ok || t.span == nil || !t.span.IsRecording() {
		return
	}
	name, attributes := "refused", sharedAttributes(now, n.Shared)
	if n.What == engine.WhatWait {
		name, attributes = "wait", append(attributes, attribute.Float64("sallyport.wait.seconds", n.Wait.Seconds()))
	}
	attributes = append(attributes, keyKind.String(n.Kind.String()), keyReason.String(n.Reason.String()))
	t.span.AddEvent(name, trace.WithTimestamp(now), trace.WithAttributes(attributes...))
}

// sharedAttributes tell how the shared state of the origin stands, in the words of the wire.
func sharedAttributes(now time.Time, s engine.Shared) []attribute.KeyValue {
	return []attribute.KeyValue{keyBreaker.String(word(s.Breaker(now).String())), keyBudget.Float64(s.BudgetLeft(now))}
}
