package deferred_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
)

// TestAFaultOfTheStoreLosesAndDoublesNothing breaks each kind of use of the store in each way, some times in a row.
func TestAFaultOfTheStoreLosesAndDoublesNothing(t *testing.T) {
	for _, op := range []string{"submit", "begin", "end", "due", "find", "recover", "expire"} {
		for _, fault := range []error{errBroken, errAfter, errHangs} {
			for _, times := range []int{1, 2, 5} {
				t.Run(fmt.Sprint(op, " ", fault, " ", times), func(t *testing.T) {
					u := newUpstream(func(_ context.Context, r *deferred.Record, nth int) call.Final {
						if nth == 1 && r.Delivery != deferred.DeliveryAtMostOnce {
							return busy()
						}
						return good()
					})
					synctest.Test(t, func(t *testing.T) {
						left := times
						s := newFaulty(func(what string) error {
							if what != op && (op != "find" || what != "begin" || left <= 0) || left <= 0 {
								return nil
							}
							if what == "begin" { // so that there is something to find out
								return errAfter
							}
							left--
							return fault
						})
						q := queueOn(s, u)
						q.Run()
						defer closed(t, q)
						synctest.Wait()
						for _, id := range []string{"again", "once"} {
							for {
								r := &deferred.Record{ID: id, Caller: "one", OperationID: id, Origin: "http://a:80"}
								if id == "once" {
									r.Delivery = deferred.DeliveryAtMostOnce
								}
								ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
								_, _, err := q.Submit(ctx, r)
								cancel()
								if err == nil {
									break
								}
							}
						}
						time.Sleep(10 * time.Minute)
						if n := len(u.times("again")); n != 2 {
							t.Errorf("sent %d times", n)
						}
						if n := len(u.times("once")); n != 1 {
							t.Errorf("sent %d times", n)
						}
						s.mend()
						for _, id := range []string{"again", "once"} {
							if r := wantState(t, q, id, deferred.StateCompleted); len(r.Attempts) != len(u.times(id)) {
								t.Errorf("%d attempts in the log", len(r.Attempts))
							}
						}
						q.Close(t.Context())
					})
				})
			}
		}
	}
}

func TestABrokenStoreIsNotSpunOn(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return good() })
	synctest.Test(t, func(t *testing.T) {
		broken := ""
		s := newFaulty(func(op string) error {
			if op == broken || broken == "all" {
				return errBroken
			}
			return nil
		})
		q := queueOn(s, u)
		q.Run()
		defer closed(t, q)
		for i, op := range []string{"due", "expire", "begin", "end", "all"} {
			set := func(what string) {
				s.mu.Lock()
				defer s.mu.Unlock()
				broken = what
			}
			set("")
			submit(t, q, "b-"+op, "http://a:80")
			set(op)
			before := s.count("due") + s.count("expire") + s.count("begin") + s.count("end") + s.count("find")
			time.Sleep(time.Minute)
			uses := s.count("due") + s.count("expire") + s.count("begin") + s.count("end") + s.count("find") - before
			if uses > 61*2*(i+2) { // two a second by the loops, and by each call whose attempt is not written
				t.Errorf("%s: %d uses in a minute", op, uses)
			}
			set("")
		}
		time.Sleep(time.Minute)
		for _, id := range []string{"b-due", "b-expire", "b-begin", "b-end", "b-all"} {
			wantState(t, q, id, deferred.StateCompleted)
			if n := len(u.times(id)); n != 1 {
				t.Errorf("%s: sent %d times", id, n)
			}
		}
		q.Close(t.Context())
	})
}

// What is cancelled and purged while it is not known whether its attempt was written as begun is gone, and not asked for again and again.
func TestWhatIsPurgedInDoubtIsLeft(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return good() })
	synctest.Test(t, func(t *testing.T) {
		var s *faulty
		s = newFaulty(func(op string) error {
			if op != "begin" || s.uses[op] > 1 {
				return nil
			}
			_, err := s.Deferred.Cancel(t.Context(), "one", "a", time.Now(), time.Now())
			if n, purged := s.Deferred.Purge(t.Context(), &deferred.Which{IDs: []string{"a"}}); errors.Join(err, purged) != nil || n != 1 {
				t.Error(n, err, purged)
			}
			return errBroken
		})
		q := queueOn(s, u)
		q.Run()
		defer closed(t, q)
		submit(t, q, "a", "http://a:80")
		time.Sleep(time.Minute)
		if n := s.count("begin"); n > 2 || len(u.times("a")) != 0 {
			t.Errorf("begun %d times, sent %d times", n, len(u.times("a")))
		}
		q.Close(t.Context())
	})
}

func TestAStoreThatFailsIsSaid(t *testing.T) {
	u := newUpstream(func(context.Context, *deferred.Record, int) call.Final { return good() })
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(func(op string) error {
			if op == "submit" || op == "cancel" {
				return errBroken
			}
			return nil
		})
		q := queueOn(s, u)
		q.Run()
		defer closed(t, q)
		_, stored, err := q.Submit(t.Context(), &deferred.Record{ID: "a", Caller: "one", OperationID: "a"})
		if failed, ok := errors.AsType[*deferred.StoreError](err); !ok || !errors.Is(failed, errBroken) || stored {
			t.Errorf("%v %v", stored, err)
		}
		q.Close(t.Context())
	})
}

func TestCloseEndsThoughTheStoreFails(t *testing.T) {
	for _, fault := range []error{errBroken, errHangs} {
		for _, op := range []string{"recover", "due", "begin", "end"} {
			u := newUpstream(func(ctx context.Context, _ *deferred.Record, _ int) call.Final { return slow(ctx, time.Second) })
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty(func(what string) error {
					if what == op {
						return fault
					}
					return nil
				})
				q := queueOn(s, u)
				q.Run()
				defer closed(t, q)
				submit(t, q, "a", "http://a:80", onceOnly)
				time.Sleep(10 * time.Second)
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				q.Close(ctx)
				if took := time.Since(start); took > 30*time.Second && op != "recover" || took > time.Minute {
					t.Errorf("%s %v: closed after %v", op, fault, took)
				}
				s.mend()
				q = queueOn(s, u)
				q.Run()
				defer closed(t, q)
				time.Sleep(10 * time.Second)
				want, sent := deferred.StateCompleted, 1
				if op == "end" {
					want = deferred.StateUnknown // it was sent, and what became of it could not be written
				}
				wantState(t, q, "a", want)
				if n := len(u.times("a")); n != sent {
					t.Errorf("%s %v: sent %d times", op, fault, n)
				}
				q.Close(t.Context())
			})
		}
	}
}
