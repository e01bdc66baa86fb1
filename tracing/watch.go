package tracing

import (
	"context"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/budget"
	"github.com/sallyport/sallyport/bulkhead"
	"github.com/sallyport/sallyport/engine"
)

// Watched are the parts of a broker that are read when somebody scrapes. A field that is nil is not read.
type Watched struct {
	// Origins are what callers share.
	Origins *engine.Origins
	// Load tells how full the broker is.
	Load func() Load
	// Connections tells what became of connections to upstreams, EachOrigin how many each origin has.
	Connections func() Connections
	EachOrigin  func(f func(origin string, active, idle int64))
	// Loosened are the settings that make the broker less safe than it is by itself, and how far: 0 for one that is not used.
	Loosened map[string]int64
}

// Load is how full a broker is, and what it may hold.
type Load struct {
	Calls, MaxCalls, Bytes, MaxBytes uint64
	// Receptions take in messages, of calls and of strangers (health, reflection).
	Calling, Strangers Reception
}

// Reception is how many messages are being received, how many wait for that, and how many may be received at once.
type Reception struct{ Receiving, Waiting, Slots int64 }

// Connections count what became of connections. They only grow; egress.Connections says what each is.
type Connections struct {
	Fresh, Reused, Shared, FoundClosed, DiedIdle, DiedInUse, Unasked, HiddenSends uint64
}

// Watch has these parts read from now on.
func (o *Observer) Watch(w Watched) {
	if o.meter != nil {
		o.meter.watched.Store(&w)
	}
}

// observed are the instruments that are read at a scrape.
type observed struct {
	calls, callerCalls, attempts, refused, moves, tokens, tokensNot, holdsSet, rpcErrors, reloads, lost      metric.Int64Observable
	operations, probes, ledgerFailures                                                                       metric.Int64Observable
	breakers, inFlight, pending, limit, holds, open, callsNow, callsMax, bytesNow, bytesMax, messages, slots metric.Int64Observable
	taken, deaths, hidden, loosened, build, told                                                             metric.Int64Observable
	left                                                                                                     metric.Float64Observable
	version                                                                                                  string
}

// observed makes them. The units are those of UCUM; one in braces is a word for what is counted.
func (m *meter) observed(in *instruments, version string) {
	i := &observed{
		version:        version,
		calls:          in.counter("sallyport.calls", "{call}", "Calls that ended, by outcome, effect and reason."),
		callerCalls:    in.counter("sallyport.caller.calls", "{call}", "Calls that ended, by caller."),
		attempts:       in.counter("sallyport.attempts", "{attempt}", "Attempts that ended, by what was proved of them."),
		refused:        in.counter("sallyport.attempts.refused", "{attempt}", "Attempts that a rule of the broker refused before anything was dialled."),
		moves:          in.counter("sallyport.breaker.transitions", "{transition}", "Moves of breakers, by the state moved to and the rule that moved it."),
		tokens:         in.counter("sallyport.budget.tokens", "{token}", "Tokens that retry budgets granted, and those of them that were handed back."),
		tokensNot:      in.counter("sallyport.budget.refused", "{token}", "Tokens that retry budgets refused, by caller."),
		holdsSet:       in.counter("sallyport.holds.set", "{hold}", "Holds set, or made longer, by an upstream's Retry-After."),
		rpcErrors:      in.counter("sallyport.rpc.errors", "{rpc}", "RPCs that ended with an error of the broker's own."),
		operations:     in.counter("sallyport.operations", "{call}", "Calls with an operation id, by what was found under it."),
		probes:         in.counter("sallyport.status_probes", "{probe}", "Status probes of operations whose effect was unknown, by what they said."),
		ledgerFailures: in.counter("sallyport.ledger.failures", "{failure}", "Times that the ledger of operations could not be used."),
		reloads:        in.counter("sallyport.reloads", "{reload}", "Files read again: policies, secrets, tokens, certificate."),
		lost:           in.counter("sallyport.spans.lost", "{span}", "Spans that were not exported."),

		breakers: in.level("sallyport.breakers", "{breaker}", "Breakers in each state; an origin has one for each settings."),
		inFlight: in.level("sallyport.bulkhead.in_flight", "{attempt}", "Attempts in flight."),
		pending:  in.level("sallyport.bulkhead.queued", "{attempt}", "Attempts that wait for a slot of the concurrency limit."),
		limit:    in.level("sallyport.bulkhead.limit", "{attempt}", "Attempts that may be in flight at once; an origin without a limit has none."),
		holds:    in.level("sallyport.holds", "{hold}", "Holds that stand."),
		open:     in.level("http.client.open_connections", "{connection}", "Open connections to upstreams."),
		callsNow: in.level("sallyport.calls.in_flight", "{call}", "Calls in flight."),
		callsMax: in.level("sallyport.calls.limit", "{call}", "Calls that may be in flight at once (--max-calls)."),
		bytesNow: in.level("sallyport.calls.held", "By", "Bytes that the calls in flight count toward --max-bytes."),
		bytesMax: in.level("sallyport.calls.held.limit", "By", "Bytes that they may count (--max-bytes)."),
		messages: in.level("sallyport.reception.messages", "{message}", "gRPC messages that are being received, or wait for that."),
		slots:    in.level("sallyport.reception.slots", "{message}", "Large gRPC messages that may be received at once."),
		told:     in.level("sallyport.labels", "{name}", "Origins and callers that have labels of their own, of 1000 each; the others count as other."),

		taken:    in.counter("sallyport.connection.uses", "{connection}", "Connections taken for an attempt, fresh or idle ones."),
		deaths:   in.counter("sallyport.connection.deaths", "{connection}", "Connections that ended otherwise than the broker wanted, while idle or at the end of it."),
		hidden:   in.counter("sallyport.hidden.sends", "{request}", "Requests that a connection wrote beyond the one of its attempt; anything but 0 is an error in the broker."),
		loosened: in.level("sallyport.loosened", "{setting}", "Settings that make the broker less safe: 0 not used, else 1 or the number of ranges."),
		build:    in.level("sallyport.build.info", "", "1, with the version of the broker and of Go."),
	}
	left, err := in.meter.Float64ObservableGauge("sallyport.budget.left", metric.WithUnit("{attempt}"),
		metric.WithDescription("What is left of the retry budget; below 1 it refuses. The least of an origin's budgets."))
	in.keep(err)
	i.left = left
	_, err = in.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		m.observe(i, o)
		return nil
	}, append(in.all, left)...)
	in.keep(err)
}

