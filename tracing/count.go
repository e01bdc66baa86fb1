package tracing

import (
	"context"
	"net"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/engine"
)

// The attributes that only metrics have; those of spans are the same in both.
const (
	keyFailure    = attribute.Key("sallyport.failure")
	keyStatus     = attribute.Key("sallyport.status_class")
	keyStep       = attribute.Key("sallyport.connection.step")
	keyCause      = attribute.Key("sallyport.breaker.cause")
	keyTokenEvent = attribute.Key("sallyport.budget.event")
	keyTokenBound = attribute.Key("sallyport.budget.bound")
	keyHoldScope  = attribute.Key("sallyport.hold.scope")
	keyLedgerStep = attribute.Key("sallyport.ledger.step")
)

// originSeries is what is counted of one origin.
type originSeries struct {
	name          string
	server        []attribute.KeyValue // address and port, as the conventions have them
	calls         series[callEnd, *counter]
	attempts      series[attemptEnd, *counter]
	refused       series[refusalKey, *counter]
	moves         series[moveKey, *counter]
	tokens, holds series[bool, *counter]
	requests      series[requestKey, *timer]
}

func newOriginSeries(name string) *originSeries {
	label := []attribute.KeyValue{keyOrigin.String(name)}
	s := &originSeries{name: name, server: serverOf(name)}
	s.calls.label, s.attempts.label, s.refused.label, s.moves.label, s.tokens.label, s.holds.label = label, label, label, label, label, label
	s.requests.label = s.server
	return s
}

// serverOf takes an origin, scheme://host:port, apart. Other origins than one have no port in common.
func serverOf(origin string) []attribute.KeyValue {
	_, authority, found := strings.Cut(origin, "://")
	host, port, err := net.SplitHostPort(authority)
	n, noNumber := strconv.ParseUint(port, 10, 16)
	if !found || err != nil || noNumber != nil {
		return []attribute.KeyValue{semconv.ServerAddress(origin)}
	}
	return []attribute.KeyValue{semconv.ServerAddress(host), semconv.ServerPort(int(n))}
}

// callerSeries is what is counted of one caller.
type callerSeries struct {
	outcomes  series[call.Outcome, *counter]
	tokensNot series[bool, *counter]
}

func newCallerSeries(name string) *callerSeries {
	s := &callerSeries{}
	s.outcomes.label = []attribute.KeyValue{keyCaller.String(text(name))}
	s.tokensNot.label = s.outcomes.label
	return s
}

// callEnd is how a call ended.
type callEnd struct {
	outcome call.Outcome
	effect  call.Effect
	reason  call.Reason
}

func (k callEnd) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{keyOutcome.String(k.outcome.String()), keyEffect.String(k.effect.String()), keyReason.String(k.reason.String())}
}

// attemptEnd is how an attempt ended.
type attemptEnd struct {
	kind     call.Kind
	evidence call.Evidence
	failure  call.Failure
	class    int // of the status, 1 to 5; 0: none
}

func attemptEndOf(a *call.Attempt) attemptEnd {
	return attemptEnd{kind: a.Kind, evidence: a.Result.Evidence, failure: a.Result.Failure, class: a.Result.Status / 100}
}

func (k attemptEnd) attributes() []attribute.KeyValue {
	failure, class := "NONE", "NONE"
	if k.failure != call.FailureNone {
		failure = k.failure.String()
	}
	if k.class != 0 {
		class = strconv.Itoa(k.class) + "xx"
	}
	return []attribute.KeyValue{
		keyKind.String(k.kind.String()), keyEvidence.String(k.evidence.String()), keyFailure.String(failure), keyStatus.String(class),
	}
}

// requestKey is what the conventions say of a request: the method, of those that are known, the status, and the error where there is
// one. The zero key is that of requests which have no room of their own: they lose their method and their status.
type requestKey struct {
	method  string
	status  int
	failure call.Failure
}

func (k requestKey) attributes() []attribute.KeyValue {
	method := semconv.HTTPRequestMethodOther
	if k.method != "" {
		method = semconv.HTTPRequestMethodKey.String(k.method)
	}
	all := []attribute.KeyValue{method}
	if k.status != 0 {
		all = append(all, semconv.HTTPResponseStatusCode(k.status))
	}
	kind := errorType(&call.Result{Status: k.status, Failure: k.failure})
	if k.failure == call.FailureCancelled {
		kind = "cancelled" // nobody's error, but no request like the others: it took as long as somebody waited
	}
	if kind != "" {
		all = append(all, semconv.ErrorTypeKey.String(kind))
	}
	return all
}

