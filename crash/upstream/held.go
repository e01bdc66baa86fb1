package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

// Held is a server that answers as it should, and stops at a step where it is told to, until the broker is dead. Close ends it.
type Held struct {
	history *history.Recorder
	routes  map[string]history.Route
	server  *http.Server
	address string
	served  chan error // receives one value of each listener
	effects atomic.Int64
	keys    keys
	gates   atomic.Int64
	seed    uint64
	drawn   atomic.Uint64
	slow    atomic.Bool

	mu       sync.Mutex // protects the fields below
	hold     *Hold
	written  int
	handling sync.WaitGroup
}

// Hold is a stop of so many requests at one step.
type Hold struct {
	step    history.Step
	left    int           // protected by Held.mu
	reached chan struct{} // closed when all of them have come there
	over    chan struct{} // closed by Release
}

// StartHeld serves on loopback.
func StartHeld(ctx context.Context, seed uint64, h *history.Recorder) (*Held, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	const gates = 1000
	u := &Held{
		seed: seed, history: h, routes: history.Routes(), address: l.Addr().String(), served: make(chan error, 1+gates), keys: keys{known: map[string]*entry{}},
	}
	u.server = &http.Server{Handler: u, ReadHeaderTimeout: time.Minute}
	u.server.SetKeepAlivesEnabled(false) // each request begins with the first byte of a connection
	go func() { u.served <- u.server.Serve(&slowListener{l, u}) }()
	return u, nil
}

// Address is host:port.
func (u *Held) Address() string { return u.address }

// Close ends it.
func (u *Held) Close() error {
	err := u.server.Close()
	for range 1 + u.gates.Load() {
		if served := <-u.served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	u.handling.Wait()
	if err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	return nil
}

// Hold stops the next n requests at a step.
func (u *Held) Hold(step history.Step, n int) *Hold {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hold = &Hold{step: step, left: n, reached: make(chan struct{}), over: make(chan struct{})}
	return u.hold
}

// Reached is closed when all of them are there.
func (h *Hold) Reached() <-chan struct{} { return h.reached }

// Slow takes a random time at each step from now on, and refuses some requests with 503 before they have an effect.
func (u *Held) Slow() { u.slow.Store(true) }

// draw is a number below n, the next of the seed; 0 where nothing is slow.
func (u *Held) draw(n int64) int64 {
	if !u.slow.Load() {
		return 0
	}
	return rand.New(rand.NewPCG(u.seed, u.drawn.Add(1))).Int64N(n)
}

// Release lets them go on, and stops no more.
func (u *Held) Release(h *Hold) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.hold == h {
		u.hold = nil
		close(h.over)
	}
}

// Written is how many answers were written whole.
func (u *Held) Written() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.written
}

// at is a request that has come to a step.
func (u *Held) at(step history.Step) {
	const longest = 15 * time.Millisecond
	if d := u.draw(int64(longest)); d > 0 {
		timer := time.NewTimer(time.Duration(d))
		defer timer.Stop()
		<-timer.C
	}
	u.mu.Lock()
	h := u.hold
	if h == nil || h.step != step || h.left == 0 {
		u.mu.Unlock()
		return
	}
	if h.left--; h.left == 0 {
		close(h.reached)
	}
	u.mu.Unlock()
	<-h.over
}

// ServeHTTP takes requests to /route/operation.
func (u *Held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.handling.Add(1)
	defer u.handling.Done()
	head, operation, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	route, ok := u.routes[head]
	if !ok {
		http.NotFound(w, r)
		return
	}
	a := history.Arrival{
		Operation: operation, Trace: traceOf(r.Header.Get("Traceparent")), Key: r.Header.Get("Idempotency-Key"), Script: "answers", At: u.history.At(time.Now()),
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		a.Script = "the request broke off"
	} else {
		u.answer(w, route, &a)
	}
	a.End = u.history.At(time.Now())
	u.history.Arrival(a)
}

// answer commits and answers in pieces.
func (u *Held) answer(w http.ResponseWriter, route history.Route, a *history.Arrival) {
	const refused = 12 // one in so many
	if u.draw(refused) == 1 {
		a.Script = "503"
		if write(w, answer{503, "not now"}) {
			a.Status = 503
		}
		return
	}
	key := a.Operation + " " + a.Key
	if route.Keyed {
		switch v, stored := u.keys.take(key, "", route.KeyTTL+history.KeyGrace, time.Now()); v {
		case busy, mismatch:
			a.Script = "its key is busy"
			if write(w, answer{409, "being done"}) {
				a.Status = 409
			}
			return
		case known:
			a.Script = "its key is known"
			u.inPieces(w, stored, a)
			return
		case fresh:
		}
	}
	// Long enough to be halved, and to be told from every other.
	a.Answer = fmt.Sprintf(`{"operation":%q,"effect":%d,"padding":%q}`, a.Operation, u.effects.Add(1), strings.Repeat("x", 1000))
	a.Committed = u.history.At(time.Now())
	done := answer{201, a.Answer}
	if route.Keyed {
		u.keys.finish(key, done)
	}
	u.inPieces(w, done, a)
}

func (u *Held) inPieces(w http.ResponseWriter, done answer, a *history.Arrival) {
	c := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(done.body)))
	w.WriteHeader(done.status)
	if c.Flush() != nil {
		return
	}
	u.at(history.Headers)
	half := len(done.body) / 2
	if _, err := io.WriteString(w, done.body[:half]); err != nil || c.Flush() != nil {
		return
	}
	u.at(history.Halfway)
	if _, err := io.WriteString(w, done.body[half:]); err != nil || c.Flush() != nil {
		return
	}
	a.Status, a.Body = done.status, done.body
	u.mu.Lock()
	defer u.mu.Unlock()
	u.written++
}

// slowListener stops at the first byte of each connection.
type slowListener struct {
	net.Listener
	u *Held
}

func (l *slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &slowConn{Conn: c, u: l.u}, err //nolint:wrapcheck // of net
}

type slowConn struct {
	net.Conn
	u    *Held
	once sync.Once
}

// Read reads one byte first.
func (c *slowConn) Read(p []byte) (n int, err error) {
	first := false
	c.once.Do(func() { first = true })
	if !first || len(p) == 0 {
		return c.Conn.Read(p) //nolint:wrapcheck // of net
	}
	if n, err = c.Conn.Read(p[:1]); n > 0 {
		c.u.at(history.FirstByte)
	}
	return n, err //nolint:wrapcheck // of net
}