// observe reads everything once.
func (m *meter) observe(i *observed, o metric.Observer) {
	now := time.Now()
	m.observeCounters(i, o)
	o.ObserveInt64(i.build, 1, with(attribute.String("version", i.version), attribute.String("go_version", runtime.Version())))
	o.ObserveInt64(i.told, m.origins.told(), with(attribute.String("sallyport.label", "ORIGIN")))
	o.ObserveInt64(i.told, m.callers.told(), with(attribute.String("sallyport.label", "CALLER")))
	for cause, n := range m.lost.causes() {
		o.ObserveInt64(i.lost, n, with(attribute.String("sallyport.loss", cause)))
	}
	w := m.watched.Load()
	if w == nil {
		return
	}
	m.observeOrigins(i, o, w, now)
	if w.Load != nil {
		observeLoad(i, o, w.Load())
	}
	if w.Connections != nil {
		observeConnections(i, o, w.Connections())
	}
	for setting, n := range w.Loosened {
		o.ObserveInt64(i.loosened, n, with(attribute.String("sallyport.setting", setting)))
	}
}

func with(attributes ...attribute.KeyValue) metric.ObserveOption {
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}

func (m *meter) observeCounters(i *observed, o metric.Observer) {
	m.origins.each(func(s *originSeries) {
		observeAll(o, i.calls, &s.calls.known)
		observeAll(o, i.attempts, &s.attempts.known)
		observeAll(o, i.refused, &s.refused.known)
		observeAll(o, i.moves, &s.moves.known)
		observeAll(o, i.tokens, &s.tokens.known)
		observeAll(o, i.holdsSet, &s.holds.known)
	})
	m.callers.each(func(s *callerSeries) {
		observeAll(o, i.callerCalls, &s.outcomes.known)
		observeAll(o, i.tokensNot, &s.tokensNot.known)
	})
	observeAll(o, i.rpcErrors, &m.rpcErrors)
	observeAll(o, i.reloads, &m.reloads)
	observeAll(o, i.operations, &m.operations)
	observeAll(o, i.probes, &m.probes)
	observeAll(o, i.ledgerFailures, &m.ledgerFailures)
}

func observeAll[K comparable](o metric.Observer, to metric.Int64Observable, t *table[K, *counter]) {
	for _, c := range t.all() {
		o.ObserveInt64(to, c.n.Load(), metric.WithAttributeSet(c.set))
	}
}

// standing is how an origin stands, or all that have no label of their own.
type standing struct {
	breakers                               [breaker.HalfOpen + 1]int64 // by state
	left                                   float64
	budgets, bulkheads, unlimited          int
	inFlight, pending, limit, active, idle int64
	holds                                  [2]int64 // of all, of a credential
	pooled                                 bool
}

