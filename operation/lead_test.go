package operation_test

import (
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

func TestLeadIsWrittenBeforeAnythingIsSent(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(func(c *call.Call) call.Final {
			r := w.stored("op")
			if r.State != operation.StateRunning || r.Epoch != 1 || r.Owner != "broker@1" || !r.MustNotRepeat || r.Free() || r.Fingerprint == (operation.Fingerprint{}) {
				t.Errorf("as it is sent the ledger has %+v", r)
			}
			if !c.MayRunOn || c.Before != (call.Before{}) {
				t.Errorf("sent with %+v, may run on: %v", c.Before, c.MayRunOn)
			}
			return answers(201)(c)
		})
		got := w.must(payment("op", up))
		if got.Outcome != call.OutcomeSuccess || got.Sends != 1 || got.Replayed || got.Policy != "policies/pay@3" || string(got.Response.Body) != "made" {
			t.Errorf("%+v", got)
		}
		r := w.stored("op")
		if r.State != operation.StateFinished || r.Outcome != call.OutcomeSuccess || r.Effect != call.EffectAnswered || r.Status != 201 ||
			!r.UpdateTime.Equal(w.start) || !r.BodyUntil.Equal(w.start.Add(operation.BodyLife)) || !r.Until.Equal(w.start.Add(operation.Tombstone)) {
			t.Errorf("afterwards the ledger has %+v", r)
		}
		if hows := w.heard.hows(); !slices.Equal(hows, []operation.How{operation.Led}) {
			t.Errorf("told: %v", hows)
		}
	})
}

func TestWhatWasKeptIsToldAgain(t *testing.T) {
	for _, tt := range []struct {
		name    string
		final   func(*call.Call) call.Final
		state   operation.State
		outcome call.Outcome // that the first caller got
		told    call.Told
		next    call.NextStep
	}{
		{"a success", answers(201), operation.StateFinished, call.OutcomeSuccess, call.Told{Outcome: call.OutcomeSuccess, Reason: call.ReasonSuccess}, call.NextStepDone},
		{"a definitive error", answers(410), operation.StateFinished, call.OutcomeHTTPError, call.Told{Outcome: call.OutcomeHTTPError, Reason: call.ReasonStatusNotRetryable}, call.NextStepFixRequest},
		{"an unknown effect", lost, operation.StateUnknown, call.OutcomeUnknown, call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}, call.NextStepReconcile},
		{"a cancelled one", cancelled, operation.StateUnknown, call.OutcomeCancelled, call.Told{Outcome: call.OutcomeUnknown, Reason: call.ReasonNotRepeatable}, call.NextStepReconcile},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				up := endsWith(tt.final).slowly(time.Second)
				first := w.must(payment("op", up))
				time.Sleep(time.Minute)
				for range 2 {
					again := payment("op", up)
					again.Policy = "policies/other@1"
					got := w.must(again)
					want := operation.Answer{Final: first.Final, Policy: "policies/pay@3", Replayed: true}
					want.Outcome, want.Reason = tt.told.Outcome, tt.told.Reason
					want.Sends, want.Elapsed, want.Next, want.Told = 0, 0, tt.next, call.Told{}
					sameAnswer(t, &got, &want)
				}
				if up.sends() != 1 {
					t.Errorf("%d sends", up.sends())
				}
				if r := w.record("op"); r.State != tt.state || r.Outcome != tt.outcome || r.Free() {
					t.Errorf("known: %v, %v, free: %v", r.State, r.Outcome, r.Free())
				}
				if hows := w.heard.hows(); !slices.Equal(hows, []operation.How{operation.Led, operation.Replayed, operation.Replayed}) {
					t.Errorf("told: %v", hows)
				}
			})
		})
	}
}

