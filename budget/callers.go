package budget

import (
	"maps"
	"math"
	"time"
)

// maxCallers bounds how many callers have an account of their own. Those beyond share one, so that many names get no more together
// than one does; a caller moves to its own account when another's has run empty.
const maxCallers = 64

// never is before every instant.
const never = time.Duration(math.MinInt64 / 2)

// callers tells whether several contend, and what each of them has taken.
type callers struct {
	recent   string        // who was seen last
	recentAt time.Duration // when
	otherAt  time.Duration // when anybody else was seen last
	accounts map[string]*taken
	rest     *taken // of all callers without an account
	swept    int64  // the last step in which empty accounts were looked for
}

func newCallers() callers { return callers{recentAt: never, otherAt: never} }

// saw notes that a caller is active. Two instants are enough to tell whether somebody else is, however many there are: when
// another caller comes, the one seen last until then is the most recent of all the others.
func (c *callers) saw(caller string, at time.Duration) {
	if caller != c.recent {
		c.otherAt, c.recent = c.recentAt, caller
	}
	c.recentAt = at
}

// contended reports whether anybody but the caller seen last was seen after an instant.
func (c *callers) contended(after time.Duration) bool { return c.otherAt > after }

// active reports whether anybody was seen after an instant.
func (c *callers) active(after time.Duration) bool { return c.recentAt > after }

// account is where a caller's extra attempts are counted, nil while it has none.
func (c *callers) account(caller string) *taken {
	if t := c.accounts[caller]; t != nil {
		return t
	}
	if len(c.accounts) >= maxCallers {
		return c.rest
	}
	return nil
}

// open is account, which it makes where there is none.
func (c *callers) open(caller string, now instant, tie bool) *taken {
	if t := c.accounts[caller]; t != nil {
		return t
	}
	if len(c.accounts) >= maxCallers {
		c.sweep(now, tie)
	}
	if len(c.accounts) >= maxCallers {
		if c.rest == nil {
			c.rest = new(taken)
		}
		return c.rest
	}
	if c.accounts == nil {
		c.accounts = make(map[string]*taken)
	}
	t := new(taken)
	c.accounts[caller] = t
	return t
}

// use is what each caller with an account has taken, if anything.
func (c *callers) use(now instant, tie bool) []CallerUse {
	var all []CallerUse
	for caller, t := range c.accounts {
		if n := t.count(now, tie); n > 0 {
			all = append(all, CallerUse{Caller: caller, Taken: n})
		}
	}
	return all
}

// sweep drops accounts that ran empty, once a step at most: it looks at all of them. One with an attempt still to be sent is not
// empty: its token points to it, and the caller would start anew beside it.
func (c *callers) sweep(now instant, tie bool) {
	if c.swept == now.tick {
		return
	}
	c.swept = now.tick
	c.dropEmpty(now, tie)
}

func (c *callers) dropEmpty(now instant, tie bool) {
	maps.DeleteFunc(c.accounts, func(_ string, t *taken) bool { return t.count(now, tie) == 0 })
}

// trim drops empty accounts and gives back the memory of the table. While callers without an account have taken anything together, the
// others stay: an account of its own is nothing the sharers may come by the sooner because somebody tidied up.
func (c *callers) trim(now instant, tie bool) {
	if c.rest.count(now, tie) > 0 {
		return
	}
	c.rest = nil
	c.dropEmpty(now, tie)
	if len(c.accounts) == 0 {
		c.accounts = nil
	}
}
