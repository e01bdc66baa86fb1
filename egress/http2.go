package egress

import (
	"context"
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/h2"
	"github.com/sallyport/sallyport/policy"
)

// protocolHTTP2 is how attempts name HTTP/2, and alpnHTTP2 how TLS does.
const (
	protocolHTTP2 = "HTTP/2"
	alpnHTTP2     = "h2"
	alpnHTTP1     = "http/1.1"
)

func allowsHTTP1(p *policy.Effective) bool {
	return slices.Contains(p.Attempt.Protocols, policy.ProtocolHTTP11)
}

// offered is what the handshake offers, in the order of the policy. The server chooses.
func offered(p *policy.Effective) []string {
	var names []string
	for _, protocol := range p.Attempt.Protocols {
		switch protocol {
		case policy.ProtocolHTTP11:
			names = append(names, alpnHTTP1)
		case policy.ProtocolHTTP2:
			names = append(names, alpnHTTP2)
		}
	}
	return names
}

// noHTTP2 is the refusal of a server, or a scheme, without what the policy demands.
func noHTTP2() call.Result {
	return call.Result{
		Failure: call.FailureProtocol, Terminal: true,
		Detail: "the policy allows HTTP/2 and nothing else, and there is none: the server does not choose it, or the URL is http",
	}
}

// sendHTTP2 makes an attempt where the policy allows HTTP/2: on a trunk, or over HTTP/1.1 where the server chose that.
func (t *Transport) sendHTTP2(ctx context.Context, c *call.Call, p *policy.Effective, a *call.Attempt) call.Result {
	if c.Target.Scheme != "https" {
		return notSent(ctx, a, noHTTP2())
	}
	key := groupKey{poolKey: keyOf(c, p), only: !allowsHTTP1(p)}
	unsafe, maxIdle := patience(c, p)
	told := false // somebody has told this attempt of room
	for {
		now := time.Now()
		at := t.pool.trunks.find(key, min(maxIdle, t.pool.life.of(key.origin, unsafe, now)), now)
		switch {
		case at.trunk != nil:
			if told {
				at.group.pass()
			}
			return t.carry(ctx, at, c, p, a)
		case at.plain:
			if cn := t.pool.get(key.poolKey, unsafe, maxIdle, a.Deadline, false); cn != nil {
				res, _ := t.exchange(ctx, cn, c, p, a) // it was looked at
				return res
			}
			return t.dialEither(ctx, at, c, p, a)
		case at.alone, at.lead != nil:
			return t.dialEither(ctx, at, c, p, a)
		}
		failed, ok := t.waitForRoom(ctx, at, a)
		if !ok {
			return notSent(ctx, a, failed)
		}
		told = true
	}
}

