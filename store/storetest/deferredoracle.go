package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
)

// RunDeferredAgainst does the same at random to two stores, each new and empty, and wants the same of both; of what is due, what the
// interface promises. reopen closes and opens the first.
func RunDeferredAgainst(t *testing.T, open, oracle func(t testing.TB) Deferred, reopen func(t testing.TB, s Deferred) Deferred) {
	t.Helper()
	rapid.Check(t, func(r *rapid.T) {
		d := &deferredDrive{t: t, got: open(t), want: oracle(t), used: map[string]bool{}}
		r.Repeat(map[string]func(*rapid.T){
			"submit": d.submit, "submit more": d.submit, "begin": d.begin, "begin more": d.begin, "end": d.end, "end more": d.end, "settle": d.settle,
			"due": d.due, "list": d.list, "recover": d.recover, "cancel": d.cancel, "redrive": d.redrive, "purge": d.purge, "expire": d.expire,
			"changes": d.changes, "": d.same,
			"reopen": func(*rapid.T) { d.got = reopen(t, d.got) },
		})
	})
}

type deferredDrive struct {
	t                 *testing.T
	got, want         Deferred
	used              map[string]bool
	gotPlace, wantPos uint64 // positions after which changes are asked for
}

func deferredKind(err error) error {
	for _, answer := range []error{
		deferred.ErrNotFound, deferred.ErrConflict, deferred.ErrSuperseded, deferred.ErrFinished, deferred.ErrSending, deferred.ErrState,
	} {
		if errors.Is(err, answer) {
			return answer
		}
	}
	return err
}

// both wants the same of both.
func (d *deferredDrive) both(r *rapid.T, what string, f func(s Deferred) (any, error)) any {
	got, err := f(d.got)
	want, wantErr := f(d.want)
	if deferredKind(err) != deferredKind(wantErr) { //nolint:errorlint // kinds are the errors themselves
		r.Fatalf("%s: got %v, want %v", what, err, wantErr)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		r.Fatalf("%s\n got %s\nwant %s", what, short(got), short(want))
	}
	return want
}

func anID(r *rapid.T) string {
	return rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}).Draw(r, "id")
}

func aCaller(r *rapid.T) string { return rapid.SampledFrom([]string{"a", "ab"}).Draw(r, "caller") }

func someOrigin(r *rapid.T) string { return rapid.SampledFrom([]string{"o1", "o2"}).Draw(r, "origin") }

func someLabels(r *rapid.T) map[string]string {
	all := map[string]string{}
	for _, name := range []string{"x", "y"} {
		if v := rapid.SampledFrom([]string{"", "", "1", "2"}).Draw(r, name); v != "" {
			all[name] = v
		}
	}
	return all
}

func maybe(r *rapid.T, what string) time.Time {
	if rapid.Bool().Draw(r, "has "+what) {
		return aMinute(r)
	}
	return time.Time{}
}

func anAnswer(r *rapid.T) *call.Response {
	if rapid.Bool().Draw(r, "no answer") {
		return nil
	}
	return &call.Response{Status: rapid.IntRange(100, 599).Draw(r, "status"), Body: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(r, "body")}
}

func (d *deferredDrive) submit(r *rapid.T) {
	caller, id := aCaller(r), anID(r)
	stood := slices.ContainsFunc(d.every(r), func(o deferred.Record) bool { return o.Caller == caller && o.OperationID == id })
	if d.used[caller+" "+id] && !stood {
		id = fmt.Sprint(len(d.used)) + "new" // what is known of an id after a purge is the ledger's, which not every store has
	}
	d.used[caller+" "+id] = true
	rec := &deferred.Record{
		ID: fmt.Sprintf("%s-%s-%d", caller, id, rapid.IntRange(0, 1<<40).Draw(r, "random")), Caller: caller, OperationID: id, Origin: someOrigin(r),
		Fingerprint: [32]byte{byte(rapid.IntRange(0, 3).Draw(r, "payload") / 3)}, State: deferred.StatePending, Labels: someLabels(r),
		Criticality: call.Criticality(rapid.IntRange(0, 3).Draw(r, "criticality")), MaxRetries: rapid.Uint32().Draw(r, "retries"),
		NextAttempt: aMinute(r), Created: aMinute(r), Updated: aMinute(r), Expire: maybe(r, "expire"), Request: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(r, "request"),
	}
	d.both(r, "Submit", func(s Deferred) (any, error) {
		stands, stored, err := s.Submit(d.t.Context(), rec)
		return []any{plainCall(stands), stored}, err
	})
}

