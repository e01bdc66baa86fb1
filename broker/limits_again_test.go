package broker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An arrival that left in order is used again, with its timer: for the new message it must be as if it were new. One that was given up
// is not, since whoever gave it up may still be about to hang up.
func TestArrivalUsedAgainHasItsOwnTimeAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReception(10, 0, maxMessage)
		receive := func(within time.Duration) (*arrival, <-chan error) {
			hungUp := make(chan error, 1) // never closed
			a := r.arrival("a", func(cause error) { hungUp <- cause })
			if !r.begin(a) {
				t.Fatal("no place")
			}
			r.expect(a, within)
			return a, hungUp
		}
		for _, within := range []time.Duration{time.Second, time.Minute, time.Millisecond} {
			for range 11 { // an odd number in all: a timer that was not set again is not used a third time
				a, hungUp := receive(within)
				if err := r.end(a); err != nil || len(hungUp) != 0 {
					t.Fatalf("in order: %v, hung up %d", err, len(hungUp))
				}
			}
		}
		a, hungUp := receive(30 * time.Second)
		time.Sleep(30*time.Second - 1)
		synctest.Wait()
		if len(hungUp) != 0 {
			t.Fatal("given up before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		select {
		case cause := <-hungUp:
			if !errors.Is(cause, errGivenUp) {
				t.Fatal(cause)
			}
		default:
			t.Fatal("not given up in time")
		}
		if err := r.end(a); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v", err)
		}
		for range 10 {
			if b, _ := receive(time.Second); b == a {
				t.Fatal("an arrival that was given up is used again")
			}
		}
		r.close()
	})
}