// sameAnswer compares two answers; a stored one has its times in UTC.
func sameAnswer(t *testing.T, got, want *operation.Answer) {
	t.Helper()
	for _, a := range []*operation.Answer{got, want} {
		a.FirstSend = a.FirstSend.UTC()
		a.Attempts = slices.Clone(a.Attempts)
		for i := range a.Attempts {
			a.Attempts[i].Start = a.Attempts[i].Start.UTC().Round(0)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v %+v\nwant %+v %+v", got, got.Response, want, want.Response)
	}
}

func TestFreedIDIsLedAgainAndKnowsWhatWas(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ask   func(string, *upstream) *operation.Ask
		final func(*call.Call) call.Final
		want  func(begun time.Time) call.Before
	}{
		{"nothing was sent", payment, refused, func(time.Time) call.Before { return call.Before{} }},
		{"it may be repeated", lookup, exhausted, func(begun time.Time) call.Before { return call.Before{FirstSend: begun.UTC(), Unknown: true} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				up := endsWith(tt.final, answers(200))
				w.must(tt.ask("op", up))
				if r := w.record("op"); !r.Free() || r.State != operation.StateFinished || r.Outcome == call.OutcomeUnspecified {
					t.Errorf("known: %+v", r)
				}
				begun := w.start
				time.Sleep(time.Minute)
				other := tt.ask("op", up) // a freed id forgets its fingerprint
				other.Call.Body = []byte("another")
				if got := w.must(other); got.Outcome != call.OutcomeSuccess || got.Replayed || got.Sends != 1 {
					t.Errorf("%+v", got)
				}
				if got := up.calls[1].Before; got.Unknown != tt.want(begun).Unknown || !got.FirstSend.Equal(tt.want(begun).FirstSend) {
					t.Errorf("led again with %+v, want %+v", got, tt.want(begun))
				}
				if r := w.stored("op"); r.Epoch != 2 || !r.CreateTime.Equal(w.start) {
					t.Errorf("epoch %d, since %v", r.Epoch, r.CreateTime)
				}
			})
		})
	}
}

// A freed id whose lead ended in a crash may have been sent as early as it was heard of: the key's horizon counts from there.
func TestLeadThatCrashedCountsForTheHorizonOfTheKey(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(200)).slowly(time.Hour)
		keyed := func() *operation.Ask {
			a := lookup("op", up)
			a.KeyField, a.KeyTTL = "Idempotency-Key", 30*24*time.Hour
			return a
		}
		crashed := w.begin(keyed())
		after := w.broker("broker@2")
		defer after.Close(t.Context())
		synctest.Wait()
		r := w.stored("op")
		if !r.Free() || r.Effect != call.EffectUnknown {
			t.Errorf("after the crash: %+v", r)
		}
		if want := w.start.Add(31 * 24 * time.Hour); r.Until.Before(want) {
			t.Errorf("it is forgotten at %v, the key is not good from %v on", r.Until, want)
		}
		time.Sleep(time.Second)
		again := endsWith(answers(200))
		ask := keyed()
		ask.Send = again.send
		if _, err := after.Do(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		if got := again.calls[0].Before; !got.Unknown || !got.FirstSend.Equal(w.start) {
			t.Errorf("led again with %+v", got)
		}
		crashed.leave()
		<-crashed.done
	})
}

func TestCrashReadsBackAsUnknown(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		crashed := w.begin(payment("op", endsWith(answers(200)).slowly(time.Hour)))
		after := w.broker("broker@2")
		defer after.Close(t.Context())
		synctest.Wait()
		if r := w.stored("op"); r.State != operation.StateUnknown || r.Until.Before(w.start.Add(operation.UnknownLife)) {
			t.Errorf("known: %v until %v", r.State, r.Until)
		}
		up := endsWith(answers(200))
		got, err := after.Do(t.Context(), payment("op", up))
		if err != nil || got.Outcome != call.OutcomeUnknown || got.Effect != call.EffectUnknown || got.Reason != call.ReasonNotRepeatable ||
			got.Next != call.NextStepReconcile || got.RetrySafe || got.Detail == "" || !got.Replayed || up.sends() != 0 {
			t.Errorf("%+v, %v after %d sends", got, err, up.sends())
		}
		crashed.leave()
		<-crashed.done
	})
}

func TestTombstoneTellsWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		name      string
		ask       func(string, *upstream) *operation.Ask
		final     func(*call.Call) call.Final
		next      call.NextStep
		retrySafe bool
	}{
		{"a success", payment, answers(200), call.NextStepDone, false},
		{"an error", payment, answers(410), call.NextStepFixRequest, false},
		{"of what may be repeated", lookup, answers(410), call.NextStepFixRequest, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				up := endsWith(tt.final)
				first := w.must(tt.ask("op", up))
				time.Sleep(time.Hour)
				got := w.must(tt.ask("op", up))
				if got.Outcome != first.Outcome || got.Effect != call.EffectAnswered || got.Next != tt.next || got.RetrySafe != tt.retrySafe || !got.Replayed ||
					got.Response == nil || got.Response.Status != first.Response.Status || !got.Response.BodyOmitted || up.sends() != 1 {
					t.Errorf("%+v with %+v", got, got.Response)
				}
				k, err := new(w.record("op")).Known()
				if err != nil || k.Next != tt.next || k.RetrySafe != tt.retrySafe {
					t.Errorf("known: %+v, %v", k, err)
				}
			})
		})
	}
}

func TestLargeBodyIsKeptAsStatusAndHead(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(func(c *call.Call) call.Final {
			f := answers(200)(c)
			f.Response.Body = make([]byte, operation.MostBody+1)
			return f
		})
		w.must(payment("op", up))
		got := w.must(payment("op", up))
		if r := got.Response; r.Status != 200 || r.Body != nil || !r.BodyOmitted || len(r.Headers) != 1 || len(r.Trailers) != 1 || up.sends() != 1 {
			t.Errorf("%+v after %d sends", r, up.sends())
		}
	})
}

func TestOtherPayloadIsAConflictAtEachStage(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(200)).slowly(time.Second)
		other := func() *operation.Ask {
			a := payment("op", up)
			a.Call.Body = []byte("another")
			return a
		}
		conflicts := func(when string) {
			t.Helper()
			got := w.must(other())
			if got.Outcome != call.OutcomeOperationConflict || got.Effect != call.EffectNone || got.Reason != call.ReasonOperationConflict ||
				got.Next != call.NextStepFixRequest || got.Sends != 0 || got.OperationID != "op" || got.Replayed {
				t.Errorf("%s: %+v", when, got)
			}
		}
		w.ledger.set(func(l *faulty) { l.begin = &fault{takes: time.Second} })
		leader := w.begin(payment("op", up))
		early := w.begin(other())
		time.Sleep(time.Second)
		synctest.Wait()
		if !early.over() || early.answer.Outcome != call.OutcomeOperationConflict {
			t.Errorf("while the ledger is asked: %+v", early.answer)
		}
		w.ledger.set(func(l *faulty) { l.begin = nil })
		conflicts("under way")
		w.at(time.Second)
		w.ledger.set(func(l *faulty) { l.write = &fault{err: errDisk} })
		<-leader.done
		conflicts("over, in memory")
		w.ledger.set(func(l *faulty) { l.write = nil })
		time.Sleep(time.Minute)
		conflicts("over and kept")
		if up.sends() != 1 {
			t.Errorf("%d sends", up.sends())
		}
	})
}

func TestSameIDOfTwoCallersIsTwoOperations(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(200)).slowly(time.Second)
		bob := payment("op", up)
		bob.Call.Caller, bob.Call.Body = "bob", []byte("his own")
		one, two := w.begin(payment("op", up)), w.begin(bob)
		<-one.done
		<-two.done
		if up.sends() != 2 || one.answer.Replayed || two.answer.Replayed || up.most != 2 {
			t.Errorf("%d sends, %+v, %+v", up.sends(), one.answer, two.answer)
		}
		if r := w.record("op"); r.Caller != "ann" {
			t.Errorf("ann is told of %+v", r)
		}
	})
}

func TestUnknownIsNeverFree(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(func(c *call.Call) call.Final {
			f := lost(c)
			f.Told = call.Told{} // whoever sends forgot to say
			return f
		})
		w.must(payment("op", up))
		if got := w.must(payment("op", up)); got.Outcome != call.OutcomeUnknown || got.Reason != call.ReasonNotRepeatable || up.sends() != 1 {
			t.Errorf("%+v after %d sends", got, up.sends())
		}
	})
}

