package memory_test

import (
	"testing"

	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/store/storetest"
)

func TestDeferred(t *testing.T) {
	storetest.RunDeferred(t, func(testing.TB) storetest.Calls {
		return storetest.Calls{Deferred: memory.NewDeferred(nil)}
	})
}
