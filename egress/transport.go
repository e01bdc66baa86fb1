package egress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/policy"
)

// Resolver finds the addresses of a name, which has no trailing dot.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// DialFunc makes a TCP connection to a literal address. It is replaced in tests only; permit is asked about the address that is
// really connected to.
type DialFunc func(ctx context.Context, network string, to netip.AddrPort, permit func(netip.AddrPort) error) (net.Conn, error)

// Config is what a Transport needs. The zero value of each optional field is the real thing.
type Config struct {
	// Guard judges every address; required.
	Guard *guard.Guard
	// UserAgent is sent when the caller has none, for example "sallyport/1.2.3"; required.
	UserAgent string
	// Resolver finds addresses; nil: the hosts file, then DNS, never libc or a search list.
	Resolver Resolver
	// Dial connects; nil: TCP.
	Dial DialFunc
}

// Transport makes attempts. It is safe for concurrent use.
type Transport struct {
	guard     *guard.Guard
	userAgent string
	names     *names
	dial      DialFunc
	pool      *pool
}

// New makes a transport. Close ends it.
func New(cfg Config) *Transport {
	if cfg.Resolver == nil {
		cfg.Resolver = newSystem()
	}
	if cfg.Dial == nil {
		cfg.Dial = dialTCP
	}
	return &Transport{
		guard:     cfg.Guard,
		userAgent: cfg.UserAgent,
		names:     newNames(cfg.Resolver),
		dial:      cfg.Dial,
		pool:      newPool(),
	}
}

// Close closes the idle connections and waits for the transport's own goroutine. Attempts in flight end by themselves.
func (t *Transport) Close() { t.pool.close() }

// Retire is told that policies of an older generation rule no new call: their idle connections are closed at once, since the new
// ones may forbid where they lead, and none that is in use is kept.
func (t *Transport) Retire(before uint64) { t.pool.retire(before) }

// Send makes one attempt and returns by a.Deadline, or soon after ctx ends (engine.Sender). Where a.Departure is set a request that has
// departed has until its Latest instead.
func (t *Transport) Send(ctx context.Context, c *call.Call, p *policy.Effective, a call.Attempt) call.Result {
	if c.Stream != nil {
		if res, ok := openBody(ctx, c, &a); !ok {
			return res
		}
	}
	if slices.Contains(p.Attempt.Protocols, policy.ProtocolHTTP2) && (c.Target.Scheme == "https" || !allowsHTTP1(p)) {
		return t.sendHTTP2(ctx, c, p, &a)
	}
	var took call.Opening
	for {
		cn, res, done := t.connection(ctx, c, p, &a, &took)
		if cn != nil {
			opened(&a, took)
			res, done = t.exchange(ctx, cn, c, p, &a)
		}
		if done {
			res.Opening = openingOf(took)
			return res
		}
	}
}

// openingOf is nil when no step was taken, which is the usual case and costs nothing.
func openingOf(took call.Opening) *call.Opening {
	if took == (call.Opening{}) {
		return nil
	}
	o := took // so that only this one is on the heap
	return &o
}

// connection takes an idle connection that is still alive, as far as was looked, or makes a fresh one. Failed: there is none, and the
// result says why.
func (t *Transport) connection(ctx context.Context, c *call.Call, p *policy.Effective, a *call.Attempt, took *call.Opening) (cn *conn, res call.Result, failed bool) {
	key := keyOf(c, p)
	unsafe, maxIdle := patience(c, p)
	if cn := t.pool.get(key, unsafe, maxIdle, a.Deadline, looksLater(c, p, a)); cn != nil {
		return cn, call.Result{}, false
	}
	l, res, ok := t.open(ctx, c, p, a, took)
	if !ok {
		return nil, notSent(ctx, a, res), true
	}
	return t.overHTTP1(l, key, a), call.Result{}, false
}

func keyOf(c *call.Call, p *policy.Effective) poolKey {
	return poolKey{origin: c.Target.Origin, caller: c.Caller, egress: p.Egress.ID, generation: p.Generation, foreign: c.Foreign}
}

// patience is how long a connection may have been idle to serve this call.
func patience(c *call.Call, p *policy.Effective) (unsafe bool, maxIdle time.Duration) {
	if p.Repeatability(c) == policy.RepeatNever {
		// The keep-alive race would leave the effect of such an operation unknown: it takes a young connection only.
		return true, p.Attempt.MaxIdleUnsafe
	}
	return false, idleLife
}
