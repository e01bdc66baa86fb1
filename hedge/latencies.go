package hedge

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// keptSamples bounds the memory of a trigger.
	keptSamples = 128
	// minimumSamples is how many must be known before the percentile says anything (semantics.md §8).
	minimumSamples = 100
	// between is the least time from one kept answer to the next once all places are taken: 10s pass before all are replaced, so
	// that a busy origin's percentile is not that of the last few milliseconds, and few calls pay for the sorting.
	between = 10 * time.Second / keptSamples
)

// unknown is a percentile of too few samples.
const unknown = -1

// latencies is what an origin's last answers took. The percentile is exact over what is kept (see sample); a histogram or a P² estimator would
// remember more and know it less exactly. It is worked out when a sample is kept, so that whoever asks reads a number.
//
// Once full, one answer stands for all that came since the one before. Losers must be thinned in the same measure and cannot be by
// the same rule: a loser comes on the heels of the answer that beat it, so that the first to come after a pause is always the answer,
// and no loser of a busy origin would ever be kept. So they are counted, and for each answer that is kept losers ÷ answers of a loser
// is owed, kept as soon as it is a whole one. Which of the two is told first then makes no difference.
type latencies struct {
	percentile float64
	// after is the percentile in nanoseconds, or unknown; written under mu, read without.
	after atomic.Int64

	mu      sync.Mutex // protects the fields below
	samples [keptSamples]sample
	known   uint8
	next    uint8
	// Once full, since the last answer was kept: the latest of the losers, and how many of them and of answers came.
	loser           sample
	answers, losers uint64
	owed            float64
	last            time.Time // when the last answer was kept
}

func newLatencies(percentile float64) *latencies {
	l := &latencies{percentile: percentile}
	l.after.Store(unknown)
	return l
}

// value is the percentile; false while fewer than minimumSamples are known.
func (l *latencies) value() (time.Duration, bool) {
	after := l.after.Load()
	if after == unknown {
		return 0, false
	}
	return time.Duration(after), true
}

func (l *latencies) answered(now time.Time, latency time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == keptSamples {
		l.answers++
		if now.Sub(l.last) < between {
			return
		}
		l.keepOwedLocked()
	}
	l.keepLocked(sampleOf(latency))
	if now.After(l.last) {
		l.last = now
	}
	l.workOutLocked()
}

// lost takes a censored sample. Below the percentile it says nothing: the true latency may be on either side. At the percentile or
// beyond, the true one is as well. It is kept as long as it had, which is less than the truth, so the percentile is a little low and
// rises slowly; kept as endless, a handful of losers would end all hedging.
func (l *latencies) lost(elapsed time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after, ok := l.value(); !ok || elapsed < after {
		return
	}
	if l.known == keptSamples {
		l.losers++
		l.loser = sampleOf(elapsed)
		return
	}
	l.keepLocked(sampleOf(elapsed))
	l.workOutLocked()
}

// keepOwedLocked keeps a loser when a whole one is owed, and begins a new count.
func (l *latencies) keepOwedLocked() {
	// One at most is kept with each answer; what is owed beyond is of no use to any percentile and must not pile up.
	l.owed = min(l.owed+float64(l.losers)/float64(l.answers), 2)
	if l.losers > 0 && l.owed >= 1 {
		l.keepLocked(l.loser)
		l.owed--
	}
	l.answers, l.losers = 0, 0
}

// keepLocked puts a sample in the place of the oldest.
func (l *latencies) keepLocked(s sample) {
	l.samples[l.next] = s
	l.next = (l.next + 1) % keptSamples
	l.known = min(l.known+1, keptSamples)
}

// workOutLocked takes the percentile by nearest rank: the smallest sample that so many percent do not exceed. The rank is exact for
// every percentile of five decimals at most; all were tried.
func (l *latencies) workOutLocked() {
	n := int(l.known)
	if n < minimumSamples {
		return
	}
	sorted := l.samples
	slices.Sort(sorted[:n])
	rank := int(math.Ceil(l.percentile * float64(n) / 100))
	l.after.Store(int64(sorted[min(max(rank, 1), n)-1].duration()))
}

func (l *latencies) snapshot() Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	delay, known := l.value()
	return Snapshot{Samples: int(l.known), Delay: delay, Known: known}
}
