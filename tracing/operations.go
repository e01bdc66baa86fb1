package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// operationFamilies has the counts begin at 0, so that the first one is seen as a change.
func (m *meter) operationFamilies() {
	for _, how := range []string{"led", "joined", "replayed", "conflict"} {
		m.operation(how)
	}
	for _, verdict := range []string{"NOTHING", "APPLIED", "NOT_APPLIED", "IN_PROGRESS"} {
		m.probe(verdict)
	}
	for _, what := range []string{"begin", "write", "read", "settle", "prune"} {
		m.ledgerFailure(what)
	}
}

func (m *meter) operation(how string) *counter {
	return event(&m.operations, how, keyFound.String(strings.ToUpper(how)))
}

func (m *meter) probe(verdict string) *counter {
	return event(&m.probes, verdict, keyProbe.String(verdict))
}

func (m *meter) ledgerFailure(what string) *counter {
	return event(&m.ledgerFailures, what, keyLedgerStep.String(strings.ToUpper(what)))
}

// OperationAsked counts a call with an operation id by what was found under it: "led", "joined", "replayed" or "conflict". It is an
// event of the call's span.
func (o *Observer) OperationAsked(ctx context.Context, how string) {
	if o.meter != nil {
		o.meter.operation(how).add()
	}
	callEvent(ctx, "operation", keyFound.String(strings.ToUpper(how)))
}

// StatusProbed counts a status probe by its verdict, and makes an event of the call's span of it. counts: a NOT_APPLIED on which something
// may be built.
func (o *Observer) StatusProbed(ctx context.Context, verdict string, status int, counts bool) {
	if o.meter != nil {
		o.meter.probe(verdict).add()
	}
	callEvent(ctx, "status probe", keyProbe.String(verdict), semconv.HTTPResponseStatusCode(status), keyCounts.Bool(counts))
}

// LedgerFailed counts a ledger that could not be used: to "begin", "write", "read", "settle" or "prune".
func (o *Observer) LedgerFailed(what string) {
	if o.meter != nil {
		o.meter.ledgerFailure(what).add()
	}
}

// callEvent adds an event to the span of the call.
func callEvent(ctx context.Context, name string, attributes ...attribute.KeyValue) {
	if t, ok := ctx.Value(callKey{}).(*Call); ok && t.span != nil && t.span.IsRecording() {
		t.span.AddEvent(name, trace.WithAttributes(attributes...))
	}
}
