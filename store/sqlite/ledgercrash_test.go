package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/seal"
	"github.com/sallyport/sallyport/store/sqlite"
	"github.com/sallyport/sallyport/store/storetest"
)

// ledgerForEver begins operations and writes their ends, eight at a time, and says each when it was acknowledged.
func ledgerForEver(ctx context.Context, path string) error {
	keys, err := seal.Parse(keyA)
	if err != nil {
		return err
	}
	l, err := sqlite.OpenLedger(ctx, path, keys)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for range 8 {
		go func() {
			for {
				id := fmt.Sprintf("%016x", rand.Uint64())
				r, _, err := l.Begin(ctx, aCall(id))
				if err != nil {
					failed <- err
					return
				}
				say("begun " + id)
				if err := l.Write(ctx, over(r, 3000)); err != nil {
					failed <- err
					return
				}
				say("over " + id)
			}
		}()
	}
	return <-failed
}

func TestLedgerKilledBetweenAcknowledgements(t *testing.T) {
	path := newPath(t)
	acknowledged := map[string]operation.State{}
	for round := range 4 {
		p := start(t, "ledger", path, nil)
		said := []string{}
		for range 60 * (round + 1) {
			if !p.lines.Scan() {
				t.Fatal("it ended by itself")
			}
			said = append(said, p.lines.Text())
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for p.lines.Scan() { // what it said until it was killed counts too
			said = append(said, p.lines.Text())
		}
		_ = p.cmd.Wait()
		for _, line := range said {
			switch word, id, _ := strings.Cut(line, " "); word {
			case "begun":
				acknowledged[id] = operation.StateRunning
			case "over":
				acknowledged[id] = operation.StateFinished
			default:
				t.Fatalf("it said %q", line)
			}
		}
		l := ledgerAt(t, path)
		running := 0
		for id, state := range acknowledged {
			r, err := l.Operation(t.Context(), aCall(id).Key)
			// One more write of each of the eight may have been done and not acknowledged.
			if err != nil || r.Epoch != 1 || r.State != state && r.State != operation.StateFinished && r.State != operation.StateUnknown {
				t.Errorf("%s was acknowledged as %v: %+v, %v", id, state, r, err)
			}
			if r.State == operation.StateFinished && len(r.Body) != 3000 || state == operation.StateFinished && r.State != state {
				t.Errorf("%s has a body of %d bytes, and was acknowledged", id, len(r.Body))
			}
		}
		all, err := storetest.ReadLedger(t.Context(), l, aCall("").Caller)
		for _, r := range all {
			if r.State == operation.StateRunning {
				running++
			}
		}
		// Eight may have been begun that nobody told of.
		if extra := len(all) - len(acknowledged); err != nil || extra < 0 || extra > 8*(round+1) {
			t.Errorf("%d operations, %d acknowledged: %v", len(all), len(acknowledged), err)
		}
		if n, err := l.Settle(t.Context(), "another", all[0].CreateTime); err != nil || n != running {
			t.Errorf("settled %d of %d: %v", n, running, err)
		}
		closedLedger(t, l)
	}
	if len(acknowledged) < 100 {
		t.Errorf("only %d operations: does it do anything?", len(acknowledged))
	}
}

// readAll is all of the ledger.
func readAll(t *testing.T, l *sqlite.Ledger) []operation.Record {
	t.Helper()
	all, err := storetest.ReadLedger(t.Context(), l, aCall("").Caller)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLedgerDamagedLogGivesAnEarlierState(t *testing.T) {
	path := newPath(t)
	l := ledgerAt(t, path)
	states := [][]operation.Record{readAll(t, l)}
	for i := range 8 {
		r, _, err := l.Begin(t.Context(), aCall(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, readAll(t, l))
		if err := l.Write(t.Context(), over(r, 1000*i)); err != nil {
			t.Fatal(err)
		}
		states = append(states, readAll(t, l))
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wal, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[int]bool{}
	for i := range 60 {
		damaged := bytes.Clone(wal)
		what := "whole"
		switch n := random.IntN(len(wal)); {
		case i == 0:
		case i%2 == 0:
			damaged, what = damaged[:n], fmt.Sprintf("cut at %d", n)
		default:
			damaged[n] ^= byte(1 + random.IntN(255))
			what = fmt.Sprintf("changed at %d", n)
		}
		path := filepath.Join(dir, fmt.Sprint(i))
		place(t, path, file)
		place(t, path+"-wal", damaged)
		l, err := sqlite.OpenLedger(t.Context(), path, keysOf(t, keyA))
		if err != nil {
			continue
		}
		if got, err := storetest.ReadLedger(t.Context(), l, aCall("").Caller); err == nil {
			state := -1
			for n, s := range states {
				if len(s) == len(got) && (len(got) == 0 || reflect.DeepEqual(s, got)) {
					state = n
				}
			}
			seen[state] = true
			if state < 0 || i == 0 && state != len(states)-1 {
				t.Errorf("%s: state %d of %d", what, state, len(states)-1)
			}
		}
		closedLedger(t, l)
	}
	if len(seen) < len(states)/2 {
		t.Errorf("only the states %v were seen: does the damage meet the log?", seen)
	}
}

// A byte that changed is found, or changes nothing that is read; above all, no operation is taken for one that was never begun. So it is
// also where the file was not checked when it was opened.
func TestLedgerDamagedFileIsNeverWrong(t *testing.T) {
	path := newPath(t)
	l := ledgerAt(t, path)
	for i := range 24 {
		r, _, err := l.Begin(t.Context(), aCall(fmt.Sprintf("operation-%02d", i*7%24)))
		if err == nil && i%4 > 0 {
			next := over(r, 100*i)
			if i%4 == 1 {
				next.State = operation.StateUnknown
			}
			err = l.Write(t.Context(), next)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := readAll(t, l)
	closedLedger(t, l)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	opens := map[string]func(ctx context.Context, path string, keys *seal.Keys) (*sqlite.Ledger, error){
		"checked": sqlite.OpenLedger, "unchecked": sqlite.OpenLedgerUnchecked,
	}
	for how, open := range opens {
		random := rand.New(rand.NewPCG(5, 6))
		dir := t.TempDir()
		count := map[string]int{}
		for _, n := range places(content, random) {
			damaged := bytes.Clone(content)
			damaged[n] ^= byte(1 + random.IntN(255))
			outcome := openDamagedLedger(t, filepath.Join(dir, "d"), damaged, want, open, how == "checked")
			if count[outcome]++; outcome != "refused" && outcome != "unreadable" && outcome != "harmless" {
				t.Errorf("%s: changed at %d (page %d, byte %d): %s", how, n, n/4096+1, n%4096, outcome)
			}
		}
		t.Logf("%s: %d bytes, %v", how, len(content), count)
		if count["refused"] == 0 || count["unreadable"] == 0 || count["harmless"] == 0 {
			t.Error("does the damage meet anything?")
		}
	}
}

// places are where to change a byte: of the header, all over the file, and in what stands in the clear.
func places(content []byte, random *rand.Rand) []int {
	var all []int
	for n := 0; n < 100; n += 7 {
		all = append(all, n)
	}
	for n := 100; n < len(content); n += 1 + random.IntN(4000) {
		all = append(all, n)
	}
	for _, text := range []string{"operation-", "broker"} {
		for n := 0; ; {
			i := bytes.Index(content[n:], []byte(text))
			if i < 0 {
				break
			}
			n += i + len(text)
			all = append(all, min(n+random.IntN(120)-20, len(content)-1))
		}
	}
	return all
}

func openDamagedLedger(t *testing.T, path string, content []byte, want []operation.Record,
	open func(ctx context.Context, path string, keys *seal.Keys) (*sqlite.Ledger, error), lists bool,
) string {
	t.Helper()
	place(t, path, content)
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(path + suffix)
		}
	}()
	l, err := open(t.Context(), path, keysOf(t, keyA))
	if err != nil {
		if strings.Contains(err.Error(), "\n") {
			return fmt.Sprintf("more than a line: %q", err)
		}
		return "refused"
	}
	defer closedLedger(t, l)
	outcome := "harmless"
	for i, w := range want {
		got, err := l.Operation(t.Context(), w.Key)
		if errors.Is(err, operation.ErrNotFound) {
			return w.ID + " is not known any more"
		}
		if err != nil {
			outcome = "unreadable"
		} else if !reflect.DeepEqual(got, w) {
			return "wrong data"
		}
		if i%3 > 0 { // Begin asks what Operation asks, so it need not be done for all
			continue
		}
		again, led, err := l.Begin(t.Context(), aCall(w.ID))
		if led {
			return w.ID + " is led again"
		}
		if err != nil {
			outcome = "unreadable"
		} else if !reflect.DeepEqual(again, w) {
			return "wrong data to a repeat"
		}
	}
	if !lists {
		return outcome
	}
	for state := range operation.State(4) {
		got, err := l.Operations(t.Context(), aCall("").Caller, state, operation.Cursor{}, 1000)
		if err != nil {
			outcome = "unreadable"
			continue
		}
		i := 0
		for _, w := range want {
			if state != 0 && w.State != state {
				continue
			}
			if i >= len(got) || !reflect.DeepEqual(got[i], w) {
				return fmt.Sprintf("a wrong list of state %d", state)
			}
			i++
		}
		if i != len(got) {
			return fmt.Sprintf("more in the list of state %d", state)
		}
	}
	return outcome
}
