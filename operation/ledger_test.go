package operation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

func TestNothingIsSentWithoutTheLedger(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(200))
		w.ledger.set(func(l *faulty) { l.begin = &fault{err: errDisk} })
		_, err := w.caller(payment("op", up))
		unavailable(t, err, up, 0)
		if !errors.Is(err, errDisk) {
			t.Errorf("%v", err)
		}
		w.at(0)
		if f := w.heard.failures(); !slices.Equal(f, []string{"begin"}) {
			t.Errorf("told: %v", f)
		}
		w.ledger.set(func(l *faulty) { l.begin = nil })
		if got := w.must(payment("op", up)); got.Outcome != call.OutcomeSuccess || up.sends() != 1 {
			t.Errorf("when it is back: %+v", got)
		}
	})
}

func TestLedgerThatHangsTakesNoMoreThanTheCallHas(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(200))
		w.ledger.set(func(l *faulty) { l.begin = &fault{takes: time.Hour} })
		leader := w.begin(within(payment("op", up), 2*time.Second))
		joiner := w.begin(within(payment("op", up), 3*time.Second))
		<-leader.done
		w.at(2 * time.Second)
		unavailable(t, leader.err, up, 0)
		<-joiner.done // whatever it is told, in its time, and that nothing was sent for sure
		w.at(3 * time.Second)
		if joiner.err == nil && joiner.answer.Effect != call.EffectUnknown {
			t.Errorf("who waited with him: %+v, %v", joiner.answer, joiner.err)
		}
		time.Sleep(10 * time.Second)
		w.ledger.set(func(l *faulty) { l.begin = nil })
		w.must(payment("op", up))
	})
}

func TestCallerWhoLeavesTheLedgerWaitingSentNothing(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(200))
		w.ledger.set(func(l *faulty) { l.begin = &fault{takes: 3 * time.Second} })
		leader := w.begin(payment("op", up))
		time.Sleep(time.Second)
		leader.leave()
		<-leader.done
		w.at(time.Second)
		if unavailable(t, leader.err, up, 0); !errors.Is(leader.err, context.Canceled) {
			t.Errorf("%v", leader.err)
		}
		time.Sleep(3 * time.Second) // the lead was granted, and is given back
		if r := w.record("op"); !r.Free() || r.State != operation.StateFinished || r.Effect != call.EffectNone {
			t.Errorf("known: %+v", r)
		}
		w.ledger.set(func(l *faulty) { l.begin = nil })
		w.must(payment("op", up))
	})
}

// Who waits for a lead that its caller gave up takes it.
func TestLeadGivenUpIsTakenByWhoWaits(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(200))
		w.ledger.set(func(l *faulty) { l.begin = &fault{takes: 2 * time.Second} })
		leader := w.begin(within(payment("op", up), time.Second))
		joiner := w.begin(payment("op", up))
		<-leader.done
		unavailable(t, leader.err, up, 0)
		<-joiner.done
		w.at(4 * time.Second)
		if joiner.err != nil || joiner.answer.Outcome != call.OutcomeSuccess || joiner.answer.Replayed || up.sends() != 1 {
			t.Errorf("%+v, %v", joiner.answer, joiner.err)
		}
	})
}

func TestBeginThatWasDoneNeverWedgesItsID(t *testing.T) {
	for _, tt := range []struct {
		name  string
		begin *fault
	}{
		{"it said error", &fault{err: errDisk, after: true}},
		{"it came long after", &fault{takes: 7 * time.Second, deaf: true}},
		{"both", &fault{takes: 7 * time.Second, deaf: true, err: errDisk, after: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				up := endsWith(answers(200))
				w.ledger.set(func(l *faulty) { l.begin, l.write = tt.begin, &fault{err: errDisk} }) // nor can it be given back
				_, err := w.caller(within(payment("op", up), time.Second))
				unavailable(t, err, up, 0)
				time.Sleep(10 * time.Second)
				if r := w.stored("op"); r.State != operation.StateRunning {
					t.Fatalf("the ledger has %+v", r)
				}
				// Nobody is making it, and nobody who asks waits for it.
				if r := w.record("op"); r.State != operation.StateFinished || !r.Free() || r.Effect != call.EffectNone {
					t.Errorf("known: %+v", r)
				}
				w.ledger.set(func(l *faulty) { l.begin, l.write = nil, nil })
				other := payment("op", up)
				other.Call.Body = []byte("another")
				if got := w.must(other); got.Outcome != call.OutcomeSuccess || got.Replayed || up.sends() != 1 || up.calls[0].Before != (call.Before{}) {
					t.Errorf("%+v after %d sends", got, up.sends())
				}
			})
		})
	}
}

