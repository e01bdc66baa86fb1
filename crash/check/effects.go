package check

import (
	"slices"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

// put: its effect may happen again.
func (s *story) put() bool { return s.Route.Method == "PUT" }

// effects: the operation happened at most once.
func (c *checker) effects(s *story) {
	if done := s.committed(); len(done) > 1 && !s.put() {
		c.violationf(s, OneEffect, "%d effects", len(done))
	}
}

// freeing are the statuses of a refusal that is not kept, so that the id may be sent again: a new token mends them.
var freeing = []int{401, 403, 407}

// proof: before a request arrives, every earlier one of the operation had been refused with proof.
func (c *checker) proof(s *story) {
	if !s.Route.MustNotRepeat() || s.Route.Probed { // a probe proves too
		return
	}
	for i := range s.arrivals {
		if i == 0 {
			continue
		}
		before := s.arrivals[i-1]
		if !s.harmless(&before) {
			c.violationf(s, NoProof, "a request arrived at %s after one at %s that may have been applied (%s)",
				at(s.arrivals[i].At), at(before.At), before.Script)
		}
	}
}

// harmless: the upstream said that it did nothing.
func (s *story) harmless(a *history.Arrival) bool {
	return slices.Contains(freeing, a.Status) || slices.Contains(s.Route.Proves, a.Status)
}

// keys: one key, while it lives. It lives from the first request that may have been applied.
func (c *checker) keys(s *story) {
	if !s.Route.Keyed {
		return
	}
	names, first := map[string]bool{}, map[string]time.Duration{}
	for i := range s.arrivals {
		a := &s.arrivals[i]
		names[a.Key] = true
		since, known := first[a.Key]
		switch {
		case a.Key == "":
			c.violationf(s, KeyLife, "a request without a key arrived at %s", at(a.At))
		case !known:
			if !s.harmless(a) {
				first[a.Key] = a.At
			}
		case a.At-since > s.Route.KeyTTL+history.KeyGrace:
			c.violationf(s, KeyLife, "a request arrived at %s under a key first seen at %s, %s is its life", at(a.At), at(since), s.Route.KeyTTL)
		}
	}
	if s.Identified && len(names) > 1 {
		c.violationf(s, KeyLife, "%d keys", len(names))
	}
}

// claims: neither "nothing happened" nor "refused" is said of what happened. A conflict speaks of another payload.
func (c *checker) claims(s *story) {
	for i := range s.asks {
		a := &s.asks[i]
		rule := ""
		switch {
		case a.Code != history.OK || a.Outcome == conflict:
		case a.Effect == "NONE":
			rule = NotNone
		case a.Effect == "ANSWERED" && a.Outcome != success:
			rule = NotRefused
		}
		for _, x := range s.committed() {
			// What the ask led, or what was there before it with its payload.
			if rule != "" && (x.Trace == a.Trace || s.Identified && x.Other == a.Other && x.At <= a.Start) {
				c.violationf(s, rule, "%s told at %s; the request of %s was committed at %s", a.Outcome, at(a.End), at(x.At), at(x.Committed))
				break
			}
		}
	}
	for _, r := range s.readings {
		rule := ""
		switch {
		case r.Code != history.OK:
		case r.Effect == "NONE":
			rule = NotNone
		case r.Effect == "ANSWERED" && r.Status >= 400 && r.Outcome != conflict:
			rule = NotRefused
		}
		for _, x := range s.committed() {
			if rule != "" && x.At <= r.Start {
				c.violationf(s, rule, "GetOperation at %s: %s %s; the request of %s was committed at %s", at(r.End), r.State, r.Outcome, at(x.At), at(x.Committed))
				break
			}
		}
	}
}

// successes: what is told has happened by then, and the answer is that of an effect.
func (c *checker) successes(s *story) {
	for i := range s.asks {
		a := &s.asks[i]
		if a.Code != history.OK || a.Outcome != success {
			continue
		}
		happened, fits := false, false
		for _, x := range s.committed() {
			if x.Committed <= a.End {
				happened = true
				fits = fits || x.Answer == a.Body
			}
		}
		switch {
		case !happened:
			c.violationf(s, TrueSuccess, "told at %s, nothing was committed", at(a.End))
		case !fits && !s.bodyGone(a) && (!s.Route.Probed || a.Status == created): // a probe's answer is another
			c.violationf(s, TrueSuccess, "told at %s with the body %q", at(a.End), a.Body)
		}
	}
}

// bodyGone: the answer is older than its key, and only its status is kept.
func (s *story) bodyGone(a *history.Ask) bool {
	return s.Route.Keyed && a.Replayed && a.Body == "" && len(s.arrivals) > 0 && a.End-s.arrivals[0].At > s.Route.KeyTTL
}

const (
	success  = "SUCCESS"
	conflict = "OPERATION_CONFLICT"
	created  = 201
)
