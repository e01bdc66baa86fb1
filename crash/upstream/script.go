package upstream

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// script is what happens to one request. The zero value commits and answers at once.
type script struct {
	name string
	// torn: the connection is reset when a part of the body was read. Nothing is committed.
	torn bool
	// refuse, when not 0, is answered before anything is committed.
	refuse int
	// work passes before the commit, then think before the answer.
	work, think time.Duration
	// dropped: nothing is committed, and the answer is as lost says.
	dropped bool
	// lost is how the answer fails to arrive.
	lost loss
	// gateway, when not 0, is answered instead of what was committed: what stands between had given up.
	gateway int
}

// loss is how an answer fails to arrive.
type loss int

const (
	arrives loss = iota
	closed
	reset
	halved // a part of the answer comes, then a reset
)

// LongestWork is how long after its arrival a request may be committed: longer than an attempt lasts.
const LongestWork = 1400 * time.Millisecond

// scriptFor draws the script of the nth request of an operation. The same seed gives the same one.
func scriptFor(seed uint64, operation string, n int) script {
	h := fnv.New64a()
	_, _ = h.Write([]byte(operation))                       // never fails
	rnd := rand.New(rand.NewPCG(seed^h.Sum64(), uint64(n))) //nolint:gosec // counts from 1
	between := func(low, high time.Duration) time.Duration { return low + rand64(rnd, high-low) }
	const short, long = 30 * time.Millisecond, 400 * time.Millisecond
	quick := between(0, short)
	all := []struct {
		weight int
		script script
	}{
		{18, script{name: "answers", work: quick}},
		{10, script{name: "answers after a while", work: between(short, long)}},
		{12, script{name: "commits, answers late", work: quick, think: between(100*time.Millisecond, 1200*time.Millisecond)}},
		{10, script{name: "commits late", work: between(200*time.Millisecond, LongestWork)}},
		{7, script{name: "commits, closes", work: quick, lost: closed}},
		{7, script{name: "commits, resets", work: quick, lost: reset}},
		{5, script{name: "commits, resets amid the answer", work: quick, lost: halved}},
		{4, script{name: "works, commits, resets", work: between(short, long), lost: reset}},
		{4, script{name: "commits, 502", work: quick, gateway: 502}},
		{3, script{name: "commits, 504", work: between(0, long), gateway: 504}},
		{3, script{name: "commits, 500", work: quick, gateway: 500}},
		{4, script{name: "closes", work: quick, dropped: true, lost: closed}},
		{4, script{name: "resets", work: quick, dropped: true, lost: reset}},
		{4, script{name: "resets amid the request", torn: true}},
		{4, script{name: "503", refuse: 503}},
		{2, script{name: "429", refuse: 429}},
		{2, script{name: "401", refuse: 401}},
		{2, script{name: "404", refuse: 404}},
		{2, script{name: "502 at once", refuse: 502}},
	}
	total := 0
	for _, s := range all {
		total += s.weight
	}
	at := rnd.IntN(total)
	for _, s := range all {
		if at -= s.weight; at < 0 {
			return s.script
		}
	}
	return script{name: "answers"}
}

func rand64(rnd *rand.Rand, below time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(below)))
}
