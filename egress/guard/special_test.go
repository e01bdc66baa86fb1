package guard_test

import (
	"testing"

	"github.com/sallyport/sallyport/egress/guard"
)

func TestSpecialRangeMustHoldAHardAddress(t *testing.T) {
	for text, ok := range map[string]bool{
		"169.254.0.0/16": true, "169.254.169.254/32": true, "0.0.0.0/0": true, "2001:db8::/32": true, "100.64.0.0/10": true,
		"10.0.0.0/8": false, "127.0.0.0/8": false, "8.8.8.0/24": false, "169.254.0.0": false, "": false,
	} {
		if _, err := guard.ParseSpecial(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