// every gives all that is stored, the latest first.
func (d *deferredDrive) every(r *rapid.T) []deferred.Record {
	all, err := d.want.List(d.t.Context(), &deferred.Filter{}, 0, all)
	if err != nil {
		r.Fatal(err)
	}
	return all
}

// one draws one that is stored, mostly one in such a state.
func (d *deferredDrive) one(r *rapid.T, states ...deferred.State) (deferred.Record, bool) {
	all := d.every(r)
	some := slices.DeleteFunc(slices.Clone(all), func(r deferred.Record) bool { return !slices.Contains(states, r.State) })
	if len(some) > 0 && rapid.IntRange(0, 5).Draw(r, "right") > 0 {
		all = some
	}
	if len(all) == 0 {
		return deferred.Record{}, false
	}
	return rapid.SampledFrom(all).Draw(r, "call"), true
}

func (d *deferredDrive) begin(r *rapid.T) {
	one, ok := d.one(r, deferred.StatePending, deferred.StateRetrying)
	if !ok {
		return
	}
	epoch, repeatable, now := one.Epoch+uint64(rapid.IntRange(0, 9).Draw(r, "off")/9), rapid.Bool().Draw(r, "repeatable"), aMinute(r)
	d.both(r, "Begin", func(s Deferred) (any, error) { return nil, s.Begin(d.t.Context(), one.Seq, epoch, repeatable, now) })
}

func (d *deferredDrive) end(r *rapid.T) {
	one, ok := d.one(r, deferred.StateSending)
	if !ok {
		return
	}
	one.Epoch += uint64(rapid.IntRange(0, 9).Draw(r, "off") / 9)
	one.Spent, one.PossibleDuplicate, one.Updated, one.FirstSend = one.Spent+1, rapid.Bool().Draw(r, "duplicate"), aMinute(r), aMinute(r)
	one.Outcome, one.Reason = call.Outcome(rapid.IntRange(1, 15).Draw(r, "outcome")), call.Reason(rapid.IntRange(1, 24).Draw(r, "reason"))
	one.Effect, one.Response, one.Detail = call.Effect(rapid.IntRange(1, 3).Draw(r, "effect")), anAnswer(r), "a sentence"
	made := []call.Attempt{made(one.Tried+uint32(rapid.IntRange(0, 2).Draw(r, "number")), 1)}
	one.Attempts = nil
	if rapid.Bool().Draw(r, "again") {
		one.State, one.NextAttempt = deferred.StateRetrying, aMinute(r)
	} else {
		one.State, one.NextAttempt, one.Ended = deferred.State(rapid.IntRange(4, 7).Draw(r, "state")), time.Time{}, one.Updated
		one.Until = maybe(r, "until")
		if one.State == deferred.StateFailed {
			one.Failure = deferred.FailurePermanent
		}
	}
	d.both(r, "End", func(s Deferred) (any, error) {
		n := one
		return nil, s.End(d.t.Context(), &n, made)
	})
}

func (d *deferredDrive) settle(r *rapid.T) {
	one, ok := d.one(r, deferred.StateUnknown)
	if !ok {
		return
	}
	one.Epoch += uint64(rapid.IntRange(0, 9).Draw(r, "off") / 9)
	one.Updated, one.Effect, one.Response, one.Detail = aMinute(r), call.Effect(rapid.IntRange(1, 3).Draw(r, "effect")), anAnswer(r), "found"
	if one.State = deferred.State(rapid.IntRange(3, 4).Draw(r, "state")); one.State == deferred.StateCompleted {
		one.Until, one.Ended = maybe(r, "until"), one.Updated
	} else {
		one.State, one.NextAttempt, one.FirstSend, one.Ended = deferred.StateRetrying, aMinute(r), time.Time{}, time.Time{}
	}
	d.both(r, "Settle", func(s Deferred) (any, error) {
		n := one
		return nil, s.Settle(d.t.Context(), &n)
	})
}

