package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

// Ledger is all that a ledger of operations does.
type Ledger interface {
	operation.Ledger
	operation.Keeper
}

// RunLedger tests the ledgers that open gives: each new and empty, and closed by the end of the test it was opened for.
func RunLedger(t *testing.T, open func(t testing.TB) Ledger) {
	t.Helper()
	for _, group := range [][]ledgerPromise{leads(), lists(), keeping(), ledgersShared()} {
		for _, p := range group {
			t.Run(p.name, func(t *testing.T) { p.test(t, open(t)) })
		}
	}
}

type ledgerPromise struct {
	name string
	test func(t *testing.T, l Ledger)
}

func leads() []ledgerPromise {
	return []ledgerPromise{
		{"a new id is led, and the record is what was given", newIDs},
		{"an id that stands is told of and not changed", idsThatStand},
		{"a free id is led again, and keeps what it must", freeIDs},
		{"a write replaces all but the time of creation", writesReplace},
		{"a lead that is over writes no more", supersededWrites},
		{"an id means nothing without its caller", callersApart},
		{"times come back to the nanosecond, in UTC", ledgerTimes},
		{"what is given is not kept, and what comes back is the caller's", nothingOfLedgerShared},
		{"every number and size comes back", extremes},
	}
}

const caller = "spiffe://example.com/caller"

func key(id string) operation.Key { return operation.Key{Caller: caller, ID: id} }

// started is a record as it begins, at minute n.
func started(k operation.Key, n int) *operation.Record {
	return &operation.Record{
		Key: k, Owner: "broker 1", Fingerprint: operation.Fingerprint{1, byte(n), 3}, State: operation.StateRunning, MustNotRepeat: true,
		CreateTime: at(n), Until: at(n + 1440), Request: []byte("request of " + k.ID),
	}
}

// answered is a record as it ends, at minute n.
func answered(r operation.Record, n int) *operation.Record {
	r.State, r.Outcome, r.Effect, r.Reason = operation.StateFinished, call.OutcomeSuccess, call.EffectAnswered, call.ReasonSuccess
	r.Told = call.Told{Outcome: call.OutcomeSuccess, Reason: call.ReasonSuccess}
	r.Status, r.FirstSend, r.UpdateTime, r.BodyUntil, r.Until = 201, at(n), at(n), at(n+10), at(n+1440)
	r.Details, r.Body, r.BodyBytes = []byte("details"), fmt.Appendf(nil, "body of %s", r.ID), 999
	return &r
}

// freed is a record that gives its id back, at minute n.
func freed(r operation.Record, n int) *operation.Record {
	r = *answered(r, n)
	r.Fingerprint, r.Told, r.Outcome, r.Effect = operation.Fingerprint{}, call.Told{}, call.OutcomeRetriesExhausted, call.EffectUnknown
	return &r
}

// kept is r as a ledger gives it back.
func kept(r operation.Record) operation.Record {
	for _, t := range []*time.Time{&r.FirstSend, &r.CreateTime, &r.UpdateTime, &r.BodyUntil, &r.Until} {
		*t = t.Round(0).UTC()
	}
	for _, b := range []*[]byte{&r.Request, &r.Details, &r.Body} {
		if *b = bytes.Clone(*b); len(*b) == 0 {
			*b = nil
		}
	}
	return r
}

// begun must lead.
func begun(t testing.TB, l Ledger, start *operation.Record) operation.Record {
	t.Helper()
	r, led, err := l.Begin(t.Context(), start)
	if err != nil || !led {
		t.Fatalf("Begin %s: led %v, %v", start.ID, led, err)
	}
	return r
}

// wrote must succeed.
func wrote(t testing.TB, l Ledger, r *operation.Record) operation.Record {
	t.Helper()
	if err := l.Write(t.Context(), r); err != nil {
		t.Fatalf("Write %s: %v", r.ID, err)
	}
	return kept(*r)
}

// stands wants exactly that record.
func stands(t testing.TB, l Ledger, want operation.Record) {
	t.Helper()
	got, err := l.Operation(t.Context(), want.Key)
	if err != nil {
		t.Errorf("%s: %v", want.ID, err)
		return
	}
	equal(t, want.ID, kept(got), kept(want))
}

// gone wants no record.
func gone(t testing.TB, l Ledger, k operation.Key) {
	t.Helper()
	if r, err := l.Operation(t.Context(), k); !errors.Is(err, operation.ErrNotFound) {
		t.Errorf("%s: %+v, %v; want ErrNotFound", k.ID, r, err)
	}
}