func TestAnswerDoesNotWaitForALedgerThatFails(t *testing.T) {
	for _, tt := range []struct {
		name  string
		write *fault
		takes time.Duration
		again time.Duration
	}{
		{"at once", &fault{err: errDisk}, 0, 0},
		{"it hangs", &fault{takes: time.Hour}, time.Second, time.Second},
		{"it is slow", &fault{takes: 300 * time.Millisecond}, 300 * time.Millisecond, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				up := endsWith(answers(201))
				w.ledger.set(func(l *faulty) { l.write = tt.write })
				if got := w.must(payment("op", up)); got.Outcome != call.OutcomeSuccess {
					t.Errorf("%+v", got)
				}
				w.at(tt.takes)
				before := time.Now()
				if got := w.must(payment("op", up)); got.Outcome != call.OutcomeSuccess || !got.Replayed || got.Sends != 0 || up.sends() != 1 || time.Since(before) != tt.again {
					t.Errorf("again: %+v after %d sends, %v", got, up.sends(), time.Since(before))
				}
				if r := w.record("op"); r.State != operation.StateFinished || r.Status != 201 {
					t.Errorf("known: %+v", r)
				}
				w.ledger.set(func(l *faulty) { l.write = nil })
				time.Sleep(7 * time.Second)
				if r := w.stored("op"); r.State != operation.StateFinished || r.Status != 201 || r.Epoch != 1 {
					t.Errorf("when it is back: %+v", r)
				}
			})
		})
	}
}

func TestNobodySeesAnAnswerThatACrashCouldTakeBack(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(201)).slowly(time.Second)
		w.ledger.set(func(l *faulty) { l.write = &fault{takes: 300 * time.Millisecond} })
		leader, joiner := w.begin(payment("op", up)), w.begin(payment("op", up))
		<-leader.done
		<-joiner.done
		if leader.took != 1300*time.Millisecond || joiner.took != leader.took {
			t.Errorf("seen after %v and %v", leader.took, joiner.took)
		}
	})
}

func TestAnswerLeavesTheCallerHalfOfWhatIsLeft(t *testing.T) {
	bubble(t, func(w *world) {
		up := endsWith(answers(201)).slowly(time.Second)
		w.ledger.set(func(l *faulty) { l.write = &fault{takes: time.Hour} })
		w.must(within(payment("op", up), 1200*time.Millisecond))
		w.at(1100 * time.Millisecond)
	})
}

func TestFreeIDIsRefusedUntilTheLedgerKnows(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(refused, answers(200))
		w.ledger.set(func(l *faulty) { l.write = &fault{err: errDisk} })
		w.must(payment("op", up))
		_, err := w.caller(payment("op", up))
		unavailable(t, err, up, 1)
		w.ledger.set(func(l *faulty) { l.write = nil })
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.must(payment("op", up)); got.Outcome != call.OutcomeSuccess || up.sends() != 2 {
			t.Errorf("%+v", got)
		}
		up = endsWith(refused, answers(200)) // and while it is being told, he waits
		w.ledger.set(func(l *faulty) { l.write = &fault{takes: time.Second} })
		first := w.begin(payment("two", up))
		next, short := w.begin(payment("two", up)), w.begin(within(payment("two", up), 500*time.Millisecond))
		<-short.done
		unavailable(t, short.err, up, 1)
		<-first.done
		<-next.done
		if next.err != nil || next.answer.Outcome != call.OutcomeSuccess || up.sends() != 2 {
			t.Errorf("%+v, %v", next.answer, next.err)
		}
	})
}

func TestWriteThatWasDoneMayBeDoneAgain(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(201))
		w.ledger.set(func(l *faulty) { l.write = &fault{err: errDisk, after: true} })
		w.must(payment("op", up))
		w.ledger.set(func(l *faulty) { l.write = nil })
		time.Sleep(time.Minute)
		if got := w.must(payment("op", up)); got.Outcome != call.OutcomeSuccess || !got.Replayed || up.sends() != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestFailingLedgerIsNotAskedInALoop(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.ledger.set(func(l *faulty) {
			l.write, l.pruned, l.settling = &fault{err: errDisk}, &fault{err: errDisk}, &fault{err: errDisk}
			l.more = true
		})
		w.must(payment("op", endsWith(answers(201))))
		time.Sleep(10*time.Second + time.Millisecond)
		if writes, _ := w.ledger.counts(); writes != 11 {
			t.Errorf("%d writes in ten seconds", writes)
		}
		w.ledger.set(func(l *faulty) { l.settling = nil })
		time.Sleep(10*time.Minute + time.Second)
		if _, n := w.ledger.counts(); n != 10 {
			t.Errorf("%d prunes in ten minutes", n)
		}
		w.ledger.set(func(l *faulty) { l.write, l.pruned, l.more = nil, nil, false })
	})
}

