package sqlite_test

import (
	"testing"
	"time"

	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/store/seal"
	"github.com/sallyport/sallyport/store/sqlite"
	"github.com/sallyport/sallyport/store/storetest"
)

// The keys of all ledgers here, of two bytes each.
const (
	keyA = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\n"
	keyB = "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI=\n"
)

func keysOf(t testing.TB, content string) *seal.Keys {
	t.Helper()
	k, err := seal.Parse(content)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// ledgerAt opens the ledger at path and closes it with the test.
func ledgerAt(t testing.TB, path string) *sqlite.Ledger {
	t.Helper()
	l, err := sqlite.OpenLedger(t.Context(), path, keysOf(t, keyA))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := l.Busy(); n != 0 {
			t.Errorf("%d connections are still taken", n)
		}
		closedLedger(t, l)
	})
	return l
}

// closedLedger closes l; a second time does nothing.
func closedLedger(t testing.TB, l *sqlite.Ledger) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestLedger(t *testing.T) {
	storetest.RunLedger(t, func(t testing.TB) storetest.Ledger {
		t.Helper()
		return ledgerAt(t, newPath(t))
	})
}

func TestLedgerSameAsInMemory(t *testing.T) {
	paths := map[storetest.Ledger]string{}
	openAt := func(t testing.TB, path string) storetest.Ledger {
		t.Helper()
		l := ledgerAt(t, path)
		paths[l] = path
		return l
	}
	storetest.RunLedgerAgainst(t,
		func(t testing.TB) storetest.Ledger {
			t.Helper()
			return openAt(t, newPath(t))
		},
		func(testing.TB) storetest.Ledger { return memory.NewLedger(time.Unix(1, 2)) },
		func(t testing.TB, l storetest.Ledger) storetest.Ledger {
			t.Helper()
			closedLedger(t, l.(*sqlite.Ledger))
			return openAt(t, paths[l])
		})
}
