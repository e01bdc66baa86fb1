package hedge_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/hedge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return epoch.Add(d) }

const (
	ms = time.Millisecond
	us = time.Microsecond
	// longest is the saturated sample.
	longest = 9999 * time.Second
	// pause is what passes between two answers that are kept once the trigger is full.
	pause = 78125 * us
)

func percentile(p float64) hedge.Config { return hedge.Config{Percentile: p} }

// learn tells latencies of answers, each a pause after the one before, and returns when the last one came.
func learn(h *hedge.Trigger, now time.Time, latencies ...time.Duration) time.Time {
	for _, latency := range latencies {
		now = now.Add(pause)
		h.Learn(now, latency)
	}
	return now
}

// upTo is 1, 2, … n milliseconds in an order that is none.
func upTo(n int) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = time.Duration(i*37%n+1) * ms
	}
	return all
}

// same is n times one latency.
func same(n int, latency time.Duration) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = latency
	}
	return all
}

func wantAfter(t *testing.T, h *hedge.Trigger, want time.Duration) {
	t.Helper()
	got, known := h.After()
	if !known || got != want {
		t.Fatalf("after %v, known: %v, want %v", got, known, want)
	}
	if s := h.Snapshot(); s.Delay != want || !s.Known {
		t.Fatalf("the snapshot says %+v, want %v", s, want)
	}
}

func wantUnknown(t *testing.T, h *hedge.Trigger, samples int) {
	t.Helper()
	if got, known := h.After(); known || got != 0 {
		t.Fatalf("after %v, known: %v, want nothing", got, known)
	}
	if s := h.Snapshot(); s != (hedge.Snapshot{Samples: samples}) {
		t.Fatalf("the snapshot says %+v, want %d samples and nothing known", s, samples)
	}
}