func TestPruningGoesOnWhileThereIsMore(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.ledger.set(func(l *faulty) { l.more = true })
		time.Sleep(time.Minute + 100*time.Millisecond + time.Microsecond)
		w.ledger.set(func(l *faulty) { l.more = false })
		if _, n := w.ledger.counts(); n != 101 {
			t.Errorf("%d prunes", n)
		}
		time.Sleep(time.Minute)
		if _, n := w.ledger.counts(); n > 103 {
			t.Errorf("%d prunes", n)
		}
	})
}

func TestForgottenOperationIsNotFound(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.must(payment("op", endsWith(answers(200))))
		time.Sleep(operation.Tombstone + time.Minute)
		if _, err := w.Get(t.Context(), operation.Key{Caller: "ann", ID: "op"}); !errors.Is(err, operation.ErrNotFound) {
			t.Errorf("%v", err)
		}
		name, since := w.Identity()
		if want, _ := w.ledger.Identity(); name != want || !since.Equal(time.Now().Add(-operation.Tombstone)) {
			t.Errorf("%s knows since %v", name, since)
		}
	})
}

func TestOutcomesThatWaitAreBounded(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(200))
		w.ledger.set(func(l *faulty) { l.write = &fault{err: errDisk} })
		for i := range operation.MostUnsaved {
			w.must(payment(fmt.Sprint(i), up))
		}
		_, err := w.caller(payment("one too many", up))
		unavailable(t, err, up, operation.MostUnsaved)
		if got := w.must(payment("7", up)); !got.Replayed || up.sends() != operation.MostUnsaved { // what is known is told
			t.Errorf("%+v", got)
		}
		w.ledger.set(func(l *faulty) { l.write = nil })
		time.Sleep(time.Second)
		synctest.Wait()
		w.must(payment("one too many", up))
	})
}

func TestCloseWaitsForWhatIsWrittenAndNoLonger(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		later := make(chan call.Final, 1)
		running := payment("runs on", endsWith(runsOn(later)))
		w.must(running)
		w.ledger.set(func(l *faulty) { l.write = &fault{err: errDisk} })
		w.must(payment("unwritten", endsWith(answers(200))))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		w.Close(ctx)
		w.at(3 * time.Second)
		w.ledger.set(func(l *faulty) { l.write = nil })
		later <- answers(201)(running.Call)
		w.Close(t.Context())
		w.at(3 * time.Second)
		if r := w.stored("runs on"); r.State != operation.StateFinished || r.Status != 201 {
			t.Errorf("%+v", r)
		}
		if r := w.stored("unwritten"); r.State != operation.StateRunning {
			t.Errorf("%+v", r)
		}
	})
}

func TestListTellsALedgerThatFails(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		w.must(payment("op", endsWith(answers(200))))
		if all, err := w.List(t.Context(), "ann", operation.StateFinished, operation.Cursor{}, 5); err != nil || len(all) != 1 || all[0].ID != "op" {
			t.Errorf("%+v, %v", all, err)
		}
		w.ledger.set(func(l *faulty) { l.read = &fault{err: errDisk} })
		_, listed := w.List(t.Context(), "ann", 0, operation.Cursor{}, 5)
		_, got := w.Get(t.Context(), operation.Key{Caller: "ann", ID: "op"})
		for what, err := range map[string]error{"List": listed, "Get": got} {
			if _, ok := errors.AsType[*operation.UnavailableError](err); !ok {
				t.Errorf("%s: %v", what, err)
			}
		}
		if f := w.heard.failures(); !slices.Equal(f, []string{"read", "read"}) {
			t.Errorf("told: %v", f)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.List(ctx, "ann", 0, operation.Cursor{}, 5); err == nil || len(w.heard.failures()) != 2 { // it is not the ledger's fault
			t.Errorf("%v", err)
		}
	})
}
