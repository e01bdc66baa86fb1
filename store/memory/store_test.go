package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(testing.TB) admin.Store { return memory.New() })
}
