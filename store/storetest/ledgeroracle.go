package storetest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

// RunLedgerAgainst does the same at random to two ledgers, each new and empty, and wants the same of both. reopen may close and open
// the first; nil for one that does not outlive it.
func RunLedgerAgainst(t *testing.T, open, oracle func(t testing.TB) Ledger, reopen func(t testing.TB, l Ledger) Ledger) {
	t.Helper()
	rapid.Check(t, func(r *rapid.T) {
		d := &ledgerDrive{t: t, r: r, got: open(t), want: oracle(t)}
		actions := map[string]func(*rapid.T){
			"begin": d.begin, "write": d.write, "begin again": d.begin, "write again": d.write, "list": d.list,
			"settle": d.settle, "prune": d.prune, "": d.same,
		}
		if reopen != nil {
			actions["reopen"] = func(*rapid.T) { d.got = reopen(t, d.got) }
		}
		r.Repeat(actions)
	})
}

type ledgerDrive struct {
	t         *testing.T
	r         *rapid.T
	got, want Ledger
}

var ledgerCallers = []string{"a", "ab", ""}

func aKey(r *rapid.T) operation.Key {
	return operation.Key{
		Caller: rapid.SampledFrom(ledgerCallers).Draw(r, "caller"), ID: rapid.SampledFrom([]string{"c", "bc", "B", "~"}).Draw(r, "id"),
	}
}

// aMinute is one of few, so that they meet.
func aMinute(r *rapid.T) time.Time {
	return at(rapid.IntRange(0, 6).Draw(r, "minute")).Add(time.Duration(rapid.IntRange(-1, 1).Draw(r, "ns")))
}

func anOperation(r *rapid.T) *operation.Record {
	blob := rapid.SliceOfN(rapid.Byte(), 0, 40)
	o := &operation.Record{
		Key: aKey(r), Owner: rapid.SampledFrom([]string{"1", "2", ""}).Draw(r, "owner"), State: operation.State(rapid.IntRange(1, 3).Draw(r, "state")),
		MustNotRepeat: rapid.Bool().Draw(r, "must not repeat"),
		Outcome:       call.Outcome(rapid.IntRange(0, 15).Draw(r, "outcome")), Effect: call.Effect(rapid.IntRange(0, 3).Draw(r, "effect")),
		Reason: call.Reason(rapid.IntRange(0, 24).Draw(r, "reason")), Status: rapid.IntRange(0, 999).Draw(r, "status"),
		Told:      call.Told{Outcome: call.Outcome(rapid.IntRange(0, 15).Draw(r, "told")), Reason: call.Reason(rapid.IntRange(0, 24).Draw(r, "why"))},
		FirstSend: aMinute(r), CreateTime: aMinute(r), UpdateTime: aMinute(r), BodyUntil: aMinute(r), Until: aMinute(r),
		Request: blob.Draw(r, "request"), Details: blob.Draw(r, "details"), Body: blob.Draw(r, "body"), BodyBytes: rapid.Int64().Draw(r, "bytes"),
	}
	if rapid.IntRange(0, 3).Draw(r, "deferred") == 0 {
		o.Deferred = "id"
	}
	if rapid.Bool().Draw(r, "taken") {
		o.Fingerprint[rapid.IntRange(0, 31).Draw(r, "place")] = 7
	}
	return o
}

func (d *ledgerDrive) begin(r *rapid.T) {
	start := anOperation(r)
	got, led, err := d.got.Begin(d.t.Context(), start)
	want, wantLed, wantErr := d.want.Begin(d.t.Context(), start)
	if led != wantLed || ledgerKind(err) != ledgerKind(wantErr) || !reflect.DeepEqual(kept(got), kept(want)) {
		d.r.Fatalf("Begin\n got %v %v %+v\nwant %v %v %+v", led, err, got, wantLed, wantErr, want)
	}
}

func (d *ledgerDrive) write(r *rapid.T) {
	o := anOperation(r)
	o.Epoch = rapid.Uint64Range(0, 4).Draw(r, "epoch")
	// Mostly what stands there, or every write would fail.
	if stands, err := d.want.Operation(d.t.Context(), o.Key); err == nil && rapid.IntRange(0, 3).Draw(r, "right") > 0 {
		o.Epoch = stands.Epoch
	}
	if err, want := d.got.Write(d.t.Context(), o), d.want.Write(d.t.Context(), o); ledgerKind(err) != ledgerKind(want) {
		d.r.Fatalf("Write: got %v, want %v", err, want)
	}
}

func (d *ledgerDrive) list(r *rapid.T) {
	who, state := rapid.SampledFrom(ledgerCallers).Draw(r, "caller"), operation.State(rapid.IntRange(0, 4).Draw(r, "state"))
	after := operation.Cursor{}
	if rapid.Bool().Draw(r, "behind") {
		after = operation.Cursor{CreateTime: aMinute(r), ID: aKey(r).ID}
	}
	n := rapid.IntRange(-1, 5).Draw(r, "n")
	got, err := d.got.Operations(d.t.Context(), who, state, after, n)
	want, wantErr := d.want.Operations(d.t.Context(), who, state, after, n)
	d.records(got, want, err, wantErr)
}

func (d *ledgerDrive) records(got, want []operation.Record, err, wantErr error) {
	for _, l := range [][]operation.Record{got, want} {
		for i := range l {
			l[i] = kept(l[i])
		}
	}
	if ledgerKind(err) != ledgerKind(wantErr) || !reflect.DeepEqual(got, want) && !bothEmpty(got, want) {
		d.r.Fatalf("records\n got %v %s\nwant %v %s", err, short(got), wantErr, short(want))
	}
}

func (d *ledgerDrive) settle(r *rapid.T) {
	owner, now := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(r, "owner"), aMinute(r)
	got, err := d.got.Settle(d.t.Context(), owner, now)
	want, wantErr := d.want.Settle(d.t.Context(), owner, now)
	if got != want || ledgerKind(err) != ledgerKind(wantErr) {
		d.r.Fatalf("Settle: got %d, %v, want %d, %v", got, err, want, wantErr)
	}
}

func (d *ledgerDrive) prune(r *rapid.T) {
	now, most := aMinute(r), rapid.Int64Range(-1, 150).Draw(r, "most")
	for _, l := range []Ledger{d.got, d.want} {
		for more := true; more; {
			var err error
			if more, err = l.Prune(d.t.Context(), now, most); err != nil {
				d.r.Fatal(err)
			}
		}
	}
}

// same compares all that is stored, after every step, by both ways to read it.
func (d *ledgerDrive) same(*rapid.T) {
	got, err := ReadLedger(d.t.Context(), d.got, ledgerCallers...)
	want, wantErr := ReadLedger(d.t.Context(), d.want, ledgerCallers...)
	d.records(got, want, err, wantErr)
	for _, w := range want {
		one, err := d.got.Operation(d.t.Context(), w.Key)
		if err != nil || !reflect.DeepEqual(kept(one), w) {
			d.r.Fatalf("%v\n got %+v (%v)\nwant %+v", w.Key, one, err, w)
		}
	}
}

func ledgerKind(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.Is(err, operation.ErrSuperseded):
		return "superseded"
	case errors.Is(err, operation.ErrNotFound):
		return "not found"
	default:
		return "other"
	}
}
