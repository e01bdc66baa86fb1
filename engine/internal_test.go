package engine

import (
	"testing"

	"github.com/sallyport/sallyport/policy"
)

func policyOf(t *testing.T) *policy.Effective {
	t.Helper()
	return &policy.Effective{}
}
