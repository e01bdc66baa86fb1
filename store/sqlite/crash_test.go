package sqlite_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/store/sqlite"
	"github.com/sallyport/sallyport/store/storetest"
)

func TestKilledBetweenWriteAndRead(t *testing.T) {
	path := newPath(t)
	var acknowledged uint64
	for round := range 4 {
		p := start(t, "write", path, nil)
		for range 10 * (round + 1) {
			if !p.lines.Scan() {
				t.Fatal("it ended by itself")
			}
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		// What it said until it was killed counts too.
		for last := p.lines.Text(); ; last = p.lines.Text() {
			r, err := strconv.ParseUint(last, 10, 64)
			if err != nil {
				t.Fatalf("it said %q", last)
			}
			acknowledged = r
			if !p.lines.Scan() {
				break
			}
		}
		_ = p.cmd.Wait()
		if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 {
			t.Errorf("it left no log behind: %v", err)
		}
		s := at(t, path)
		c := read(t, s)
		// One more may have been written and not acknowledged yet.
		got := uint64(len(c.Revisions["policies/a"]))
		if got != acknowledged && got != acknowledged+1 || uint64(len(c.Records)) != got || c.Policies[0].Revision != got {
			t.Errorf("%d acknowledged, at revision %d of %d, %d records", acknowledged, c.Policies[0].Revision, got, len(c.Records))
		}
		if broken, err := s.Verify(t.Context()); broken != 0 || err != nil {
			t.Errorf("record %d is broken (%v)", broken, err)
		}
		closed(t, s)
	}
}

// history is a store that was copied while it was open, after each of its writes, with the log beside it.
func history(t *testing.T) (file, wal []byte, states []storetest.Contents) {
	t.Helper()
	path := newPath(t)
	s := at(t, path)
	states = append(states, read(t, s))
	for r := range uint64(12) {
		if err := put(t.Context(), s, "policies/a", r+1, 2000); err != nil {
			t.Fatal(err)
		}
		states = append(states, read(t, s))
	}
	var err error
	if file, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if wal, err = os.ReadFile(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	return file, wal, states
}

// SQLite takes a log up to the first frame whose sum is wrong, so damage there gives an earlier state and never a mixture.
func TestDamagedLogGivesAnEarlierState(t *testing.T) {
	file, wal, states := history(t)
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[int]bool{}
	for i := range 80 {
		damaged := bytes.Clone(wal)
		what := "whole"
		switch {
		case i == 0:
		case i%2 == 0:
			n := random.IntN(len(wal))
			damaged, what = damaged[:n], fmt.Sprintf("cut at %d", n)
		default:
			n := random.IntN(len(wal))
			damaged[n] ^= byte(1 + random.IntN(255))
			what = fmt.Sprintf("changed at %d", n)
		}
		path := filepath.Join(dir, fmt.Sprint(i))
		place(t, path, file)
		place(t, path+"-wal", damaged)
		s, err := sqlite.Open(t.Context(), path)
		if err != nil {
			continue
		}
		c, err := storetest.Read(t.Context(), s)
		if err == nil {
			n := len(c.Records)
			if n >= len(states) || !reflect.DeepEqual(c, states[n]) {
				t.Errorf("%s: not a state that there was", what)
			}
			seen[n] = true
			if i == 0 && n != len(states)-1 {
				t.Errorf("the whole log gives %d of %d writes", n, len(states)-1)
			}
		}
		closed(t, s)
	}
	if len(seen) < len(states)/2 {
		t.Errorf("only the states %v were seen: does the damage meet the log?", seen)
	}
}

func place(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A byte that changed is found, or changes nothing that is read.
func TestDamagedFileIsNeverWrong(t *testing.T) {
	_, s := filled(t)
	want, content := read(t, s), template.content
	closed(t, s)
	const step = 997
	random := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	refused, unreadable, harmless := 0, 0, 0
	for n := 0; n < len(content); {
		damaged := bytes.Clone(content)
		damaged[n] ^= byte(1 + random.IntN(255))
		switch outcome := openDamaged(t, filepath.Join(dir, "d"), damaged, want); outcome {
		case "refused":
			refused++
		case "unreadable":
			unreadable++
		case "harmless":
			harmless++
		default:
			t.Errorf("changed at %d (page %d, byte %d): %s", n, n/4096+1, n%4096, outcome)
		}
		if n < 100 {
			n += 3 // the header
		} else {
			n += step
		}
	}
	t.Logf("%d bytes, %d refused at start, %d when read, %d harmless", len(content), refused, unreadable, harmless)
	if refused == 0 || unreadable == 0 {
		t.Error("does the damage meet anything?")
	}
}

func openDamaged(t *testing.T, path string, content []byte, want storetest.Contents) string {
	t.Helper()
	place(t, path, content)
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(path + suffix)
		}
	}()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		if strings.Contains(err.Error(), "\n") {
			return fmt.Sprintf("more than a line: %q", err)
		}
		return "refused"
	}
	defer closed(t, s)
	broken, _ := s.Verify(t.Context()) // 0 with an error too: nobody is told that all is well
	got, err := storetest.Read(t.Context(), s)
	if err != nil {
		return "unreadable"
	}
	if !reflect.DeepEqual(got, want) {
		return "wrong data"
	}
	if broken != 0 && broken != int64(len(want.Records))+1 { // the greatest ID there was may be what was damaged
		return fmt.Sprintf("record %d is said to be broken, and all is right", broken)
	}
	// What reads by index, too.
	for name, revisions := range want.Revisions {
		for _, r := range revisions {
			if one, err := s.Revision(t.Context(), name, r.Revision); err != nil || one.UpdateTime != r.UpdateTime {
				return fmt.Sprintf("revision %d of %s: %v", r.Revision, name, err)
			}
		}
		records, err := s.Records(t.Context(), name, "operator", 0, 100)
		if err == nil && len(records) != len(revisions) {
			return fmt.Sprintf("%d records of %s, want %d", len(records), name, len(revisions))
		}
	}
	return "harmless"
}