// waitForRoom waits until it is worth looking again; false: the attempt's time is up, or the dial failed for all who waited for it.
func (t *Transport) waitForRoom(ctx context.Context, at place, a *call.Attempt) (call.Result, bool) {
	defer t.pool.trunks.waited(at.group)
	timer := time.NewTimer(time.Until(a.Deadline))
	defer timer.Stop()
	var dialled <-chan struct{} // nil: never
	failed := call.Result{Failure: call.FailureAttemptTimeout, Detail: "no stream became free in time on the connections to the server"}
	if at.dial != nil {
		dialled = at.dial.done
		failed = call.Result{Failure: call.FailureConnect, Detail: "no connection in time"}
	}
	select {
	case <-dialled:
		if at.dial.failed != nil {
			return *at.dial.failed, false
		}
	case <-at.changed:
	case <-at.group.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil || !time.Now().Before(a.Deadline) {
		at.group.pass() // it may have been told, and is of no use any more
		return failed, false
	}
	return call.Result{}, true
}

// dialEither makes a connection and the attempt on it, in the protocol that the server chose.
func (t *Transport) dialEither(ctx context.Context, at place, c *call.Call, p *policy.Effective, a *call.Attempt) call.Result {
	var took call.Opening
	var res call.Result
	l, failed, ok := t.openLed(ctx, &at, c, p, a, &took)
	switch {
	case !ok:
		res = notSent(ctx, a, failed)
	case at.trunk != nil:
		opened(a, took)
		res = t.carry(ctx, at, c, p, a)
	default:
		opened(a, took)
		res, _ = t.exchange(ctx, t.overHTTP1(l, at.group.key.poolKey, a), c, p, a)
	}
	res.Opening = openingOf(took)
	return res
}

// openLed makes the connection, for those who wait for it as well. Over HTTP/2 it becomes a trunk, and the attempt has a place on it.
func (t *Transport) openLed(ctx context.Context, at *place, c *call.Call, p *policy.Effective, a *call.Attempt, took *call.Opening) (l link, failed call.Result, ok bool) {
	var shared *call.Result // of a failure that the others would have had, too
	defer func() { t.pool.trunks.settled(*at, shared) }()
	l, failed, ok = t.open(ctx, c, p, a, took)
	switch {
	case !ok && ctx.Err() == nil && time.Now().Before(a.Deadline):
		shared = &failed
	case !ok: // this attempt's own time was up, or its caller gone; the others try for themselves
	case l.session.ConnectionState().NegotiatedProtocol == alpnHTTP2:
		*at = t.pool.trunks.add(newTrunk(at.group, l, t.pool.census), *at)
	case !allowsHTTP1(p):
		_ = l.top().Close() // nothing was said on it
		failed, ok = noHTTP2(), false
		shared = &failed
	default:
		t.pool.trunks.chosePlain(at.group)
	}
	return l, failed, ok
}

// carry makes the attempt on a trunk.
func (t *Transport) carry(ctx context.Context, at place, c *call.Call, p *policy.Effective, a *call.Attempt) call.Result {
	sent := false
	defer func() { t.pool.trunks.release(at.trunk, sent) }()
	if d := withheld(c, p, at.trunk.raw); d != nil {
		return *d
	}
	if ctx.Err() != nil { // the caller went away while a connection was looked for
		return notSent(ctx, a, call.Result{Failure: call.FailureConnectionLost, Detail: "nothing was sent", Reused: at.reused})
	}
	r := new(h2.Request)
	t.writeHead(r, c, p, a)
	r.Body, r.Bodyless = c.Body, len(c.Body) == 0 && !definesBody(c.Method)
	r.Unindexed, r.Departure = unindexed(p), a.Departure
	if streamed(a) {
		uploading, stop := context.WithCancel(ctx)
		defer stop()
		r.Bodyless, r.Next, r.Stop = false, pieces(uploading, a.Stream.Body, func() {}), stop
	}
	ctx, over := queued(ctx, a, at.trunk.raw.remote, at.reused)
	defer over()
	lim, through := limitsHTTP2(c, p, a)
	sent = true // as far as is known where it panics
	answer, err := at.trunk.http.RoundTrip(ctx, r, lim)
	sent = answer.Sent
	res := call.Result{
		Evidence: call.EvidenceAnswered, Status: answer.Status, RemoteAddress: at.trunk.raw.remote, Protocol: protocolHTTP2, Reused: at.reused,
	}
	if err != nil {
		res = t.failedHTTP2(ctx, at, p, a, &answer, err)
	} else {
		res.Response = responseHTTP2(&answer)
	}
	through.tell(&res)
	return res
}

// limitsHTTP2 are those of both protocols, and what takes the answer to a streamed call; nil for any other.
func limitsHTTP2(c *call.Call, p *policy.Effective, a *call.Attempt) (h2.Limits, *passage) {
	l := limits(c, p, a)
	lim := h2.Limits{
		HeaderBytes: l.HeaderBytes, Headers: l.Headers, BodyBytes: l.BodyBytes,
		Deadline: l.Deadline, HeaderTimeout: l.HeaderTimeout, IdleBody: l.IdleBody, Heard: l.Heard,
	}
	if c.Stream == nil {
		return lim, nil
	}
	through := newPassage(c, a)
	lim.Sink = through.http2()
	return lim, through
}

// unindexed names the fields that are secret, or different in every request.
func unindexed(p *policy.Effective) []string {
	names := append(make([]string, 0, 3+len(p.Credentials)), "Traceparent")
	if p.Idempotency.Enabled {
		names = append(names, p.Idempotency.Header)
	}
	if p.Deadline.Header != "" {
		names = append(names, p.Deadline.Header)
	}
	for i := range p.Credentials {
		names = append(names, p.Credentials[i].Header)
	}
	return names
}
