package bulkhead_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/bulkhead"
)

func TestSlotsUpToTheLimit(t *testing.T) {
	b := bulkhead.New(limits(2, 0))
	first, second := slotOf(t, b, "a"), slotOf(t, b, "a")
	if r := refusal(t, b, bulkhead.Critical, long); r.Reason != bulkhead.ReasonFull || r.InFlight != 2 || r.Pending != 0 {
		t.Errorf("%+v", r)
	}
	if !first.Release() {
		t.Error("not released")
	}
	third := slotOf(t, b, "b")
	second.Release()
	third.Release()
	wantState(t, b, 0, 0)
}

func TestNoLimitRefusesNobody(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{})
	for range 10_000 {
		slotOf(t, b, "a")
	}
	wantState(t, b, 10_000, 0)
}

func TestJoiningDependsOnCriticality(t *testing.T) {
	rows := []struct {
		pending uint32
		c       bulkhead.Criticality
		most    int // how many wait before the next is refused
	}{
		{0, bulkhead.Critical, 0},
		{1, bulkhead.Sheddable, 1}, // none of one is below 70 %
		{1, bulkhead.Critical, 1},
		{10, bulkhead.Sheddable, 7},
		{10, bulkhead.Normal, 9},
		{10, bulkhead.Unspecified, 9},
		{10, 99, 9},
		{10, bulkhead.Critical, 10},
		{128, bulkhead.Sheddable, 90}, // 89.6
		{128, bulkhead.Normal, 116},   // 115.2
		{128, bulkhead.Critical, 128},
	}
	for _, row := range rows {
		t.Run(fmt.Sprintf("criticality %d of %d", row.c, row.pending), func(t *testing.T) {
			b := bulkhead.New(limits(1, row.pending))
			slotOf(t, b, "a")
			for range row.most {
				waiterOf(t, b, "b", row.c)
			}
			r := refusal(t, b, row.c, long)
			if r.Reason != bulkhead.ReasonFull || r.Pending != uint32(row.most) {
				t.Errorf("%+v, want full at %d", r, row.most)
			}
			if !strings.Contains(r.Error(), fmt.Sprintf("1 in flight, %d waiting", row.most)) {
				t.Error(r)
			}
		})
	}
}

func TestWhoMayNotJoinMayWhenTheQueueIsShorter(t *testing.T) {
	b := bulkhead.New(limits(1, 10))
	slotOf(t, b, "a")
	var last *bulkhead.Waiter
	for range 7 {
		last = waiterOf(t, b, "b", bulkhead.Critical)
	}
	refusal(t, b, bulkhead.Sheddable, long)
	last.Leave()
	waiterOf(t, b, "c", bulkhead.Sheddable)
}

func TestWaitIsTheShorterOfTheTwo(t *testing.T) {
	rows := []struct {
		name                     string
		pendingWait, left, until time.Duration // until 0: refused
	}{
		{"the policy's", 100 * time.Millisecond, 10 * time.Second, 100 * time.Millisecond},
		{"both the same", 100 * time.Millisecond, time.Second, 100 * time.Millisecond},
		{"a tenth of what remains", 100 * time.Millisecond, 500 * time.Millisecond, 50 * time.Millisecond},
		{"a tenth is a nanosecond", 100 * time.Millisecond, 10, 1},
		{"a tenth is nothing", 100 * time.Millisecond, 9, 0},
		{"nothing remains", 100 * time.Millisecond, 0, 0},
		{"less than nothing remains", 100 * time.Millisecond, -time.Hour, 0},
		{"the policy lets nobody wait", 0, time.Hour, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b := bulkhead.New(bulkhead.Config{MaxInFlight: 1, MaxPending: 10, PendingWait: row.pendingWait})
			slotOf(t, b, "a")
			if row.until == 0 {
				if r := refusal(t, b, bulkhead.Normal, row.left); r.Reason != bulkhead.ReasonNoTime {
					t.Errorf("%+v", r)
				}
				return
			}
			_, w, err := b.Enter(epoch, "b", bulkhead.Normal, row.left)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.Deadline.Sub(epoch); got != row.until {
				t.Errorf("waits %v, want %v", got, row.until)
			}
		})
	}
}

func TestFreeSlotNeedsNoTime(t *testing.T) {
	b := bulkhead.New(bulkhead.Config{MaxInFlight: 1})
	if slot, _, err := b.Enter(epoch, "a", bulkhead.Sheddable, 0); err != nil || slot == (bulkhead.Slot{}) {
		t.Errorf("%v, %v", slot, err)
	}
}

func TestReleasedSlotGoesToTheNextWaiter(t *testing.T) {
	b := bulkhead.New(limits(1, 10))
	slot := slotOf(t, b, "a")
	first, second := waiterOf(t, b, "b", bulkhead.Normal), waiterOf(t, b, "b", bulkhead.Normal)
	if _, ok := first.Slot(); ok || isGranted(first) {
		t.Fatal("granted before the release")
	}
	slot.Release()
	if isGranted(second) {
		t.Error("one slot, two grants")
	}
	wantState(t, b, 1, 1)
	if _, w, _ := b.Enter(epoch, "c", bulkhead.Critical, long); w == nil {
		t.Error("a newcomer came between the release and the waiter")
	}
	slot = take(t, first)
	if _, again := first.Slot(); again {
		t.Error("the slot was given twice")
	}
	slot.Release()
}

