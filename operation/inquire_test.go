package operation_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

// teller plays the upstream's status resource: question n is answered with the nth status, later ones with the last; 0: no answer.
type teller struct {
	statuses []int
	takes    time.Duration

	mu    sync.Mutex // protects the field below
	asked []time.Time
}

func tells(statuses ...int) *teller { return &teller{statuses: statuses} }

func (s *teller) ask(ctx context.Context, until time.Time) *call.Response {
	s.mu.Lock()
	status := s.statuses[min(len(s.asked), len(s.statuses)-1)]
	s.asked = append(s.asked, time.Now())
	s.mu.Unlock()
	timer := time.NewTimer(min(s.takes, time.Until(until)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	if status == 0 || time.Now().Equal(until) {
		return nil
	}
	return &call.Response{Status: status, Body: []byte("as the probe says"), Protocol: "HTTP/1.1"}
}

// times are when it was asked, since the start of the world.
func (s *teller) times(w *world) []time.Duration {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Duration
	for _, at := range s.asked {
		all = append(all, at.Sub(w.start))
	}
	return all
}

// probe is authoritative, with three seconds to settle.
func probe(s *teller) *operation.Probe {
	return &operation.Probe{
		URL: "http://pay.example.com/charges/op", Applied: among(200), NotApplied: among(404), InProgress: among(202),
		Authoritative: true, Settle: 3 * time.Second, Ask: s.ask,
	}
}

func probed(id string, up *upstream, s *teller) *operation.Ask {
	a := payment(id, up)
	a.Probe = probe(s)
	return a
}

func TestAppliedIsTheAnswer(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up, status := endsWith(lost).slowly(time.Second), tells(0, 202, 503, 200)
		got := w.must(probed("op", up, status))
		w.at(1700 * time.Millisecond) // asked at once, after 100, 200 and 400 ms more
		if got.Outcome != call.OutcomeSuccess || got.Effect != call.EffectAnswered || got.Reason != call.ReasonSuccess || got.Next != call.NextStepDone ||
			string(got.Response.Body) != "as the probe says" || got.Sends != 1 || len(got.Attempts) != 1 || got.Replayed || got.Elapsed != 1700*time.Millisecond {
			t.Errorf("%+v", got)
		}
		r := w.record("op")
		k, err := r.Known()
		if err != nil || r.State != operation.StateFinished || r.Outcome != call.OutcomeSuccess || len(k.Attempts) != 1 || len(k.Probes) != 4 ||
			k.Probes[0].Verdict != operation.VerdictNothing || k.Probes[1].Verdict != operation.VerdictInProgress || k.Probes[3].Verdict != operation.VerdictApplied || k.Probes[3].Status != 200 {
			t.Errorf("known: %+v, %+v", r, k)
		}
		again := w.must(probed("op", up, status))
		if again.Outcome != call.OutcomeSuccess || string(again.Response.Body) != "as the probe says" || up.sends() != 1 || len(status.times(w)) != 4 || len(w.heard.probed) != 4 {
			t.Errorf("again: %+v", again)
		}
	})
}

func TestNothingIsAskedAboutWhatIsKnown(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		status := tells(404)
		w.must(probed("a", endsWith(answers(201)), status))
		w.must(probed("b", endsWith(refused), status))
		l := lookup("c", endsWith(exhausted))
		l.Probe = probe(status)
		w.must(l)
		time.Sleep(time.Hour)
		if all := status.times(w); len(all) != 0 {
			t.Errorf("asked at %v", all)
		}
	})
}

func TestTwoThatAgreeAllowOneFreshSend(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up, status := endsWith(lost, answers(201)).slowly(time.Second), tells(404)
		got := w.must(probed("op", up, status))
		// Lost at 1 s; the one at 1 s does not count, it settles at 4 s.
		if want := []time.Duration{time.Second, 4 * time.Second, 4200 * time.Millisecond}; !slices.Equal(status.times(w), want) {
			t.Errorf("asked at %v", status.times(w))
		}
		w.at(5200 * time.Millisecond)
		if got.Outcome != call.OutcomeSuccess || got.Sends != 2 || len(got.Attempts) != 2 || got.Attempts[0].Number != 1 || got.Attempts[1].Number != 2 ||
			got.Attempts[0].Result.Evidence != call.EvidenceSentNoResponse || up.calls[1].Before != (call.Before{}) || up.sends() != 2 {
			t.Errorf("%+v after %d sends", got, up.sends())
		}
		k, err := new(w.record("op")).Known()
		if err != nil || len(k.Attempts) != 2 || len(k.Probes) != 3 || k.Probes[0].Counts || !k.Probes[1].Counts || !k.Probes[2].Counts {
			t.Errorf("known: %+v, %v", k, err)
		}
	})
}

