package operation_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

func TestWhoJoinsGetsTheAnswerAndNothingMoreIsSent(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(201)).slowly(3 * time.Second)
		leader := w.begin(payment("op", up))
		var joiners []*going
		for i := range 20 {
			time.Sleep(10 * time.Millisecond)
			a := payment("op", up)
			a.Policy = fmt.Sprintf("policies/own@%d", i)
			joiners = append(joiners, w.begin(a))
		}
		<-leader.done
		w.at(3 * time.Second)
		for i, j := range joiners {
			<-j.done
			want := leader.answer
			want.Replayed, want.Sends, want.Elapsed, want.Told = true, 0, 3*time.Second-time.Duration(i+1)*10*time.Millisecond, call.Told{}
			j.answer.Told = call.Told{}
			sameAnswer(t, &j.answer, &want)
		}
		w.at(3 * time.Second)
		if up.sends() != 1 {
			t.Errorf("%d sends", up.sends())
		}
		if hows := w.heard.hows(); len(hows) != 21 || slices.Contains(hows[1:], operation.Led) {
			t.Errorf("told: %v", hows)
		}
	})
}

func TestWhoJoinsHasHisOwnTime(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(201)).slowly(8 * time.Second)
		leader := w.begin(payment("op", up))
		short, leaves, may := w.begin(within(payment("op", up), 2*time.Second)), w.begin(payment("op", up)), w.begin(within(payment("op", up), 8*time.Second))
		time.Sleep(time.Second)
		leaves.leave()
		synctest.Wait()
		for _, tt := range []struct {
			name    string
			g       *going
			outcome call.Outcome
			reason  call.Reason
			took    time.Duration
		}{
			{"who went away", leaves, call.OutcomeCancelled, call.ReasonCancelled, time.Second},
			{"who had two seconds", short, call.OutcomeDeadlineExceeded, call.ReasonDeadline, 2 * time.Second},
		} {
			<-tt.g.done
			a := tt.g.answer
			if tt.g.err != nil || a.Outcome != tt.outcome || a.Reason != tt.reason || a.Effect != call.EffectUnknown || a.Next != call.NextStepWait ||
				a.Sends != 0 || a.RetrySafe || a.OperationID != "op" || a.Elapsed != tt.took || tt.g.took != tt.took || len(a.Attempts) != 0 {
				t.Errorf("%s: %+v, %v in %v", tt.name, a, tt.g.err, tt.g.took)
			}
		}
		<-leader.done
		w.at(8 * time.Second)
		if leader.answer.Outcome != call.OutcomeSuccess || up.sends() != 1 {
			t.Errorf("%+v after %d sends", leader.answer, up.sends())
		}
		<-may.done // the answer comes in the moment in which his time is up
		if may.took != 8*time.Second || may.answer.Sends != 0 {
			t.Errorf("%+v in %v", may.answer, may.took)
		}
	})
}

func TestGoingOfWhoJoinedEndsNothing(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(201)).slowly(2 * time.Second)
		leader := w.begin(payment("op", up))
		joiner := w.begin(payment("op", up))
		joiner.leave()
		<-joiner.done
		<-leader.done
		w.at(2 * time.Second)
		if leader.answer.Outcome != call.OutcomeSuccess || up.sends() != 1 {
			t.Errorf("%+v after %d sends", leader.answer, up.sends())
		}
	})
}

func TestCallGoesOnWhileSomebodyWaits(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(201)).slowly(5 * time.Second)
		leader := w.begin(payment("op", up))
		joiner, other := w.begin(payment("op", up)), w.begin(payment("op", up))
		time.Sleep(time.Second)
		leader.leave()
		synctest.Wait()
		if leader.over() {
			t.Errorf("the call ended: %+v", leader.answer)
		}
		other.leave()
		<-other.done
		<-joiner.done
		<-leader.done
		w.at(5 * time.Second)
		if joiner.answer.Outcome != call.OutcomeSuccess || up.sends() != 1 {
			t.Errorf("%+v after %d sends", joiner.answer, up.sends())
		}
	})
}

