package egress

import (
	"slices"
	"sync"
	"time"
)

const (
	// idleLife is how long a connection is kept at most; servers that keep longer ones are rare.
	idleLife = 90 * time.Second
	// idlePerKey and idleTotal bound what is kept: enough for the default max_in_flight of an origin, and for a process.
	idlePerKey = 512
	idleTotal  = 8192
	// sweepEvery is how often idle connections are looked at, and with that how exactly their life is learned.
	sweepEvery = time.Second
)

// poolKey separates connections that must not be shared: another origin, another caller (some upstreams authenticate a
// connection, not a request), other egress settings (which addresses are allowed, whose certificate is shown), another
// generation of policies.
type poolKey struct {
	origin     string
	caller     string
	egress     string
	generation uint64
	foreign    bool // without the policy's client certificate
}

// pool keeps idle connections, the youngest on top; those of HTTP/2 are kept apart, idle or not.
type pool struct {
	life   *lifetimes
	trunks *trunks
	census *census
	once   sync.Once     // for close
	stop   chan struct{} // closed by close
	done   chan struct{} // closed by sweeper

	mu     sync.Mutex // protects the fields below
	idle   map[poolKey][]*conn
	total  int
	oldest uint64 // the generation that is still kept
	closed bool
}

func newPool() *pool {
	life, census := newLifetimes(), newCensus()
	p := &pool{
		life: life, trunks: newTrunks(life, census), census: census,
		stop: make(chan struct{}), done: make(chan struct{}),
		idle: make(map[poolKey][]*conn),
	}
	go p.sweeper()
	return p
}

// get gives an idle connection that was quiet when looked at just now, nil when there is none idle for at most maxIdle, or none
// that an operation unsafe to repeat may take. The deadline is set on it. With lookLater the look is left to the exchange where it can be.
func (p *pool) get(key poolKey, unsafe bool, maxIdle time.Duration, deadline time.Time, lookLater bool) *conn {
	for {
		now := time.Now()
		cn := p.pop(key, min(maxIdle, p.life.of(key.origin, unsafe, now)), now)
		if cn == nil {
			return nil
		}
		if lookLater && cn.lookLater(deadline) {
			return cn
		}
		if cn.quiet(deadline) {
			p.census.reused.Add(1)
			return cn
		}
		p.bury(cn)
	}
}

// bury closes a connection that was found useless when it was wanted, and learns from it.
func (p *pool) bury(cn *conn) {
	p.census.dead(cn, true)
	p.life.died(cn.key.origin, cn.seen(), time.Since(cn.idleSince))
	cn.close()
}

// pop takes the youngest. One that is too old for this call stays for calls that may take it; the sweeper ends it in time.
func (p *pool) pop(key poolKey, maxIdle time.Duration, now time.Time) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	stack := p.idle[key]
	if len(stack) == 0 {
		return nil
	}
	cn := stack[len(stack)-1]
	if age := now.Sub(cn.idleSince); age >= maxIdle || cn.keepAlive != 0 && age >= cn.keepAlive {
		return nil
	}
	stack[len(stack)-1] = nil
	p.idle[key] = stack[:len(stack)-1]
	p.total--
	cn.work()
	return cn
}

// put keeps a connection for the next attempt, or closes it when there is no room.
func (p *pool) put(cn *conn, now time.Time) {
	cn.idleSince, cn.aliveAt = now, now
	if !p.push(cn) {
		cn.close()
	}
}

func (p *pool) push(cn *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	stack := p.idle[cn.key]
	if p.closed || cn.key.generation < p.oldest || p.total >= idleTotal || len(stack) >= idlePerKey {
		return false
	}
	p.idle[cn.key] = append(stack, cn)
	p.total++
	cn.rest()
	return true
}

// retire closes the idle connections of older generations, and lets none of them in again.
func (p *pool) retire(before uint64) {
	p.trunks.retire(before)
	for _, cn := range p.takeOlderThan(before) {
		cn.close()
	}
}

func (p *pool) takeOlderThan(generation uint64) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.oldest = max(p.oldest, generation)
	var old []*conn
	for key, stack := range p.idle {
		if key.generation < p.oldest {
			old = append(old, stack...)
			p.total -= len(stack)
			delete(p.idle, key)
		}
	}
	return old
}

// close closes what is idle, refuses what comes later, and waits for the sweeper.
func (p *pool) close() {
	p.once.Do(func() { close(p.stop) })
	<-p.done
	p.trunks.close()
	p.mu.Lock()
	idle := p.idle
	p.idle, p.total, p.closed = nil, 0, true
	p.mu.Unlock()
	for _, stack := range idle {
		for _, cn := range stack {
			cn.close()
		}
	}
}

// sweeper looks at the idle connections every now and then: the dead are closed and teach how soon idle ones die.
func (p *pool) sweeper() {
	defer close(p.done)
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-ticker.C:
			p.sweep(now)
			p.trunks.sweep(now)
		}
	}
}

// sweep takes the older connections out, looks at each, and puts the living back under the younger ones.
func (p *pool) sweep(now time.Time) {
	for _, key := range p.keys() {
		old := p.takeOlder(key, now.Add(-sweepEvery))
		alive := old[:0]
		for _, cn := range old {
			switch {
			case now.Sub(cn.idleSince) >= p.lifeOf(cn, now):
				cn.close()
			case !cn.quiet(now.Add(sweepEvery)):
				p.census.dead(cn, false)
				p.life.died(cn.key.origin, cn.seen(), now.Sub(cn.idleSince))
				cn.close()
			default:
				cn.aliveAt = now
				alive = append(alive, cn)
			}
		}
		for _, cn := range p.putBack(key, alive) {
			cn.close()
		}
	}
}

// lifeOf is how long this connection may stay idle.
func (p *pool) lifeOf(cn *conn, now time.Time) time.Duration {
	life := p.life.of(cn.key.origin, false, now)
	if cn.keepAlive != 0 {
		life = min(life, cn.keepAlive)
	}
	return life
}

func (p *pool) keys() []poolKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := make([]poolKey, 0, len(p.idle))
	for key, stack := range p.idle {
		if len(stack) == 0 {
			delete(p.idle, key)
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

func (p *pool) takeOlder(key poolKey, than time.Time) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	stack := p.idle[key]
	n := 0
	for n < len(stack) && stack[n].idleSince.Before(than) {
		n++
	}
	old := slices.Clone(stack[:n])
	p.idle[key] = slices.Delete(stack, 0, n)
	p.total -= n
	return old
}

// putBack returns those for which there is no room any more.
func (p *pool) putBack(key poolKey, cns []*conn) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || key.generation < p.oldest {
		return cns
	}
	room := max(0, min(idlePerKey-len(p.idle[key]), idleTotal-p.total))
	kept := cns[max(0, len(cns)-room):]
	p.idle[key] = slices.Insert(p.idle[key], 0, kept...)
	p.total += len(kept)
	return cns[:len(cns)-len(kept)]
}
