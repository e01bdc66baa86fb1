package bulkhead_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/bulkhead"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// long is a remaining time that shortens no wait.
const long = time.Hour

func limits(inFlight, pending uint32) bulkhead.Config {
	return bulkhead.Config{MaxInFlight: inFlight, MaxPending: pending, PendingWait: time.Second}
}

func slotOf(t rapid.TB, b *bulkhead.Bulkhead, caller string) bulkhead.Slot {
	t.Helper()
	slot, w, err := b.Enter(epoch, caller, bulkhead.Normal, long)
	if err != nil || w != nil || slot == (bulkhead.Slot{}) {
		t.Fatalf("no slot at once: %v, %v, %v", slot, w, err)
	}
	return slot
}

func waiterOf(t rapid.TB, b *bulkhead.Bulkhead, caller string, c bulkhead.Criticality) *bulkhead.Waiter {
	t.Helper()
	slot, w, err := b.Enter(epoch, caller, c, long)
	if err != nil || w == nil || slot != (bulkhead.Slot{}) {
		t.Fatalf("does not wait: %v, %v, %v", slot, w, err)
	}
	return w
}

func refusal(t rapid.TB, b *bulkhead.Bulkhead, c bulkhead.Criticality, remaining time.Duration) *bulkhead.RefusedError {
	t.Helper()
	slot, w, err := b.Enter(epoch, "late", c, remaining)
	refused, ok := errors.AsType[*bulkhead.RefusedError](err)
	if !ok || w != nil || slot != (bulkhead.Slot{}) {
		t.Fatalf("not refused: %v, %v, %v", slot, w, err)
	}
	return refused
}

// isGranted reports whether C is closed.
func isGranted(w *bulkhead.Waiter) bool {
	select {
	case <-w.C:
		return true
	default:
		return false
	}
}

// take is the slot of a granted waiter.
func take(t rapid.TB, w *bulkhead.Waiter) bulkhead.Slot {
	t.Helper()
	if !isGranted(w) {
		t.Fatal("not granted")
	}
	slot, ok := w.Slot()
	if !ok || slot == (bulkhead.Slot{}) {
		t.Fatal("granted, and no slot")
	}
	return slot
}

func wantState(t rapid.TB, b *bulkhead.Bulkhead, inFlight, pending uint32) {
	t.Helper()
	if s := b.Snapshot(); s.InFlight != inFlight || s.Pending != pending {
		t.Errorf("%d in flight, %d waiting; want %d and %d", s.InFlight, s.Pending, inFlight, pending)
	}
}
