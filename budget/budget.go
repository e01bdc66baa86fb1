package budget

import (
	"math"
	"sync"
	"time"
)

// Budget bounds the extra attempts to one origin under one set of settings. Use New.
type Budget struct {
	name string

	mu     sync.Mutex // protects the fields below and all they point to
	start  time.Time  // the first instant seen; all others are kept relative to it, which keeps the monotonic reading
	latest time.Duration
	share  float64
	window *window // nil for a bucket
	bucket *bucket // nil for a window
	totals Totals
}

// Token is one extra attempt that was granted. Either it is sent, and the token with it spent, or it is handed back; until then it
// counts as taken, and for good if it is forgotten. The zero Token is none. Keep it in one place: a copy does not know that the
// other was ended.
type Token struct {
	from    *Budget
	account *taken // on whose account, for a window
}

// New gives a full budget, or an error that names the field that cannot be.
func New(c Config) (*Budget, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	b := &Budget{name: c.Name, share: 1}
	if c.Window != nil {
		b.window = newWindow(c.Window, c.CallerMaxShare)
	} else {
		b.bucket = newBucket(c.TokenBucket)
	}
	return b, nil
}

// Deposit counts a first attempt of a caller. It is never charged or refused; under a window it is what extra attempts live on.
func (b *Budget) Deposit(now time.Time, caller string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.totals.Firsts++
	if at := b.atLocked(now); b.window != nil {
		b.window.deposit(at, caller)
	}
}

// Failed counts an attempt that ended in a retryable failure, the last attempt of a call included (gRPC A6: decrement first, then
// Withdraw). Not to be told of the failure that earned a free resend: that one says nothing about the upstream.
func (b *Budget) Failed(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.atLocked(now); b.bucket != nil {
		b.bucket.failed()
	}
}

// Succeeded counts an attempt that succeeded.
func (b *Budget) Succeeded(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.atLocked(now); b.bucket != nil {
		b.bucket.succeeded()
	}
}

// Withdraw grants a caller one extra attempt, to be sent now or later, or returns a *RefusedError. Check and take are one step.
func (b *Budget) Withdraw(now time.Time, caller string) (Token, error) {
	return b.WithdrawFrom(1, now, caller)
}

// WithdrawFrom is Withdraw for one who may use that part of the budget only, 0 to 1: it is refused once all extra attempts together have
// used that much, so that the rest is left to the others.
func (b *Budget) WithdrawFrom(part float64, now time.Time, caller string) (Token, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.atLocked(now)
	token := Token{from: b}
	var refused *RefusedError
	if b.window != nil {
		token.account, refused = b.window.withdraw(at, caller, b.share, part)
	} else {
		refused = b.bucket.withdraw(part)
	}
	if refused != nil {
		b.totals.Refused++
		refused.Budget = b.name
		return Token{}, refused
	}
	b.totals.Granted++
	return token, nil
}

// Spend ends a token whose attempt is sent now: a window counts it for a period from now, however long it waited for its backoff or
// Retry-After. Under a token bucket it was paid for when it was granted. A second time, and after HandBack, it does nothing.
func (t *Token) Spend(now time.Time) {
	b := t.from
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.atLocked(now); b.window != nil {
		b.window.spend(at, t.account)
	}
	*t = Token{}
}

// HandBack returns a token whose attempt was not sent, as if it had never been taken. A second time, and after Spend, it does nothing.
func (t *Token) HandBack(now time.Time) {
	b := t.from
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.atLocked(now)
	b.totals.HandedBack++
	if b.window != nil {
		b.window.handBack(t.account)
	} else {
		b.bucket.handBack()
	}
	*t = Token{}
}

// SetShare gives this broker a part of what a fleet of them may spend, 0 to 1; it starts with 1, 0 grants nothing. The parts of a
// fleet add up to 1, and so does what they allow: a window's min_per_second and a bucket's max_tokens are multiplied by the part.
// A window's ratio is not, because every broker multiplies it with its own first attempts already. How full a bucket is, as
// a part of its maximum, stays. What is no number changes nothing.
func (b *Budget) SetShare(f float64) {
	if math.IsNaN(f) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share = min(max(f, 0), 1)
	if b.bucket != nil {
		b.bucket.setShare(b.share)
	}
}

// Trim gives back the memory of what no longer counts, which is all but settings and totals once nothing happened for a period. No
// answer is another one because of it; whoever keeps budgets of idle origins calls it now and then.
func (b *Budget) Trim(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.atLocked(now); b.window != nil {
		b.window.trim(at)
	}
}

// atLocked is now as the time since the first instant seen, and never goes back.
func (b *Budget) atLocked(now time.Time) time.Duration {
	if b.start.IsZero() {
		b.start = now
	}
	b.latest = max(b.latest, now.Sub(b.start))
	return b.latest
}
