package tracing

import (
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sallyport/sallyport/call"
)

// rpcName and fanOutName are the names of the spans of calls and fan-outs (OTel semantic conventions for RPC: package.service/method).
const (
	rpcName    = "sallyport.v1.CallService/Call"
	fanOutName = "sallyport.v1.CallService/FanOut"
)

// dispatchName is the name of the span of a dispatch of a deferred call.
const dispatchName = "sallyport dispatch"

func rpcAttributes(name string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("rpc.system.name", "grpc"),
		attribute.String("rpc.method", name),
	}
}

// EndFanOut ends the span of a fan-out.
func (c *Call) EndFanOut(caller, outcome string, branches int) {
	if c.span == nil {
		return
	}
	c.span.SetAttributes(keyCaller.String(text(caller)), attribute.String("sallyport.fan_out.outcome", outcome), attribute.Int("sallyport.fan_out.branches", branches))
	c.span.End()
}

// End counts a call that was taken and ends its span: why it ended, what is known of its effect, and whose it was.
func (c *Call) End(asked *call.Call, f *call.Final, policy string) {
	if c.meter != nil {
		c.meter.call(c, asked, f)
	}
	c.abandon()
	if c.span == nil {
		return
	}
	if c.span.IsRecording() {
		c.describe(asked, f, policy)
	}
	c.span.End()
}

// describe is apart from End, since what it needs on the stack would be set aside for every call.
func (c *Call) describe(asked *call.Call, f *call.Final, policy string) {
	c.span.SetAttributes(
		keyOutcome.String(f.Outcome.String()),
		keyEffect.String(f.Effect.String()),
		keyReason.String(f.Reason.String()),
		attribute.Int("sallyport.sends", int(f.Sends)),
		keyCaller.String(text(asked.Caller)),
		keyOrigin.String(asked.Target.Origin),
		attribute.String("sallyport.policy", policy),
	)
	if f.OperationID != "" {
		c.span.SetAttributes(attribute.String("sallyport.operation_id", f.OperationID))
	}
	for _, name := range slices.Sorted(maps.Keys(asked.Labels)) {
		c.span.SetAttributes(attribute.String("sallyport.label."+text(name), text(asked.Labels[name])))
	}
}

// internal is the reason of a call that a panic ended. That is no refusal, and something may have been sent; it is the one end of a
// call that the conventions call an error of the server (OTel semantic conventions for gRPC).
const internal = "INTERNAL"

// Refuse ends the span of a call that has no outcome, with the reason of the error that says so.
func (c *Call) Refuse(reason string) {
	c.abandon()
	if c.span == nil {
		return
	}
	c.span.SetAttributes(keyReason.String(reason))
	if reason == internal {
		c.span.SetAttributes(semconv.ErrorTypeKey.String(internal))
		c.span.SetStatus(codes.Error, "")
	} else {
		c.span.AddEvent("refused", trace.WithAttributes(keyReason.String(reason)))
	}
	c.span.End()
}

// abandon ends the spans of attempts that a panic ended.
func (c *Call) abandon() {
	for i := range c.live {
		if span := c.live[i].span; span != nil {
			span.End()
		}
	}
	c.live = nil
}

// text makes a string that every exporter can encode: one attribute that is not UTF-8 would lose a whole batch.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