func TestCallEndsWithTheLastWhoWaits(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(201)).slowly(5 * time.Second)
		leader := w.begin(payment("op", up))
		one, two := w.begin(payment("op", up)), w.begin(payment("op", up))
		leader.leave()
		one.leave()
		time.Sleep(time.Second)
		two.leave()
		<-leader.done
		w.at(time.Second)
		if leader.answer.Outcome != call.OutcomeCancelled {
			t.Errorf("%+v", leader.answer)
		}
		if r := w.record("op"); r.State != operation.StateUnknown || r.Outcome != call.OutcomeCancelled || r.Free() {
			t.Errorf("known: %+v", r)
		}
	})
}

func TestAbandonedCallIsCancelled(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		leader := w.begin(payment("op", endsWith(answers(201)).slowly(5*time.Second)))
		time.Sleep(time.Second)
		leader.leave()
		<-leader.done
		w.at(time.Second)
		if leader.answer.Outcome != call.OutcomeCancelled {
			t.Errorf("%+v", leader.answer)
		}
	})
}

// The caller is gone by the time the ledger has granted the lead: nothing may be sent (semantics.md §2.1).
func TestNothingIsSentForACallerWhoIsGone(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		for range 20 {
			up := endsWith(answers(201))
			ask := payment("op", up)
			gone := make(chan context.CancelFunc, 1)
			w.heard.led = func() { (<-gone)() }
			ctx, cancel := context.WithCancel(t.Context())
			gone <- cancel
			got, err := w.Do(ctx, ask)
			if err != nil || got.Outcome != call.OutcomeCancelled || up.sends() != 0 {
				t.Fatalf("%+v, %v after %d sends", got.Final, err, up.sends())
			}
		}
	})
}

func TestCancellationIsNobodyElsesAnswer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		ask     func(string, *upstream) *operation.Ask
		outcome call.Outcome
		reason  call.Reason
		sends   int
	}{
		{"what must not be repeated is unknown", payment, call.OutcomeUnknown, call.ReasonNotRepeatable, 1},
		{"what may be is made for who still waits", lookup, call.OutcomeSuccess, call.ReasonSuccess, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				landing := make(chan struct{})
				up := endsWith(func(c *call.Call) call.Final {
					<-landing // it takes a moment to come down
					f := cancelled(c)
					f.Told = call.Told{}
					return f
				}, answers(201))
				leader := w.begin(tt.ask("op", up))
				leader.leave()
				synctest.Wait()
				joiner := w.begin(tt.ask("op", up))
				close(landing)
				<-joiner.done
				if a := joiner.answer; joiner.err != nil || a.Outcome != tt.outcome || a.Reason != tt.reason || up.sends() != tt.sends {
					t.Errorf("%+v, %v after %d sends", a, joiner.err, up.sends())
				}
				<-leader.done
				if leader.answer.Outcome != call.OutcomeCancelled {
					t.Errorf("the one who left: %+v", leader.answer)
				}
			})
		})
	}
}

// A leader in a hurry is no reason to fail those who have time: what may be repeated is made again for them, by one of them.
func TestLeadersDeadlineIsNobodyElses(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(func(c *call.Call) call.Final {
			return ended(c, call.OutcomeDeadlineExceeded, call.EffectUnknown, call.ReasonDeadline)
		}, answers(201)).slowly(time.Second)
		leader := w.begin(within(lookup("op", up), time.Second))
		one, two := w.begin(lookup("op", up)), w.begin(lookup("op", up))
		<-leader.done
		<-one.done
		<-two.done
		w.at(2 * time.Second)
		if leader.answer.Outcome != call.OutcomeDeadlineExceeded || one.answer.Outcome != call.OutcomeSuccess || two.answer.Outcome != call.OutcomeSuccess || up.sends() != 2 || up.most != 1 {
			t.Errorf("%v, %v, %v after %d sends", leader.answer.Outcome, one.answer.Outcome, two.answer.Outcome, up.sends())
		}
	})
}

// What ended for another reason is the answer of all, also where the id is free again: they asked for one set of sends.
func TestWhoJoinsSharesAFailure(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(exhausted).slowly(time.Second)
		leader, joiner := w.begin(lookup("op", up)), w.begin(lookup("op", up))
		<-joiner.done
		<-leader.done
		if joiner.answer.Outcome != call.OutcomeRetriesExhausted || !joiner.answer.Replayed || up.sends() != 1 {
			t.Errorf("%+v after %d sends", joiner.answer, up.sends())
		}
	})
}

