package egress

import (
	"sync/atomic"
	"time"
)

// sweep ends the trunks that were idle too long, and learns from those that died of it.
func (p *trunks) sweep(now time.Time) {
	for _, g := range p.all() {
		life := p.life.of(g.key.origin, false, now)
		p.mu.Lock()
		dead := p.removeLocked(g, func(tk *trunk) bool { return tk.dead() && tk.inUse == 0 })
		old := p.removeLocked(g, func(tk *trunk) bool { return tk.inUse == 0 && tk.quiet(now) >= life })
		unused := len(g.trunks) == 0 && g.dial == nil && g.waiting == 0
		if unused && (!now.Before(g.plain) || len(p.groups) > groupsMost) {
			delete(p.groups, g.key)
		}
		p.mu.Unlock()
		p.learn(dead, &p.census.diedIdle)
		end(dead)
		end(old)
	}
}

// learn takes the lesson of trunks that their servers ended while they were idle, and counts them as such a death. A GOAWAY is neither: it
// told in time, whatever its reason, and this side ended the trunk.
func (p *trunks) learn(idle []*trunk, deaths *atomic.Uint64) {
	for _, tk := range idle {
		ended := tk.wire.ended.Load()
		if ended == 0 {
			continue // it lives, or this side ended it
		}
		if lived := tk.wire.made.Add(time.Duration(ended)).Sub(tk.idleSince); lived > 0 {
			deaths.Add(1)
			p.life.died(tk.group.key.origin, lived, lived)
		}
	}
}

func (p *trunks) all() []*group {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*group, 0, len(p.groups))
	for _, g := range p.groups {
		all = append(all, g)
	}
	return all
}

// retire keeps nothing of older generations: idle trunks end at once, the others with what is on them.
func (p *trunks) retire(before uint64) {
	p.mu.Lock()
	p.oldest = max(p.oldest, before)
	idle, changed := p.dropLocked()
	p.mu.Unlock()
	end(idle)
	for _, c := range changed {
		close(c)
	}
}

// close keeps nothing any more. Attempts in flight end by themselves, and their trunks with them.
func (p *trunks) close() {
	p.mu.Lock()
	p.closed = true
	idle, changed := p.dropLocked()
	p.mu.Unlock()
	end(idle)
	for _, c := range changed {
		close(c)
	}
}

// dropLocked takes out the groups that are kept no more. Who waits there looks again, and then makes a connection alone.
func (p *trunks) dropLocked() (idle []*trunk, changed []chan struct{}) {
	for key, g := range p.groups {
		if p.keepsLocked(g) {
			continue
		}
		idle = append(idle, p.removeLocked(g, func(*trunk) bool { return true })...)
		changed = append(changed, g.changed)
		g.changed = make(chan struct{})
		delete(p.groups, key)
	}
	return idle, changed
}
