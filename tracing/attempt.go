package tracing

import (
	"context"
	"net/netip"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/engine"
)

// The attributes that are ours.
const (
	keyOrigin   = attribute.Key("sallyport.origin")
	keyCaller   = attribute.Key("sallyport.caller")
	keyOutcome  = attribute.Key("sallyport.outcome")
	keyEffect   = attribute.Key("sallyport.effect")
	keyEvidence = attribute.Key("sallyport.evidence")
	keyDecision = attribute.Key("sallyport.decision")
	keyReason   = attribute.Key("sallyport.reason")
	keyKind     = attribute.Key("sallyport.attempt.kind")
	keyDeferred = attribute.Key("sallyport.deferred_call")
	keyBreaker  = attribute.Key("sallyport.breaker.state")
	keyBudget   = attribute.Key("sallyport.budget.left")
	keyFound    = attribute.Key("sallyport.operation.found")
	keyProbe    = attribute.Key("sallyport.probe.verdict")
	keyCounts   = attribute.Key("sallyport.probe.counts")
)

// startAttempt begins a CLIENT span under the call's. Attributes are built for a sampled one only.
func (o *Observer) startAttempt(t *Call, c *call.Call, a *call.Attempt) trace.Span {
	name, method := methodOf(c.Method)
	ctx := trace.ContextWithSpan(context.Background(), t.span)
	_, span := o.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(a.Start))
	if !span.IsRecording() {
		return span
	}
	span.SetAttributes(method...)
	span.SetAttributes(
		semconv.ServerAddress(c.Target.Host), semconv.ServerPort(int(c.Target.Port)),
		semconv.URLFull(redacted(&c.Target)), keyKind.String(a.Kind.String()),
	)
	if t.attempts > 0 {
		span.SetAttributes(semconv.HTTPRequestResendCount(t.attempts))
	}
	return span
}

// methodOf is the span's name and the attributes of a method: one that is not known to the conventions would make a name, and
// a label, of whatever a caller writes.
func methodOf(method string) (name string, attributes []attribute.KeyValue) {
	if known(method) {
		return method, []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(method)}
	}
	return "HTTP", []attribute.KeyValue{semconv.HTTPRequestMethodOther, semconv.HTTPRequestMethodOriginal(method)}
}

// known: a method of the conventions.
func known(method string) bool {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "QUERY":
		return true
	}
	return false
}

// endAttempt says what came of the attempt, and how that stands after it which all callers of the origin share, and ends its span at
// the attempt's own end.
func endAttempt(span trace.Span, a *call.Attempt, s engine.Shared) {
	ended := a.Start.Add(a.Duration)
	if span.IsRecording() {
		r := &a.Result
		span.SetAttributes(sharedAttributes(ended, s)...)
		span.SetAttributes(keyEvidence.String(r.Evidence.String()), keyDecision.String(a.Decision.Verdict.String()),
			keyReason.String(a.Decision.Reason.String()))
		if r.Status != 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(r.Status))
		}
		if peer, err := netip.ParseAddrPort(r.RemoteAddress); err == nil {
			span.SetAttributes(semconv.NetworkPeerAddress(peer.Addr().String()), semconv.NetworkPeerPort(int(peer.Port())))
		}
		if version, ok := strings.CutPrefix(r.Protocol, "HTTP/"); ok {
			span.SetAttributes(semconv.NetworkProtocolVersion(version))
		}
		if kind := errorType(r); kind != "" {
			span.SetAttributes(semconv.ErrorTypeKey.String(kind))
			span.SetStatus(codes.Error, "")
		}
	}
	span.End(trace.WithTimestamp(ended))
}

// errorType is a word of low cardinality, or the status of an answer that the conventions call an error; "" where there is none.
// A caller that went away is nobody's error.
func errorType(r *call.Result) string {
	switch {
	case r.Failure == call.FailureCancelled:
		return ""
	case r.Failure != call.FailureNone:
		return strings.ToLower(r.Failure.String())
	case r.Status >= 400:
		return strconv.Itoa(r.Status)
	}
	return ""
}

// redacted is the URL without the values of its query: the names tell what was asked, the values may be secrets.
func redacted(t *call.Target) string {
	path, query, found := strings.Cut(t.RequestTarget, "?")
	var b strings.Builder
	b.WriteString(t.Scheme + "://" + t.Authority + path)
	if !found {
		return b.String()
	}
	for i, part := range strings.Split(query, "&") {
		b.WriteByte("?&"[min(i, 1)])
		name, _, hasValue := strings.Cut(part, "=")
		switch {
		case hasValue:
			b.WriteString(name + "=REDACTED")
		case part != "":
			b.WriteString("REDACTED") // a value without a name
		}
	}
	return b.String()
}