func TestOriginalThatLandsLateIsOneEffect(t *testing.T) {
	for _, tt := range []struct {
		name     string
		statuses []int
	}{
		{"after one that does not count", []int{404, 200}},
		{"between the two", []int{404, 404, 200}},
		{"in progress between them", []int{404, 404, 202, 404, 202, 200}},
		{"no answer between them", []int{404, 404, 0, 404, 503, 404, 200}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				up, status := endsWith(lost, answers(201)), tells(tt.statuses...)
				got := w.must(probed("op", up, status))
				if got.Outcome != call.OutcomeSuccess || string(got.Response.Body) != "as the probe says" || up.sends() != 1 || len(status.times(w)) != len(tt.statuses) {
					t.Errorf("%+v after %d sends, asked at %v", got, up.sends(), status.times(w))
				}
			})
		})
	}
}

func TestNotAppliedAloneProvesNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*operation.Ask)
	}{
		{"it is not authoritative", func(a *operation.Ask) { a.Probe.Authoritative = false }},
		{"nothing says when it settles", func(a *operation.Ask) { a.Probe.Settle = 0 }},
		{"it settles after all is over", func(a *operation.Ask) { a.Probe.Settle = 24 * time.Hour }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				up, status := endsWith(lost, answers(201)), tells(404)
				a := probed("op", up, status)
				tt.change(a)
				got := w.must(a)
				if got.Outcome != call.OutcomeUnknown || got.Next != call.NextStepReconcile || time.Since(w.start) > 9*time.Second {
					t.Errorf("%+v", got)
				}
				time.Sleep(20 * time.Hour)
				if r := w.record("op"); r.State != operation.StateUnknown || r.Free() || up.sends() != 1 {
					t.Errorf("%+v", r)
				}
				if n := len(status.times(w)); n < 8 || n > 30 {
					t.Errorf("asked %d times", n)
				}
			})
		})
	}
}

func TestProbeThatHangsEndsWithTheCallersTime(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		status := tells(200)
		status.takes = time.Hour
		got := w.must(probed("op", endsWith(lost).slowly(time.Second), status))
		w.at(9 * time.Second)
		if got.Outcome != call.OutcomeUnknown || got.Elapsed != 9*time.Second {
			t.Errorf("%+v", got)
		}
	})
}

func TestFreshSendMayRunOn(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		later := make(chan call.Final, 1)
		up, status := endsWith(lost, runsOn(later)), tells(404)
		ask := probed("op", up, status)
		got := w.must(ask)
		if got.Outcome != call.OutcomeUnknown || got.Sends != 2 || len(got.Attempts) != 2 {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Second)
		later <- answers(201)(ask.Call)
		synctest.Wait()
		k, err := new(w.record("op")).Known()
		if err != nil || len(k.Attempts) != 2 || k.Attempts[1].Number != 2 || k.Attempts[1].Result.Status != 201 {
			t.Errorf("known: %+v, %v", k, err)
		}
	})
}

func TestProbesGoOnWhenTheCallerHasGone(t *testing.T) {
	for _, tt := range []struct {
		name     string
		statuses []int
		state    operation.State
		effect   call.Effect
		free     bool
		sends    int // with the one that comes then
	}{
		{"applied", []int{503, 202, 200}, operation.StateFinished, call.EffectAnswered, false, 1},
		{"not applied", []int{503, 404}, operation.StateFinished, call.EffectNone, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				up, status := endsWith(func(c *call.Call) call.Final {
					f := lost(c)
					f.Outcome, f.Reason = call.OutcomeDeadlineExceeded, call.ReasonDeadline
					return f
				}, answers(201)).slowly(time.Second), tells(tt.statuses...)
				got := w.must(within(probed("op", up, status), time.Second))
				if got.Outcome != call.OutcomeDeadlineExceeded || got.Effect != call.EffectUnknown || len(status.times(w)) != 0 {
					t.Errorf("%+v, asked at %v", got, status.times(w))
				}
				time.Sleep(time.Minute)
				r := w.record("op")
				if r.State != tt.state || r.Effect != tt.effect || r.Free() != tt.free {
					t.Errorf("known: %+v, asked at %v", r, status.times(w))
				}
				asked := len(status.times(w))
				time.Sleep(24*time.Hour - 2*time.Minute)
				if n := len(status.times(w)); n != asked {
					t.Errorf("%d probes more", n-asked)
				}
				if again := w.must(probed("op", up, status)); again.Outcome != call.OutcomeSuccess || up.sends() != tt.sends {
					t.Errorf("%+v after %d sends", again, up.sends())
				}
				if tt.free && up.calls[1].Before != (call.Before{}) {
					t.Errorf("led again with %+v", up.calls[1].Before)
				}
			})
		})
	}
}