func TestPanicInASendIsAnUnknownEffect(t *testing.T) {
	for _, tt := range []struct {
		name string
		ask  func(string, *upstream) *operation.Ask
		want operation.State
	}{
		{"of what must not be repeated", payment, operation.StateUnknown},
		{"of what may be", lookup, operation.StateFinished},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				up := endsWith(func(*call.Call) call.Final { panic("a poisoned answer") }, answers(200)).slowly(time.Second)
				gone := make(chan any, 1)
				go func() {
					defer func() { gone <- recover() }()
					w.must(tt.ask("op", up))
				}()
				synctest.Wait()
				joiner := w.begin(tt.ask("op", up))
				if p := <-gone; p != "a poisoned answer" {
					t.Errorf("the panic became %v", p)
				}
				<-joiner.done
				if joiner.answer.Effect != call.EffectUnknown || joiner.answer.Outcome != call.OutcomeUnknown {
					t.Errorf("who joined is told %+v", joiner.answer)
				}
				r := w.record("op")
				if r.State != tt.want || r.Effect != call.EffectUnknown || r.Free() != (tt.want == operation.StateFinished) {
					t.Errorf("known: %+v", r)
				}
				w.must(tt.ask("op", up))
				if want := map[operation.State]int{operation.StateUnknown: 1, operation.StateFinished: 2}[tt.want]; up.sends() != want {
					t.Errorf("%d sends, want %d", up.sends(), want)
				}
			})
		})
	}
}

func TestCallWithNoTimeLeftIsToldWhatIsKnown(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(answers(201), answers(200)).slowly(time.Minute)
		tooLate := func(id string) *operation.Ask {
			a := payment(id, endsWith(func(c *call.Call) call.Final {
				if c.MayRunOn {
					t.Error("it may run on")
				}
				return ended(c, call.OutcomeDeadlineExceeded, call.EffectNone, call.ReasonDeadline)
			}))
			a.Work = time.Now()
			return a
		}
		if got := w.must(tooLate("never seen")); got.Outcome != call.OutcomeDeadlineExceeded || got.Effect != call.EffectNone || got.Replayed {
			t.Errorf("never seen: %+v", got)
		}
		if _, err := w.Get(t.Context(), operation.Key{Caller: "ann", ID: "never seen"}); err == nil {
			t.Error("it was begun")
		}
		up.takes = 0
		w.must(payment("kept", up))
		if got := w.must(tooLate("kept")); got.Outcome != call.OutcomeSuccess || got.Response.Status != 201 || !got.Replayed {
			t.Errorf("kept: %+v", got)
		}
		other := tooLate("kept")
		other.Call.Body = nil
		if got := w.must(other); got.Outcome != call.OutcomeOperationConflict {
			t.Errorf("another payload: %+v", got)
		}
		up.takes = time.Second
		leader := w.begin(payment("under way", up))
		if got := w.must(tooLate("under way")); got.Outcome != call.OutcomeDeadlineExceeded || got.Effect != call.EffectUnknown || got.Next != call.NextStepWait || got.Sends != 0 {
			t.Errorf("under way: %+v", got)
		}
		other = tooLate("under way")
		other.Call.Body = nil
		if got := w.must(other); got.Outcome != call.OutcomeOperationConflict {
			t.Errorf("another payload under way: %+v", got)
		}
		<-leader.done
		w.must(lookup("freed", endsWith(exhausted)))
		a := tooLate("freed")
		sent := endsWith(refused)
		a.Send = sent.send
		w.must(a)
		if got := sent.calls[0].Before; !got.Unknown || got.FirstSend.IsZero() {
			t.Errorf("freed: %+v", got)
		}
		w.ledger.set(func(l *faulty) { l.read = &fault{err: errDisk} })
		unavailable(t, second(w.caller(tooLate("kept"))), up, 2)
		w.ledger.set(func(l *faulty) { l.read = &fault{takes: time.Hour} })
		before := time.Now()
		unavailable(t, second(w.caller(tooLate("kept"))), up, 2)
		if took := time.Since(before); took != 100*time.Millisecond {
			t.Errorf("a ledger that hangs took %v", took)
		}
	})
}

func second(_ operation.Answer, err error) error { return err }
