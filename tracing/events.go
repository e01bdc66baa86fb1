package tracing

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// reloadKey is a set of files, and whether what they said was refused.
type reloadKey struct {
	what    string
	refused bool
}

// reloadable are the files that are read again. Their counts begin at 0, so that the first refusal is seen as a change.
func reloadable() []string { return []string{"policies", "secrets", "tokens", "certificate"} }

// Reloaded counts files that were read again: "policies", "secrets", "tokens", "certificate", "authorities". refused says that what was in force stays.
func (o *Observer) Reloaded(what string, refused bool) {
	if o.meter != nil {
		o.meter.reload(reloadKey{what, refused}).add()
	}
}

func (m *meter) reload(k reloadKey) *counter {
	return event(&m.reloads, k, attribute.String("sallyport.reload.what", strings.ToUpper(k.what)),
		attribute.String("sallyport.reload.result", either(k.refused, "REFUSED", "OK")))
}

// RPCReasons are those that RPCFailed may be told. Their counts begin at 0.
func (o *Observer) RPCReasons(reasons ...string) {
	for _, reason := range reasons {
		if o.meter != nil {
			event(&o.meter.rpcErrors, reason, keyReason.String(reason))
		}
	}
}

// RPCFailed counts an RPC that ended with an error of the broker's own, by the reason it gives: of a closed list.
func (o *Observer) RPCFailed(reason string) {
	if o.meter != nil {
		event(&o.meter.rpcErrors, reason, keyReason.String(reason)).add()
	}
}

// event gives the counter of a key that no outside input makes up.
func event[K comparable](t *table[K, *counter], k K, attributes ...attribute.KeyValue) *counter {
	c, ok := t.get(k)
	if !ok {
		c, _ = t.add(k, func() (*counter, bool) { return newCounter(attribute.NewSet(attributes...)), true })
	}
	return c
}