// ReadLedger reads all records of these callers: an error, or all of them.
func ReadLedger(ctx context.Context, l operation.Reader, callers ...string) ([]operation.Record, error) {
	var every []operation.Record
	for _, c := range callers {
		records, err := l.Operations(ctx, c, 0, operation.Cursor{}, all)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			every = append(every, kept(r))
		}
	}
	return every, nil
}

func readLedger(t testing.TB, l Ledger, callers ...string) []operation.Record {
	t.Helper()
	records, err := ReadLedger(t.Context(), l, append(callers, caller)...)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func newIDs(t *testing.T, l Ledger) {
	gone(t, l, key("a"))
	start := started(key("a"), 1)
	start.Outcome, start.Status, start.Details = call.OutcomeSuccess, 200, []byte("given too")
	want := kept(*start)
	want.Epoch, want.UpdateTime = 1, want.CreateTime
	equal(t, "what stands", begun(t, l, start), want)
	stands(t, l, want)
}

func idsThatStand(t *testing.T, l Ledger) {
	running := begun(t, l, started(key("running"), 1))
	zero := started(key("running, without a fingerprint"), 1)
	zero.Fingerprint = operation.Fingerprint{}
	late := begun(t, l, started(key("told"), 1))
	late.Outcome, late.Effect, late.Reason = call.OutcomeUnknown, call.EffectUnknown, call.ReasonDeadline
	unknown := begun(t, l, started(key("unknown"), 1))
	unknown.State, unknown.Body, unknown.Details = operation.StateUnknown, []byte("half"), []byte("details")
	finished := begun(t, l, started(key("finished"), 1))
	for _, want := range []operation.Record{
		running, begun(t, l, zero), wrote(t, l, &late), wrote(t, l, &unknown), wrote(t, l, answered(finished, 2)),
	} {
		again := started(want.Key, 7)
		again.Owner = "broker 2"
		got, led, err := l.Begin(t.Context(), again)
		if err != nil || led {
			t.Errorf("%s: led %v, %v", want.ID, led, err)
		}
		equal(t, want.ID, kept(got), want)
		stands(t, l, want)
	}
}

func freeIDs(t *testing.T, l Ledger) {
	first := begun(t, l, started(key("a"), 1))
	for epoch := uint64(1); epoch < 4; epoch++ {
		n := 10 * int(epoch)
		free := freed(first, 2)
		free.Epoch = epoch
		was := wrote(t, l, free)
		again := started(key("a"), n)
		again.Owner, again.MustNotRepeat = fmt.Sprint("broker ", n), epoch%2 == 0
		want := kept(*again)
		want.Epoch, want.UpdateTime = epoch+1, want.CreateTime
		want.CreateTime, want.FirstSend, want.Effect = was.CreateTime, was.FirstSend, was.Effect
		equal(t, "what stands", begun(t, l, again), want)
		stands(t, l, want)
	}
}

func writesReplace(t *testing.T, l Ledger) {
	lead := begun(t, l, started(key("a"), 1))
	other := begun(t, l, started(key("b"), 1))
	next := answered(lead, 2)
	next.CreateTime, next.Owner, next.MustNotRepeat = at(99), "broker 9", false
	want := kept(*next)
	want.CreateTime = lead.CreateTime
	wrote(t, l, next)
	stands(t, l, want)
	// A late answer comes after the caller's, and what has gone is gone.
	want.Body, want.Details, want.Request, want.FirstSend, want.State = nil, nil, nil, time.Time{}, operation.StateUnknown
	wrote(t, l, &want)
	stands(t, l, want)
	stands(t, l, other)
}

func supersededWrites(t *testing.T, l Ledger) {
	first := begun(t, l, started(key("a"), 1))
	wrote(t, l, freed(first, 2))
	second := begun(t, l, started(key("a"), 3))
	for _, epoch := range []uint64{0, 1, 3, 1 << 63, 1<<64 - 1} {
		r := answered(second, 4)
		r.Epoch = epoch
		if err := l.Write(t.Context(), r); !errors.Is(err, operation.ErrSuperseded) {
			t.Errorf("at epoch %d of 2: %v", epoch, err)
		}
	}
	for _, epoch := range []uint64{0, 1} {
		nobody := answered(*started(key("never begun"), 1), 2)
		nobody.Epoch = epoch
		if err := l.Write(t.Context(), nobody); !errors.Is(err, operation.ErrSuperseded) {
			t.Errorf("an id that nobody leads: %v", err)
		}
	}
	gone(t, l, key("never begun"))
	stands(t, l, second)
}

func callersApart(t *testing.T, l Ledger) {
	keys := []operation.Key{{Caller: "ab", ID: "c"}, {Caller: "a", ID: "bc"}, {Caller: "", ID: "abc"}, {Caller: "A", ID: "bc"}, {Caller: "a", ID: "bC"}}
	var want []operation.Record
	for i, k := range keys {
		gone(t, l, k)
		want = append(want, begun(t, l, started(k, i)))
	}
	wrote(t, l, answered(want[0], 9))
	for _, r := range want[1:] {
		stands(t, l, r)
	}
	list, err := l.Operations(t.Context(), "a", 0, operation.Cursor{}, all)
	if err != nil || len(list) != 2 || list[0].ID != "bC" || list[1].ID != "bc" {
		t.Errorf("of caller a: %+v, %v", list, err)
	}
}

func ledgerTimes(t *testing.T, l Ledger) {
	times := []time.Time{{}, time.Unix(0, 1), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Now(), at(1)}
	for i, one := range times {
		r := begun(t, l, started(key(fmt.Sprint(i)), 1))
		r.FirstSend, r.UpdateTime, r.BodyUntil, r.Until = one, one.Add(-1), one, one
		if i == 0 {
			r.UpdateTime = one
		}
		stands(t, l, wrote(t, l, &r))
	}
	before := readLedger(t, l)
	for _, wrong := range []time.Time{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)} {
		for what, set := range map[string]func(*operation.Record){
			"FirstSend": func(r *operation.Record) { r.FirstSend = wrong }, "CreateTime": func(r *operation.Record) { r.CreateTime = wrong },
			"UpdateTime": func(r *operation.Record) { r.UpdateTime = wrong }, "BodyUntil": func(r *operation.Record) { r.BodyUntil = wrong },
			"Until": func(r *operation.Record) { r.Until = wrong },
		} {
			start := started(key("wrong"), 1)
			set(start)
			if what != "UpdateTime" { // which is the time of creation then, whatever is given
				_, led, err := l.Begin(t.Context(), start)
				failed(t, what+" of Begin", err)
				if led {
					t.Errorf("%s: led", what)
				}
			}
			r := before[0]
			set(&r)
			failed(t, what+" of Write", l.Write(t.Context(), &r))
		}
		_, err := l.Settle(t.Context(), "nobody", wrong)
		failed(t, "Settle", err)
		_, err = l.Prune(t.Context(), wrong, 0)
		failed(t, "Prune", err)
		_, err = l.Operations(t.Context(), caller, 0, operation.Cursor{CreateTime: wrong}, 1)
		failed(t, "Operations", err)
	}
	equal(t, "the ledger", readLedger(t, l), before)
}