// due wants what the interface promises of what is due, which leaves room.
func (d *deferredDrive) due(r *rapid.T) { //nolint:gocognit // the rules of Due, one after the other
	now, n := aMinute(r), rapid.IntRange(0, 8).Draw(r, "n")
	without, busy := map[deferred.Lane]bool{}, map[uint64]bool{}
	if rapid.Bool().Draw(r, "without") {
		without[deferred.Lane{Caller: rapid.SampledFrom([]string{"a", ""}).Draw(r, "whose"), Origin: someOrigin(r)}] = true
	}
	for range rapid.IntRange(0, 3).Draw(r, "busy") {
		busy[uint64(rapid.IntRange(1, 12).Draw(r, "seq"))] = true
	}
	got, next, err := d.got.Due(d.t.Context(), now, n, without, busy)
	_, wantNext, wantErr := d.want.Due(d.t.Context(), now, n, without, busy)
	if err != nil || wantErr != nil || !next.Equal(wantNext) {
		r.Fatalf("Due: next %v, %v; want %v, %v", next, err, wantNext, wantErr)
	}
	could := map[deferred.Lane][]deferred.Record{}
	total := 0
	for _, one := range d.every(r) {
		lane := deferred.Lane{Caller: one.Caller, Origin: one.Origin}
		if (one.State == deferred.StatePending || one.State == deferred.StateRetrying) && !one.NextAttempt.After(now) &&
			!without[lane] && !without[deferred.Lane{Origin: one.Origin}] && !busy[one.Seq] {
			could[lane] = append(could[lane], one)
			total++
		}
	}
	gave := map[deferred.Lane][]deferred.Record{}
	for _, one := range got {
		lane := deferred.Lane{Caller: one.Caller, Origin: one.Origin}
		if !slices.ContainsFunc(could[lane], func(c deferred.Record) bool { return c.Seq == one.Seq }) ||
			slices.ContainsFunc(gave[lane], func(c deferred.Record) bool { return c.Seq == one.Seq }) {
			r.Fatalf("Due gives %d, which is not due or comes twice", one.Seq)
		}
		gave[lane] = append(gave[lane], one)
	}
	if len(got) != min(n, total) {
		r.Fatalf("Due gives %d of %d, %d were asked for", len(got), total, n)
	}
	for lane, some := range gave {
		for other := range could {
			if len(some) > len(gave[other])+1 && len(gave[other]) < len(could[other]) {
				r.Fatalf("%v is given %d, %v only %d of %d", lane, len(some), other, len(gave[other]), len(could[other]))
			}
		}
	}
	for lane, c := range could {
		for _, given := range gave[lane] {
			for _, left := range c {
				if !slices.ContainsFunc(gave[lane], func(g deferred.Record) bool { return g.Seq == left.Seq }) && before(left, given) {
					r.Fatalf("in %v %d is given before %d", lane, given.Seq, left.Seq)
				}
			}
		}
	}
}

// before: a comes before b in their lane, however "oldest" is read.
func before(a, b deferred.Record) bool {
	if x, y := rankOf(a.Criticality), rankOf(b.Criticality); x != y {
		return x < y
	}
	return a.Seq < b.Seq && !a.NextAttempt.After(b.NextAttempt)
}

func rankOf(c call.Criticality) call.Criticality {
	if c == call.CriticalityUnspecified {
		return call.CriticalityNormal
	}
	return c
}

func aFilter(r *rapid.T) deferred.Filter {
	f := deferred.Filter{Labels: someLabels(r), CreatedAfter: maybe(r, "after"), CreatedBefore: maybe(r, "before")}
	if rapid.Bool().Draw(r, "of a caller") {
		f.Caller = aCaller(r)
	}
	if rapid.Bool().Draw(r, "in a state") {
		f.State = deferred.State(rapid.IntRange(1, 7).Draw(r, "state"))
	}
	if rapid.Bool().Draw(r, "at an origin") {
		f.Origin = someOrigin(r)
	}
	return f
}

func plainCalls(all []deferred.Record) []deferred.Record {
	plain := []deferred.Record{}
	for _, r := range all {
		plain = append(plain, plainCall(r))
	}
	return plain
}

func (d *deferredDrive) list(r *rapid.T) {
	f, at, n := aFilter(r), uint64(rapid.IntRange(0, 12).Draw(r, "below")), rapid.IntRange(0, 4).Draw(r, "n")
	d.both(r, "List", func(s Deferred) (any, error) {
		all, err := s.List(d.t.Context(), &f, at, n)
		return plainCalls(all), err
	})
}

