package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

const (
	// namesLife is how long an answer is used again: long enough for a burst, too short for a rebinding to hide in.
	namesLife = time.Second
	// namesMax bounds the cache; when it is full it starts afresh.
	namesMax = 4096
	// addressesMax: addresses of a name beyond these are judged, but not tried.
	addressesMax = 16
)

// names resolves names, remembering the answers for a second.
type names struct {
	resolver Resolver

	mu    sync.Mutex // protects the fields below
	known map[string]answer
}

type answer struct {
	addresses []netip.Addr
	until     time.Time
}

func newNames(r Resolver) *names { return &names{resolver: r, known: make(map[string]answer)} }

// addresses gives where the attempt may connect to: the literal address, or those of the name.
func (t *Transport) addresses(ctx context.Context, host string, literal netip.Addr, p *policy.Effective, a *call.Attempt, took *time.Duration) ([]netip.Addr, error) {
	if literal.IsValid() {
		return []netip.Addr{literal}, nil
	}
	now := time.Now()
	ctx, cancel := context.WithDeadline(ctx, earlier(a.Deadline, now.Add(p.Attempt.DNSTimeout)))
	defer cancel()
	return t.names.lookup(ctx, host, now, took)
}

// lookup sets took to the time the resolver had; it is not touched when the answer is known.
func (n *names) lookup(ctx context.Context, host string, now time.Time, took *time.Duration) ([]netip.Addr, error) {
	n.mu.Lock()
	got, ok := n.known[host]
	n.mu.Unlock()
	if ok && now.Before(got.until) {
		return got.addresses, nil
	}
	found, err := n.resolver.LookupNetIP(ctx, "ip", host)
	*took = time.Since(now)
	if err == nil && len(found) == 0 {
		err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= namesMax {
		clear(n.known)
	}
	n.known[host] = answer{addresses: found, until: now.Add(namesLife)}
	return found, nil
}
