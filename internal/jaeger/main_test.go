package jaeger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/process"
)

// server is Jaeger, as scripts/tools.sh installs it.
const server = "../../bin/tools/all-in-one"

// program is the built broker; "" where there is no Jaeger to look at it with.
var program string

// TestMain builds the broker once.
func TestMain(m *testing.M) {
	if _, err := os.Stat(server); err != nil {
		goleak.VerifyTestMain(m) // and ends the process
	}
	dir, err := os.MkdirTemp("", "sallyport-jaeger-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "sallyport")
	if err := process.Build(context.Background(), program); err != nil {
		_ = os.RemoveAll(dir)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