func TestSecondReleaseIsRefused(t *testing.T) {
	b := bulkhead.New(limits(2, 0))
	slot, other := slotOf(t, b, "a"), slotOf(t, b, "a")
	twin := slot
	if !slot.Release() || slot.Release() || twin.Release() {
		t.Error("want one release and two refusals")
	}
	wantState(t, b, 1, 0)
	next := slotOf(t, b, "b") // uses again what the first one used
	if twin.Release() {
		t.Error("a slot released another's")
	}
	wantState(t, b, 2, 0)
	if !next.Release() || !other.Release() {
		t.Error("not released")
	}
	if (bulkhead.Slot{}).Release() {
		t.Error("no slot was released")
	}
}

func TestCriticalityOrdersTheQueue(t *testing.T) {
	b := bulkhead.New(limits(1, 100))
	slot := slotOf(t, b, "a")
	order := []bulkhead.Criticality{
		bulkhead.Sheddable, bulkhead.Normal, bulkhead.Critical, bulkhead.Sheddable, bulkhead.Unspecified, bulkhead.Critical,
	}
	waiters := make([]*bulkhead.Waiter, len(order))
	for i, c := range order {
		waiters[i] = waiterOf(t, b, "b", c)
	}
	for _, i := range []int{2, 5, 1, 4, 0, 3} {
		slot.Release()
		slot = take(t, waiters[i])
	}
	slot.Release()
	wantState(t, b, 0, 0)
}

func TestCallersTakeTurns(t *testing.T) {
	b := bulkhead.New(limits(1, 100))
	slot := slotOf(t, b, "x")
	waiters := map[string][]*bulkhead.Waiter{}
	for caller := range strings.SplitSeq("aaaabbc", "") {
		waiters[caller] = append(waiters[caller], waiterOf(t, b, caller, bulkhead.Normal))
	}
	served := ""
	serve := func(want string) {
		slot.Release()
		slot = take(t, waiters[want][0])
		waiters[want] = waiters[want][1:]
		served += want
	}
	for want := range strings.SplitSeq("abca", "") {
		serve(want)
	}
	waiters["d"] = append(waiters["d"], waiterOf(t, b, "d", bulkhead.Normal)) // behind b and a, once each
	for want := range strings.SplitSeq("bada", "") {
		serve(want)
	}
	slot.Release()
	wantState(t, b, 0, 0)
}

func TestLeaveGivesUpThePlace(t *testing.T) {
	b := bulkhead.New(limits(1, 10))
	slot := slotOf(t, b, "a")
	first, second, third := waiterOf(t, b, "b", 0), waiterOf(t, b, "b", 0), waiterOf(t, b, "b", 0)
	second.Leave()
	second.Leave()
	wantState(t, b, 1, 2)
	slot.Release()
	take(t, first).Release()
	take(t, third).Release()
	if _, ok := second.Slot(); ok || isGranted(second) {
		t.Error("granted after it left")
	}
	wantState(t, b, 0, 0)
}

func TestGrantThatRacedWithLeaveIsPassedOn(t *testing.T) {
	b := bulkhead.New(limits(1, 10))
	slot := slotOf(t, b, "a")
	first, second := waiterOf(t, b, "b", 0), waiterOf(t, b, "c", 0)
	slot.Release()
	first.Leave() // granted, and never taken
	if _, ok := first.Slot(); ok {
		t.Error("took what it had passed on")
	}
	take(t, second).Release()
	wantState(t, b, 0, 0)

	only := slotOf(t, b, "a")
	last := waiterOf(t, b, "b", 0)
	only.Release()
	last.Leave()
	wantState(t, b, 0, 0)
	slotOf(t, b, "a").Release()
}

func TestLeaveAfterTheSlotWasTakenKeepsIt(t *testing.T) {
	b := bulkhead.New(limits(1, 10))
	first := slotOf(t, b, "a")
	w := waiterOf(t, b, "b", 0)
	first.Release()
	slot := take(t, w)
	w.Leave()
	wantState(t, b, 1, 0)
	if !slot.Release() {
		t.Error("not released")
	}
}

func TestLimitMayChangeWhileInUse(t *testing.T) {
	b := bulkhead.New(limits(1, 10))
	slots := []bulkhead.Slot{slotOf(t, b, "a")}
	waiters := make([]*bulkhead.Waiter, 6)
	for i := range waiters {
		waiters[i] = waiterOf(t, b, "b", 0)
	}
	granted := func(want int) {
		t.Helper()
		for i, w := range waiters {
			if isGranted(w) != (i < want) {
				t.Errorf("waiter %d granted %v, want the first %d", i, isGranted(w), want)
			}
		}
	}
	b.SetLimit(3)
	granted(2)
	wantState(t, b, 3, 4)
	slots = append(slots, take(t, waiters[0]), take(t, waiters[1]))

	b.SetLimit(1)
	slots[0].Release()
	slots[1].Release()
	granted(2)
	wantState(t, b, 1, 4)
	slots[2].Release()
	granted(3)
	wantState(t, b, 1, 3)

	b.SetLimit(0)
	granted(6)
	wantState(t, b, 4, 0)
	slotOf(t, b, "a")

	b.SetLimit(2)
	wantState(t, b, 5, 0)
	waiterOf(t, b, "b", 0)
}

func TestTotalsAddUp(t *testing.T) {
	b := bulkhead.New(limits(1, 2))
	slot := slotOf(t, b, "a")
	first, second := waiterOf(t, b, "a", bulkhead.Critical), waiterOf(t, b, "a", bulkhead.Critical)
	refusal(t, b, bulkhead.Critical, long)
	second.Leave()
	slot.Release()
	take(t, first).Release()
	want := bulkhead.Totals{Entered: 3, Queued: 2, Granted: 1, Left: 1, Refused: 1}
	if got := b.Snapshot().Totals; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