// refusalKey is an attempt that a rule of ours refused.
type refusalKey struct {
	kind   call.Kind
	reason call.Reason
}

func (k refusalKey) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{keyKind.String(k.kind.String()), keyReason.String(k.reason.String())}
}

// moveKey is where a breaker moved, and by which rule.
type moveKey struct {
	to    breaker.State
	cause breaker.Cause
}

func (k moveKey) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{keyBreaker.String(word(k.to.String())), keyCause.String(word(k.cause.String()))}
}

// word makes a phrase for a person one of the wire's words.
func word(phrase string) string {
	return strings.ToUpper(strings.ReplaceAll(strings.ReplaceAll(phrase, " ", "_"), "-", "_"))
}

func tokenEvent(handedBack bool) []attribute.KeyValue {
	return []attribute.KeyValue{keyTokenEvent.String(either(handedBack, "HANDED_BACK", "GRANTED"))}
}

func tokenBound(share bool) []attribute.KeyValue {
	return []attribute.KeyValue{keyTokenBound.String(either(share, "CALLER_SHARE", "SPENT"))}
}

func holdScope(credential bool) []attribute.KeyValue {
	return []attribute.KeyValue{keyHoldScope.String(either(credential, "CREDENTIAL", "ALL"))}
}

func either(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// call counts a call that has ended.
func (m *meter) call(c *Call, asked *call.Call, f *call.Final) {
	o, k := m.origins.of(asked.Target.Origin), callEnd{f.Outcome, f.Effect, f.Reason}
	m.calls.at(&o.calls, &m.origins.other.calls, k).add()
	m.outcomes.at(&m.callers.of(asked.Caller).outcomes, &m.callers.other.outcomes, f.Outcome).add()
	m.callTimes[min(f.Outcome, call.OutcomeDeferred)].record(c.sample(c.spanID), f.Elapsed.Seconds())
}

// attempt counts an attempt that has ended.
func (m *meter) attempt(c *Call, live *liveAttempt, a *call.Attempt) {
	m.attempts.at(&live.origin.attempts, &m.origins.other.attempts, attemptEndOf(a)).add()
	ctx := c.sample(live.spanID)
	k := requestKey{method: live.method, status: a.Result.Status, failure: a.Result.Failure}
	m.requests.at(&live.origin.requests, &m.origins.other.requests, k).record(ctx, a.Duration.Seconds())
	if a.Queued > 0 {
		m.queued.record(ctx, a.Queued.Seconds())
	}
	if opening := a.Result.Opening; opening != nil {
		m.opened(ctx, opening)
	}
}

func (m *meter) opened(ctx context.Context, o *call.Opening) {
	if o.DNS > 0 {
		m.steps[0].record(ctx, o.DNS.Seconds())
	}
	if o.Connect > 0 {
		m.steps[1].record(ctx, o.Connect.Seconds())
	}
	if o.TLS > 0 {
		m.steps[2].record(ctx, o.TLS.Seconds())
	}
}

// noticed counts what happens between attempts.
func (m *meter) noticed(n *engine.Notice) {
	o, others := m.origins.of(n.Call.Target.Origin), m.origins.other
	switch n.What {
	case engine.WhatRefusal:
		m.refused.at(&o.refused, &others.refused, refusalKey{n.Kind, n.Reason}).add()
	case engine.WhatMove:
		m.moves.at(&o.moves, &others.moves, moveKey{n.Move.To, n.Move.Cause}).add()
	case engine.WhatHold:
		m.holdsSet.at(&o.holds, &others.holds, n.Credential).add()
	case engine.WhatTokenGranted, engine.WhatTokenHandedBack:
		m.tokens.at(&o.tokens, &others.tokens, n.What == engine.WhatTokenHandedBack).add()
	case engine.WhatTokenRefused:
		caller := m.callers.of(n.Call.Caller)
		m.tokensNot.at(&caller.tokensNot, &m.callers.other.tokensNot, n.Token == budget.ReasonCallerShare).add()
	case engine.WhatWait:
	}
}
