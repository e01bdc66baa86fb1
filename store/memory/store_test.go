package memory_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(testing.TB) admin.Store { return memory.New() })
}

func TestLedger(t *testing.T) {
	storetest.RunLedger(t, func(testing.TB) storetest.Ledger { return memory.NewLedger(time.Unix(1, 2)) })
}
