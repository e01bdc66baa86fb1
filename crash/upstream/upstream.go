// Package upstream is a server that counts effects. A request names its operation; it commits at one instant, and everything around that
// instant may go wrong: answers lost before or after it, late ones, commits nobody waits for any more, gateways that give up. What goes wrong
// is drawn from a seed, by operation and by how many of its requests came before.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

// Upstream is the server. Close ends it.
type Upstream struct {
	seed    uint64
	history *history.Recorder
	routes  map[string]history.Route
	server  *http.Server
	address string
	served  chan error    // receives one value
	stop    chan struct{} // closed by Close
	calm    atomic.Bool
	effects atomic.Int64
	keys    keys

	// on is told of each request and of each effect, in this order.
	on func(Moment)

	mu        sync.Mutex // protects the fields below
	requests  map[string]int
	committed map[string]int
	pending   map[string]int
	underWay  int
	idle      *sync.Cond // of mu: nothing is under way
}

// Moment is an instant at which a broker may well die.
type Moment int

// The moments: a request is there; it has had its effect.
const (
	Arrived Moment = iota
	Committed
)

// Start serves on loopback. On is called at the moments, and must not take long.
func Start(ctx context.Context, seed uint64, h *history.Recorder, on func(Moment)) (*Upstream, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	u := &Upstream{
		seed: seed, history: h, routes: history.Routes(), address: l.Addr().String(), served: make(chan error, 1), stop: make(chan struct{}),
		keys: keys{known: map[string]*entry{}}, on: on,
		requests: map[string]int{}, committed: map[string]int{}, pending: map[string]int{},
	}
	u.idle = sync.NewCond(&u.mu)
	u.server = &http.Server{Handler: u, ReadHeaderTimeout: time.Minute}
	go func() { u.served <- u.server.Serve(l) }()
	return u, nil
}

// Address is host:port.
func (u *Upstream) Address() string { return u.address }

// Calm has nothing go wrong from now on.
func (u *Upstream) Calm() { u.calm.Store(true) }

// Close waits for what is under way, and ends it.
func (u *Upstream) Close() error {
	close(u.stop)
	err := u.server.Close()
	u.finish()
	if served := <-u.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	return nil
}

// finish waits until nothing is under way.
func (u *Upstream) finish() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.underWay > 0 {
		u.idle.Wait()
	}
}

// count counts what is under way, up or down.
func (u *Upstream) count(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.underWay += n
	u.idle.Broadcast()
}

// ServeHTTP takes requests to /route/operation and status probes at /status/operation.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.count(1)
	defer u.count(-1)
	head, operation, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	route, ok := u.routes[head]
	switch {
	case head == "status":
		u.status(w, operation)
	case !ok || r.Method != route.Method:
		http.NotFound(w, r)
	default:
		a := history.Arrival{
			Operation: operation, Trace: traceOf(r.Header.Get("Traceparent")), Key: r.Header.Get("Idempotency-Key"), At: u.history.At(time.Now()),
		}
		u.mu.Lock()
		u.requests[operation]++
		n := u.requests[operation]
		u.pending[operation]++
		u.mu.Unlock()
		s := script{name: "answers"}
		if !u.calm.Load() {
			s = scriptFor(u.seed, operation, n)
		}
		a.Script = s.name
		u.on(Arrived)
		u.handle(w, r, route, s, &a)
		a.End = u.history.At(time.Now())
		u.mu.Lock()
		u.pending[operation]--
		u.mu.Unlock()
		u.history.Arrival(a)
	}
}

// handle follows the script.
func (u *Upstream) handle(w http.ResponseWriter, r *http.Request, route history.Route, s script, a *history.Arrival) {
	if s.torn {
		_, _ = io.ReadFull(r.Body, make([]byte, 16)) // what comes of it does not matter
		lose(w, reset, answer{})
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.Script += "; the request broke off"
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.Other = form.Get("payload") != Payload(false)
	if s.refuse != 0 {
		u.respond(w, s, answer{s.refuse, fmt.Sprintf("no: %d", s.refuse)}, a)
		return
	}
	if s.dropped {
		u.wait(s.work)
		lose(w, s.lost, answer{})
		return
	}
	if route.Keyed {
		u.keyed(w, form.Get("payload"), route, s, a)
		return
	}
	u.wait(s.work)
	u.respond(w, s, u.commit(a), a)
}

// keyed asks the key first. A refusal, or a request that is dropped, leaves none.
func (u *Upstream) keyed(w http.ResponseWriter, payload string, route history.Route, s script, a *history.Arrival) {
	// A key belongs to a resource (draft-ietf-httpapi-idempotency-key-header §2.2).
	key := a.Operation + " " + a.Key
	v, stored := u.keys.take(key, payload, route.KeyTTL+history.KeyGrace, time.Now())
	switch v {
	case mismatch:
		a.Script += "; another payload under its key"
		u.respond(w, script{}, answer{422, "another payload under this key"}, a)
	case busy:
		a.Script += "; its key is busy"
		u.respond(w, script{}, answer{409, "being done"}, a)
	case known:
		a.Script += "; its key is known"
		u.respond(w, s, stored, a)
	case fresh:
		u.wait(s.work)
		done := u.commit(a)
		u.keys.finish(key, done)
		u.respond(w, s, done, a)
	}
}

// commit is the one instant at which the effect happens.
func (u *Upstream) commit(a *history.Arrival) answer {
	u.mu.Lock()
	u.committed[a.Operation]++
	u.mu.Unlock()
	a.Answer = fmt.Sprintf(`{"operation":%q,"effect":%d}`, a.Operation, u.effects.Add(1))
	a.Committed = u.history.At(time.Now())
	u.on(Committed)
	return answer{201, a.Answer}
}

// respond answers, unless the script loses the answer.
func (u *Upstream) respond(w http.ResponseWriter, s script, done answer, a *history.Arrival) {
	u.wait(s.think)
	switch {
	case s.lost != arrives:
		lose(w, s.lost, done)
		return
	case s.gateway != 0:
		done = answer{s.gateway, "the gateway has given up"}
	}
	if write(w, done) {
		a.Status, a.Body = done.status, done.body
	}
}

// status answers a probe: what has not been committed yet may still be, and is "not applied" all the same, as real ones say it.
func (u *Upstream) status(w http.ResponseWriter, operation string) {
	u.mu.Lock()
	committed, pending := u.committed[operation], u.pending[operation]
	u.mu.Unlock()
	switch {
	case committed > 0:
		write(w, answer{200, fmt.Sprintf(`{"operation":%q,"state":"applied"}`, operation)})
	case pending > 1: // the later one is seen, the first is not
		write(w, answer{202, `{"state":"in progress"}`})
	default:
		write(w, answer{404, `{"state":"unknown"}`})
	}
}

// wait passes that time, also when nobody listens any more: a server carries on.
func (u *Upstream) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-u.stop:
	}
}

// traceOf gives the trace of a traceparent (Trace Context §3.2.2).
func traceOf(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 {
		return ""
	}
	return parts[1]
}

// Payload is what a request of an operation carries, or another one.
func Payload(other bool) string {
	if other {
		return "other"
	}
	return "one"
}

// Body is that of a request, in the form that the upstream reads.
func Body(other bool, padding int) []byte {
	return []byte(url.Values{"payload": {Payload(other)}, "padding": {strings.Repeat("x", padding)}}.Encode())
}
