package jaeger

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

const (
	// root is the top of the tree.
	root = "../.."
	// server is Jaeger, as scripts/tools.sh installs it.
	server = root + "/bin/tools/all-in-one"
)

// program is the built broker; "" where there is no Jaeger to look at it with.
var program string

// TestMain builds the broker once, as `make build` does and from the same cache.
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
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/sallyport")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		_ = os.RemoveAll(dir)
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
