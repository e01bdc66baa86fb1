package polyglot

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// root is the top of the tree.
const root = "../.."

// policies open this machine to the calls of the test, as an operator would.
const policies = `
policies:
  - name: policies/beside
    match: { hosts: ["127.0.0.1"] }
    egress: { allow_cidrs: [127.0.0.0/8], any_port: true }
`

// startBroker builds the program, runs it as a process of its own, and gives the address of its gRPC listener. A broker that does not
// end cleanly fails the test.
func startBroker(t *testing.T) string {
	t.Helper()
	process.DependOnSources(t)
	program := filepath.Join(t.TempDir(), "sallyport")
	if err := process.Build(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	broker, address := process.Serve(t, process.Environment(), program, policies)
	t.Cleanup(func() { broker.Terminate(t) })
	return address
}