func (d *deferredDrive) recover(r *rapid.T) {
	now := aMinute(r)
	d.both(r, "Recover", func(s Deferred) (any, error) { return s.Recover(d.t.Context(), now) })
}

func (d *deferredDrive) cancel(r *rapid.T) {
	one, _ := d.one(r, deferred.StatePending, deferred.StateRetrying)
	caller, now, until := rapid.SampledFrom([]string{one.Caller, one.Caller, "", "a"}).Draw(r, "who"), aMinute(r), maybe(r, "until")
	d.both(r, "Cancel", func(s Deferred) (any, error) {
		got, err := s.Cancel(d.t.Context(), caller, one.ID, now, until)
		return plainCall(got), err
	})
}

func (d *deferredDrive) which(r *rapid.T, states ...deferred.State) *deferred.Which {
	w := &deferred.Which{Filter: aFilter(r)}
	if rapid.Bool().Draw(r, "named") {
		w.IDs = []string{}
		for range rapid.IntRange(0, 3).Draw(r, "how many") {
			one, _ := d.one(r, states...)
			w.IDs = append(w.IDs, one.ID)
		}
	}
	return w
}

func (d *deferredDrive) redrive(r *rapid.T) {
	w, now, rate := d.which(r, deferred.StateFailed, deferred.StateUnknown), aMinute(r), rapid.SampledFrom([]float64{0, 0.1, 10}).Draw(r, "rate")
	_, err := d.want.Redrive(d.t.Context(), w, rate, now)
	_, gotErr := d.got.Redrive(d.t.Context(), w, rate, now)
	// Which of two errors it is depends on which name is looked at first.
	if (err == nil) != (gotErr == nil) {
		r.Fatalf("Redrive: got %v, want %v", gotErr, err)
	}
}

func (d *deferredDrive) purge(r *rapid.T) {
	w := d.which(r, deferred.StateFailed, deferred.StateCompleted, deferred.StateCancelled, deferred.StateUnknown)
	if w.IDs == nil && rapid.IntRange(0, 2).Draw(r, "seldom") > 0 {
		return
	}
	n, err := d.want.Purge(d.t.Context(), w)
	got, gotErr := d.got.Purge(d.t.Context(), w)
	if n != got || (err == nil) != (gotErr == nil) {
		r.Fatalf("Purge: got %d, %v, want %d, %v", got, gotErr, n, err)
	}
}

func (d *deferredDrive) expire(r *rapid.T) {
	now := aMinute(r)
	d.both(r, "Expire", func(s Deferred) (any, error) {
		for {
			next, more, err := s.Expire(d.t.Context(), now)
			if err != nil || !more {
				return next.UTC(), err
			}
		}
	})
}

func (d *deferredDrive) changes(r *rapid.T) {
	f, n := aFilter(r), rapid.IntRange(1, 5).Draw(r, "n")
	got, place, err := d.got.Changes(d.t.Context(), &f, d.gotPlace, n)
	want, pos, wantErr := d.want.Changes(d.t.Context(), &f, d.wantPos, n)
	// What expires together changes in any order.
	order := func(a, b deferred.Record) int { return int(int64(a.Seq) - int64(b.Seq)) }
	if len(want) < n {
		slices.SortFunc(got, order)
		slices.SortFunc(want, order)
		if err != nil || wantErr != nil || !reflect.DeepEqual(plainCalls(got), plainCalls(want)) {
			r.Fatalf("Changes\n got %v %s\nwant %v %s", err, short(got), wantErr, short(want))
		}
		if rapid.Bool().Draw(r, "go on") {
			d.gotPlace, d.wantPos = place, pos
		}
	} else if err != nil || len(got) != len(want) {
		r.Fatalf("Changes: got %d, %v, want %d", len(got), err, len(want))
	}
}

// same compares all that is stored, after every step.
func (d *deferredDrive) same(r *rapid.T) {
	d.both(r, "all", func(s Deferred) (any, error) {
		records, err := s.List(d.t.Context(), &deferred.Filter{}, 0, all)
		return plainCalls(records), err
	})
	for _, caller := range []string{"a", "ab", ""} {
		d.both(r, "counts of "+caller, func(s Deferred) (any, error) { return s.Counts(d.t.Context(), caller) })
	}
	for _, one := range d.every(r) {
		d.both(r, "Find", func(s Deferred) (any, error) {
			got, err := s.Find(d.t.Context(), one.Caller, one.ID)
			return plainCall(got), err
		})
	}
}