// failed wants an error that is none of the two that are answers.
func failed(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, operation.ErrNotFound) || errors.Is(err, operation.ErrSuperseded) {
		t.Errorf("%s: got %v, want an error that is neither ErrNotFound nor ErrSuperseded", what, err)
	}
}

func nothingOfLedgerShared(t *testing.T, l Ledger) {
	spoil := func(r *operation.Record) {
		for _, b := range [][]byte{r.Request, r.Details, r.Body} {
			clear(b)
		}
		*r = operation.Record{}
	}
	start := started(key("a"), 1)
	lead := begun(t, l, start)
	want := kept(lead)
	spoil(start)
	spoil(&lead)
	stands(t, l, want)
	next := answered(want, 2)
	next.Request = bytes.Clone(want.Request)
	want = wrote(t, l, next)
	spoil(next)
	for range 2 {
		stood, _, err := l.Begin(t.Context(), started(key("a"), 3))
		if err != nil {
			t.Fatal(err)
		}
		one, err := l.Operation(t.Context(), want.Key)
		if err != nil {
			t.Fatal(err)
		}
		list, err := l.Operations(t.Context(), caller, 0, operation.Cursor{}, 1)
		if err != nil || len(list) != 1 {
			t.Fatal(len(list), err)
		}
		for _, r := range []*operation.Record{&stood, &one, &list[0]} {
			equal(t, "the record", kept(*r), want)
			spoil(r)
		}
	}
}

func extremes(t *testing.T, l Ledger) {
	k := operation.Key{Caller: "a caller, 'quoted' é😀\n", ID: string(bytes.Repeat([]byte("~"), 255))}
	r := begun(t, l, started(k, 1))
	r.Owner, r.State, r.Outcome, r.Effect, r.Reason = "", 1<<31-1, 1<<31-1, 1<<31-1, 1<<31-1
	r.Told, r.Status, r.BodyBytes = call.Told{Outcome: 1<<31 - 1, Reason: 1<<31 - 1}, 999, 1<<63-1
	for i := range r.Fingerprint {
		r.Fingerprint[i] = 0xff
	}
	r.Request, r.Details, r.Body = make([]byte, 1<<16), bytes.Repeat([]byte{0xff}, 70_000), bytes.Repeat([]byte("12345678"), 1<<17)
	stands(t, l, wrote(t, l, &r))
}
