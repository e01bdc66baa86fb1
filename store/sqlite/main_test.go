package sqlite_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/store/sqlite"
	"github.com/sallyport/sallyport/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at opens the store at path and closes it with the test.
func at(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fresh opens a new store.
func fresh(t testing.TB) *sqlite.Store {
	t.Helper()
	return at(t, filepath.Join(t.TempDir(), "sallyport.db"))
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) admin.Store { return fresh(t) })
}

func TestSameAsInMemory(t *testing.T) {
	storetest.RunAgainst(t,
		func(t testing.TB) admin.Store { return fresh(t) },
		func(testing.TB) admin.Store { return memory.New() },
		nil)
}