// What goes on asking for hours must not hold what the call held.
func TestProbesInTheBackgroundHoldNoBodies(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		body := func() weak.Pointer[byte] {
			a := within(probed("op", endsWith(lost), tells(503)), time.Second)
			a.Call.Body = make([]byte, 1<<20)
			w.must(a)
			return weak.Make(&a.Call.Body[0])
		}()
		time.Sleep(time.Minute)
		for range 3 {
			runtime.GC()
		}
		if body.Value() != nil {
			t.Error("the body of the request is still held")
		}
	})
}

// reconcile asks the probe of that teller.
func (w *world) reconcile(id string, s *teller) (operation.Record, error) {
	return w.Reconcile(context.Background(), operation.Key{Caller: "ann", ID: id}, func(*operation.Record) (*operation.Probe, error) { return probe(s), nil })
}

func TestReconcileAsksOnlyAboutTheUnknown(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		status := tells(404)
		if r, err := w.reconcile("never seen", status); !errors.Is(err, operation.ErrNotFound) {
			t.Errorf("%+v, %v", r, err)
		}
		w.must(payment("finished", endsWith(answers(201))))
		w.must(lookup("free", endsWith(exhausted)))
		running := w.begin(payment("running", endsWith(answers(201)).slowly(time.Second)))
		later := make(chan call.Final, 1)
		late := payment("late", endsWith(runsOn(later)))
		w.must(late)
		for id, want := range map[string]operation.State{
			"finished": operation.StateFinished, "free": operation.StateFinished, "running": operation.StateRunning, "late": operation.StateRunning,
		} {
			if r, err := w.reconcile(id, status); err != nil || r.State != want || r.ID != id {
				t.Errorf("%s: %+v, %v", id, r, err)
			}
		}
		<-running.done
		later <- lost(late.Call)
		synctest.Wait()
		if len(status.times(w)) != 0 {
			t.Errorf("asked at %v", status.times(w))
		}
		none := errors.New("there is no probe")
		r, err := w.Reconcile(t.Context(), operation.Key{Caller: "ann", ID: "late"}, func(r *operation.Record) (*operation.Probe, error) {
			if q, err := operation.RequestOf(r); err != nil || q.Method != "POST" || q.URL != "http://pay.example.com/charges?to=42" || q.Probe != "" {
				t.Errorf("%+v, %v", q, err)
			}
			return nil, none
		})
		if !errors.Is(err, none) || r.State != operation.StateUnknown {
			t.Errorf("%+v, %v", r, err)
		}
		w.ledger.set(func(l *faulty) { l.read = &fault{err: errDisk} })
		if r, err := w.reconcile("late", status); err == nil {
			t.Errorf("%+v", r)
		}
		w.ledger.set(func(l *faulty) { l.read, l.write = nil, &fault{err: errDisk} })
		if r, err := w.reconcile("late", status); err == nil {
			t.Errorf("%+v", r)
		}
	})
}

