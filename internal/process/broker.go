package process

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is the top of the tree, for tests of a package two below it.
const root = "../.."

// Build builds the broker into that file, as `make build` does and from the same cache.
func Build(ctx context.Context, program string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, "./cmd/sallyport") //nolint:gosec // where a test wants it
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Serve runs a built broker under these policies, as an operator runs it, and gives the address of its gRPC listener.
func Serve(t *testing.T, environment []string, program, policies string, args ...string) (broker *Process, address string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "policies.yaml")
	if err := os.WriteFile(file, []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}
	broker = Start(t, environment, program, append([]string{
		"serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", filepath.Join(dir, "data"), "--policies", file,
	}, args...)...)
	return broker, broker.Await(t, `msg=serving grpc=(\S+)`)[1]
}

// Environment is that of the test, without what a developer has set for other brokers.
func Environment() []string {
	var kept []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SALLYPORT_") && !strings.HasPrefix(e, "OTEL_") {
			kept = append(kept, e)
		}
	}
	return kept
}

// DependOnSources looks at every source: the go command, which cannot know what another process builds and reads, then drops a
// cached result of this test when one of them changes.
func DependOnSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "bin" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
