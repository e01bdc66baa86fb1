package sqlite_test

import (
	"testing"

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