func TestReconcile(t *testing.T) {
	for _, tt := range []struct {
		name     string
		after    time.Duration
		statuses []int
		asks     int
		state    operation.State
		free     bool
	}{
		{"applied", 0, []int{200}, 1, operation.StateFinished, false},
		{"in progress", time.Minute, []int{202}, 1, operation.StateUnknown, false},
		{"nothing", time.Minute, []int{503}, 1, operation.StateUnknown, false},
		{"not applied, too early", 2999 * time.Millisecond, []int{404}, 1, operation.StateUnknown, false},
		{"not applied, twice", 3 * time.Second, []int{404}, 2, operation.StateFinished, true},
		{"not applied, then in progress", time.Minute, []int{404, 202}, 2, operation.StateUnknown, false},
		{"not applied, then applied", time.Minute, []int{404, 200}, 2, operation.StateFinished, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.t
				up := endsWith(lost, answers(201)).slowly(time.Second)
				w.must(payment("op", up))
				time.Sleep(tt.after)
				status := tells(tt.statuses...)
				r, err := w.reconcile("op", status)
				if err != nil || r.State != tt.state || r.Free() != tt.free || len(status.times(w)) != tt.asks {
					t.Errorf("%+v, %v, asked at %v", r, err, status.times(w))
				}
				stored := w.record("op")
				k, err := stored.Known()
				if err != nil || stored.State != tt.state || len(k.Probes) != tt.asks || len(k.Attempts) != 1 || !stored.UpdateTime.Equal(time.Now()) {
					t.Errorf("kept: %+v, %+v, %v", stored, k, err)
				}
				again := w.must(payment("op", up))
				switch {
				case tt.free && (again.Replayed || up.sends() != 2),
					!tt.free && (!again.Replayed || up.sends() != 1),
					tt.state == operation.StateUnknown && again.Outcome != call.OutcomeUnknown,
					tt.state == operation.StateFinished && again.Outcome != call.OutcomeSuccess:
					t.Errorf("again: %+v after %d sends", again, up.sends())
				}
			})
		})
	}
}

func TestReconcileOfACrashCountsFromItsEnd(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		crashed := w.begin(payment("op", endsWith(answers(200)).slowly(time.Hour)))
		time.Sleep(time.Second)
		after := w.broker("broker@2")
		defer after.Close(t.Context())
		synctest.Wait()
		status := tells(404)
		ask := func() operation.Record {
			r, err := after.Reconcile(t.Context(), operation.Key{Caller: "ann", ID: "op"}, func(*operation.Record) (*operation.Probe, error) { return probe(status), nil })
			if err != nil {
				t.Error(err)
			}
			return r
		}
		time.Sleep(2 * time.Second)
		if r := ask(); r.State != operation.StateUnknown {
			t.Errorf("after two seconds: %+v", r)
		}
		time.Sleep(3 * time.Second)
		if r := ask(); !r.Free() {
			t.Errorf("after five: %+v", r)
		}
		crashed.leave()
		<-crashed.done
	})
}

// A probe may take its time; who asks under the id meanwhile is told what is known at once, and nothing that was found is lost.
func TestProbesHoldNobodyUp(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(lost)
		w.must(payment("op", up))
		time.Sleep(time.Minute)
		slow := tells(202)
		slow.takes = 5 * time.Second
		applies := tells(200)
		applies.takes = 2 * time.Second
		done := make(chan operation.Record, 2)
		for _, s := range []*teller{slow, applies} {
			go func() {
				r, err := w.reconcile("op", s)
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
		}
		synctest.Wait()
		before := time.Now()
		if got := w.must(payment("op", up)); got.Outcome != call.OutcomeUnknown || got.Reason != call.ReasonNotRepeatable || time.Since(before) != 0 {
			t.Errorf("%+v after %v", got, time.Since(before))
		}
		for range 2 {
			if r := <-done; r.State != operation.StateFinished || r.Outcome != call.OutcomeSuccess {
				t.Errorf("%+v", r)
			}
		}
		r := w.record("op")
		if k, err := r.Known(); err != nil || r.State != operation.StateFinished || len(k.Probes) == 0 || up.sends() != 1 {
			t.Errorf("%+v, %+v, %v", r, k, err)
		}
	})
}

// Both prove that nothing was done; what was led again meanwhile, and is unknown again, is not freed by the second.
func TestReconcileDoesNotTouchALaterLead(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.t
		up := endsWith(lost).slowly(time.Second)
		w.must(payment("op", up))
		time.Sleep(time.Minute)
		quick, slow := tells(404), tells(404)
		slow.takes = 5 * time.Second
		done := make(chan operation.Record, 1)
		go func() {
			r, err := w.reconcile("op", slow)
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()
		if r, err := w.reconcile("op", quick); err != nil || !r.Free() {
			t.Errorf("%+v, %v", r, err)
		}
		if got := w.must(payment("op", up)); got.Outcome != call.OutcomeUnknown || got.Replayed {
			t.Errorf("%+v", got)
		}
		if r := <-done; r.State != operation.StateUnknown || r.Epoch != 2 || r.Free() {
			t.Errorf("%+v", r)
		}
		if got := w.must(payment("op", up)); !got.Replayed || up.sends() != 2 {
			t.Errorf("%+v after %d sends", got, up.sends())
		}
	})
}