func TestManyWhoAskAtOnceAreToldWhatIsKept(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(201))
		w.must(payment("op", up))
		w.ledger.set(func(l *faulty) { l.begin = &fault{takes: 10 * time.Millisecond} })
		var all []*going
		for range 30 {
			all = append(all, w.begin(payment("op", up)))
		}
		for _, g := range all {
			<-g.done
			if g.err != nil || g.answer.Outcome != call.OutcomeSuccess || !g.answer.Replayed || g.answer.Sends != 0 {
				t.Errorf("%+v, %v", g.answer, g.err)
			}
		}
		w.at(10 * time.Millisecond) // one look at the ledger serves all who wait for it
		if up.sends() != 1 {
			t.Errorf("%d sends", up.sends())
		}
	})
}

func TestLateAnswerReachesWhoWaitsAndTheLedger(t *testing.T) {
	for _, tt := range []struct {
		name    string
		late    func(*call.Call) call.Final
		state   operation.State
		known   call.Outcome // as GetOperation tells it
		outcome call.Outcome // that who joined or asks again is told
		effect  call.Effect
	}{
		{"an answer", answers(201), operation.StateFinished, call.OutcomeSuccess, call.OutcomeSuccess, call.EffectAnswered},
		{"none", lost, operation.StateUnknown, call.OutcomeCancelled, call.OutcomeUnknown, call.EffectUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				later := make(chan call.Final, 1)
				ask := payment("op", endsWith(func(c *call.Call) call.Final {
					f := runsOn(later)(c)
					f.Outcome, f.Reason = call.OutcomeCancelled, call.ReasonCancelled
					return f
				}).slowly(2*time.Second))
				got := w.must(ask)
				if got.Outcome != call.OutcomeCancelled || got.Late != nil {
					t.Errorf("%+v", got)
				}
				w.at(2 * time.Second)
				for what, r := range map[string]operation.Record{"known": w.record("op"), "stored": w.stored("op")} {
					if r.State != operation.StateRunning || r.Outcome != call.OutcomeCancelled || r.Effect != call.EffectUnknown || r.Free() || r.Told != (call.Told{}) {
						t.Errorf("%s meanwhile: %+v", what, r)
					}
				}
				up := endsWith(answers(500))
				joiner, short := w.begin(payment("op", up)), w.begin(within(payment("op", up), time.Second))
				time.Sleep(3 * time.Second)
				later <- tt.late(ask.Call)
				<-joiner.done
				<-short.done
				w.at(5 * time.Second)
				if short.answer.Outcome != call.OutcomeDeadlineExceeded || short.answer.Next != call.NextStepWait {
					t.Errorf("who had a second: %+v", short.answer)
				}
				again := w.must(payment("op", up))
				for _, a := range []operation.Answer{joiner.answer, again} {
					if a.Outcome != tt.outcome || a.Effect != tt.effect || !a.Replayed || a.Sends != 0 {
						t.Errorf("told: %+v", a)
					}
				}
				if r := w.stored("op"); r.State != tt.state || r.Outcome != tt.known || r.Effect != tt.effect || up.sends() != 0 {
					t.Errorf("known afterwards: %+v, %d sends", r, up.sends())
				}
			})
		})
	}
}

func TestCrashWhileAnAttemptRunsOnKeepsWhatTheCallerWasTold(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		later := make(chan call.Final, 1)
		ask := payment("op", endsWith(func(c *call.Call) call.Final {
			f := runsOn(later)(c)
			f.Outcome, f.Reason = call.OutcomeDeadlineExceeded, call.ReasonDeadline
			return f
		}))
		w.must(ask)
		after := w.broker("broker@2")
		defer after.Close(t.Context())
		synctest.Wait()
		r := w.stored("op")
		if r.State != operation.StateUnknown || r.Outcome != call.OutcomeDeadlineExceeded || r.Reason != call.ReasonDeadline || r.Effect != call.EffectUnknown {
			t.Errorf("after the crash: %+v", r)
		}
		if want := time.Now().Add(operation.UnknownLife); r.Until.Before(want) {
			t.Errorf("it is forgotten at %v, want %v", r.Until, want)
		}
		up := endsWith(answers(200))
		if a, err := after.Do(t.Context(), payment("op", up)); err != nil || a.Outcome != call.OutcomeUnknown || len(a.Attempts) != 1 || up.sends() != 0 {
			t.Errorf("%+v, %v", a, err)
		}
		later <- lost(ask.Call)
	})
}
