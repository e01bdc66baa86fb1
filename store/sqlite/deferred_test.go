package sqlite_test

import (
	"testing"

	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/store/sqlite"
	"github.com/sallyport/sallyport/store/storetest"
)

// callsAt opens the deferred calls of the ledger at path.
func callsAt(t testing.TB, path string) storetest.Calls {
	t.Helper()
	l := ledgerAt(t, path)
	return storetest.Calls{Deferred: l.Deferred(), Ledger: l}
}

func TestDeferred(t *testing.T) {
	storetest.RunDeferred(t, func(t testing.TB) storetest.Calls {
		t.Helper()
		return callsAt(t, newPath(t))
	})
}

func TestDeferredLanesTakeTurnsFromOneUseToTheNext(t *testing.T) {
	storetest.NoLaneStarves(t, callsAt(t, newPath(t)))
}

func TestDeferredSameAsInMemory(t *testing.T) {
	ledgers := map[storetest.Deferred]*sqlite.Ledger{}
	paths := map[storetest.Deferred]string{}
	openAt := func(t testing.TB, path string) storetest.Deferred {
		t.Helper()
		l := ledgerAt(t, path)
		if err := l.NoWaitForDisk(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := l.Deferred()
		ledgers[d], paths[d] = l, path
		return d
	}
	storetest.RunDeferredAgainst(t,
		func(t testing.TB) storetest.Deferred {
			t.Helper()
			return openAt(t, newPath(t))
		},
		func(testing.TB) storetest.Deferred { return memory.NewDeferred(nil) },
		func(t testing.TB, d storetest.Deferred) storetest.Deferred {
			t.Helper()
			closedLedger(t, ledgers[d])
			return openAt(t, paths[d])
		})
}