func (m *meter) observeOrigins(i *observed, o metric.Observer, w *Watched, now time.Time) {
	all := m.standings(w, now)
	for origin, s := range all {
		label := keyOrigin.String(origin.name)
		for _, state := range []breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen} {
			o.ObserveInt64(i.breakers, s.breakers[state], with(label, keyBreaker.String(word(state.String()))))
		}
		if s.budgets > 0 {
			o.ObserveFloat64(i.left, s.left, with(label))
		}
		o.ObserveInt64(i.inFlight, s.inFlight, with(label))
		o.ObserveInt64(i.pending, s.pending, with(label))
		if s.bulkheads > 0 && s.unlimited == 0 {
			o.ObserveInt64(i.limit, s.limit, with(label))
		}
		for scope, n := range s.holds {
			if n > 0 {
				o.ObserveInt64(i.holds, n, with(append(holdScope(scope == 1), label)...))
			}
		}
		if s.pooled {
			o.ObserveInt64(i.open, s.active, with(append([]attribute.KeyValue{semconv.HTTPConnectionStateActive}, origin.server...)...))
			o.ObserveInt64(i.open, s.idle, with(append([]attribute.KeyValue{semconv.HTTPConnectionStateIdle}, origin.server...)...))
		}
	}
}

// standings puts together what is kept apart, by label.
func (m *meter) standings(w *Watched, now time.Time) map[*originSeries]*standing {
	all := make(map[*originSeries]*standing)
	of := func(origin string) *standing {
		series := m.origins.of(origin)
		s, ok := all[series]
		if !ok {
			s = &standing{}
			all[series] = s
		}
		return s
	}
	if w.Origins != nil {
		w.Origins.EachBreaker(now, func(origin string, state breaker.State) { of(origin).breakers[state]++ })
		w.Origins.EachBudget(now, func(origin string, b budget.Snapshot) { of(origin).budget(b.Left) })
		w.Origins.EachBulkhead(func(origin string, b bulkhead.Snapshot) { of(origin).bulkhead(&b) })
		w.Origins.EachHold(now, func(origin string, credential bool) { of(origin).hold(credential) })
	}
	if w.EachOrigin != nil {
		w.EachOrigin(func(origin string, active, idle int64) {
			s := of(origin)
			s.pooled, s.active, s.idle = true, s.active+active, s.idle+idle
		})
	}
	return all
}

func (s *standing) budget(left float64) {
	if s.budgets == 0 || left < s.left {
		s.left = left
	}
	s.budgets++
}

func (s *standing) bulkhead(b *bulkhead.Snapshot) {
	s.bulkheads++
	if b.Limit == 0 {
		s.unlimited++
	}
	s.inFlight += int64(b.InFlight)
	s.pending += int64(b.Pending)
	s.limit += int64(b.Limit)
}

func (s *standing) hold(credential bool) {
	if credential {
		s.holds[1]++
	} else {
		s.holds[0]++
	}
}

func observeLoad(i *observed, o metric.Observer, l Load) {
	o.ObserveInt64(i.callsNow, clamped(l.Calls))
	o.ObserveInt64(i.callsMax, clamped(l.MaxCalls))
	o.ObserveInt64(i.bytesNow, clamped(l.Bytes))
	o.ObserveInt64(i.bytesMax, clamped(l.MaxBytes))
	for of, r := range map[string]Reception{"CALLS": l.Calling, "STRANGERS": l.Strangers} {
		reception := attribute.String("sallyport.reception", of)
		o.ObserveInt64(i.messages, r.Receiving, with(reception, attribute.String("sallyport.reception.state", "RECEIVING")))
		o.ObserveInt64(i.messages, r.Waiting, with(reception, attribute.String("sallyport.reception.state", "WAITING")))
		o.ObserveInt64(i.slots, r.Slots, with(reception))
	}
}

func observeConnections(i *observed, o metric.Observer, c Connections) {
	source, end := attribute.Key("sallyport.connection.source"), attribute.Key("sallyport.connection.end")
	o.ObserveInt64(i.taken, clamped(c.Fresh), with(source.String("FRESH")))
	o.ObserveInt64(i.taken, clamped(c.Reused), with(source.String("IDLE")))
	o.ObserveInt64(i.taken, clamped(c.Shared), with(source.String("SHARED")))
	o.ObserveInt64(i.deaths, clamped(c.FoundClosed), with(end.String("FOUND_CLOSED")))
	o.ObserveInt64(i.deaths, clamped(c.DiedIdle), with(end.String("IDLE")))
	o.ObserveInt64(i.deaths, clamped(c.DiedInUse), with(end.String("IN_USE")))
	o.ObserveInt64(i.deaths, clamped(c.Unasked), with(end.String("UNASKED_BYTES")))
	o.ObserveInt64(i.hidden, clamped(c.HiddenSends))
}

// clamped is a count as OpenTelemetry takes it.
func clamped(n uint64) int64 { return int64(min(n, 1<<63-1)) }
