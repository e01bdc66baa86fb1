package breaker_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/breaker"
)

// untripped counts and does not open.
func untripped() breaker.Config {
	c := plain()
	c.ConsecutiveFailures = 0
	return c
}

func TestMoreTicketsThanNumbersAreAdmittedAndCounted(t *testing.T) {
	b := breaker.New(untripped())
	tickets := make([]breaker.Ticket, 1000)
	for i := range tickets {
		tickets[i] = admit(t, b, zero, patient("a"))
	}
	for _, ticket := range tickets {
		ticket.Settle(zero, lost, 0)
	}
	if n := b.Snapshot(zero).Failed; n != 1000 {
		t.Errorf("%d failures", n)
	}
	// None is outstanding: another one is watched.
	ticket := admit(t, b, zero, patient("a"))
	ticket.Settle(zero, lost, 0)
	ticket.Settle(zero, lost, 0)
	if n := b.Snapshot(zero).Failed; n != 1001 {
		t.Errorf("%d failures", n)
	}
}

func TestASettledTicketMakesRoomForAnother(t *testing.T) {
	b := breaker.New(untripped())
	tickets := make([]breaker.Ticket, 256)
	for i := range tickets {
		tickets[i] = admit(t, b, zero, patient("a"))
	}
	tickets[199].Settle(zero, ignored, 0)
	admit(t, b, zero, patient("a"))
	tickets[194].Settle(zero, ignored, 0)
	ticket := admit(t, b, zero, patient("a"))
	ticket.Settle(zero, lost, 0)
	ticket.Settle(zero, lost, 0)
	if n := b.Snapshot(zero).Failed; n != 1 {
		t.Errorf("%d failures: the ticket went without a number", n)
	}
}

func TestSettledAgainAnOldTicketTakesNoYoungerOnesPlace(t *testing.T) {
	b := breaker.New(untripped())
	old := admit(t, b, zero, patient("a"))
	old.Settle(zero, lost, 0)
	young := make([]breaker.Ticket, 256)
	for i := range young {
		young[i] = admit(t, b, zero, patient("a"))
	}
	old.Settle(zero, lost, 0)
	if n := b.Snapshot(zero).Failed; n != 1 {
		t.Fatalf("%d failures, the old one counted again", n)
	}
	for _, ticket := range young {
		ticket.Settle(zero, lost, 0)
	}
	if n := b.Snapshot(zero).Failed; n != 257 {
		t.Errorf("%d failures, the old one took a young one's place", n)
	}
}

func TestASlowTicketIsSettledOnceHoweverManyPassIt(t *testing.T) {
	b := breaker.New(untripped())
	slow := admit(t, b, zero, patient("a"))
	for range 10_000 {
		attempt(t, b, zero, patient("a"), ok)
	}
	for range 3 {
		slow.Settle(zero, lost, 0)
	}
	if n := b.Snapshot(zero).Failed; n != 1 {
		t.Errorf("%d failures", n)
	}
}

// TestEveryWatchedTicketCountsOnce settles tickets in any order and any of them again, however late. Those admitted while 256 are
// outstanding go without a watch, and count each time.
func TestEveryWatchedTicketCountsOnce(t *testing.T) {
	type twin struct {
		ticket           breaker.Ticket
		watched, settled bool
	}
	rapid.Check(t, func(t *rapid.T) {
		b := breaker.New(untripped())
		var twins []twin
		outstanding, failed := 0, 0
		settle := func(w *twin) {
			if !w.settled || !w.watched {
				failed++
			}
			if !w.settled && w.watched {
				outstanding--
			}
			w.settled = true
			w.ticket.Settle(zero, lost, 0)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			what := rapid.SampledFrom([]string{"come", "settle", "settle again"}).Draw(t, "what")
			n := rapid.IntRange(1, 120).Draw(t, "so many")
			if what == "come" {
				for range n {
					ticket, err := b.Admit(zero, patient("a"), 0)
					if err != nil {
						t.Fatal(err)
					}
					watched := outstanding < 256
					if watched {
						outstanding++
					}
					twins = append(twins, twin{ticket: ticket, watched: watched})
				}
				continue
			}
			from := rapid.IntRange(0, len(twins)).Draw(t, "from")
			for i := from; i < len(twins) && n > 0; i++ {
				if w := &twins[i]; w.settled == (what == "settle again") {
					settle(w)
					n--
				}
			}
			if counted := int(b.Snapshot(zero).Failed); counted != failed {
				t.Fatalf("%d failures after %q, want %d", counted, what, failed)
			}
		}
	})
}
