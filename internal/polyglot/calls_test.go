package polyglot

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

const (
	// installTime is for a cold cache and a slow network.
	installTime = 5 * time.Minute
	// runTime is for all calls of a program; the longest waits a second.
	runTime = time.Minute
)

// want is what every program must report, whatever its language.
const want = `{
	"success": {"outcome": "OUTCOME_SUCCESS", "effect": "EFFECT_ANSWERED", "next": "NEXT_STEP_DONE",
		"sends": 1, "status": 200, "body": "hello", "attempts": 1},
	"unknown": {"outcome": "OUTCOME_UNKNOWN", "effect": "EFFECT_UNKNOWN", "next": "NEXT_STEP_RECONCILE", "sends": 1, "status": 0},
	"deadline": {"outcome": "OUTCOME_DEADLINE_EXCEEDED", "effect": "EFFECT_UNKNOWN", "next": "NEXT_STEP_RETRY",
		"sends": 1, "status": 0, "in_time": true},
	"refused": {"code": "INVALID_ARGUMENT", "domain": "sallyport", "reason": "INVALID_REQUEST", "sent": "false",
		"fields": ["request.url"]},
	"raw_value": {"outcome": "OUTCOME_SUCCESS", "effect": "EFFECT_ANSWERED", "next": "NEXT_STEP_DONE",
		"sends": 1, "status": 200, "values": [["", "636166e9"]]}
}`

func TestCallsThroughGeneratedStubs(t *testing.T) {
	broker := startBroker(t)
	t.Run("Python", func(t *testing.T) { check(t, broker, python(t)) })
	t.Run("Node", func(t *testing.T) { check(t, broker, node(t)) })
}

// program gives the command that makes the calls.
type program func(broker, upstream string) *exec.Cmd

func python(t *testing.T) program {
	t.Helper()
	tools := tool(t, "python3", "--version")
	if out, err := command(t, runTime, "python3", "-c", "import venv, ensurepip").CombinedOutput(); err != nil {
		lackingf(t, "python3 has no venv: %v\n%s", err, out)
	}
	requirements := filepath.Join(root, "clients", "python", "requirements.txt")
	dir := installed(t, "python", tools, []string{"requirements.txt"}, func(dir string) ([]byte, error) {
		if out, err := command(t, installTime, "python3", "-m", "venv", dir).CombinedOutput(); err != nil {
			return out, err
		}
		// Wheels only: building gRPC from source takes a quarter of an hour.
		return command(t, installTime, filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--retries", "1",
			"--only-binary", ":all:", "--no-deps", "-r", requirements).CombinedOutput()
	})
	interpreter, stubs, proto := filepath.Join(dir, "bin", "python"), t.TempDir(), filepath.Join(root, "proto")
	out, err := command(t, runTime, interpreter, "-m", "grpc_tools.protoc", "-I", proto, "--python_out", stubs, "--grpc_python_out", stubs,
		filepath.Join(proto, "sallyport", "v1", "call.proto"), filepath.Join(proto, "sallyport", "v1", "call_service.proto")).CombinedOutput()
	if err != nil {
		t.Fatalf("generating stubs: %v\n%s", err, out)
	}
	return func(broker, upstream string) *exec.Cmd {
		c := command(t, runTime, interpreter, filepath.Join(root, "clients", "python", "calls.py"), broker, upstream)
		c.Env = append(os.Environ(), "PYTHONPATH="+stubs, "PYTHONDONTWRITEBYTECODE=1")
		return c
	}
}

func node(t *testing.T) program {
	t.Helper()
	tools := tool(t, "node", "--version") + tool(t, "npm", "--version")
	pins := []string{"package.json", "package-lock.json", ".npmrc"}
	dir := installed(t, "node", tools, pins, func(dir string) ([]byte, error) {
		for _, pin := range pins {
			if err := copyFile(filepath.Join(root, "clients", "node", pin), filepath.Join(dir, pin)); err != nil {
				return nil, err
			}
		}
		c := command(t, installTime, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries", "1")
		c.Dir = dir
		return c.CombinedOutput()
	})
	// A module is looked for beside the program that imports it.
	beside := t.TempDir()
	if err := copyFile(filepath.Join(root, "clients", "node", "calls.mjs"), filepath.Join(beside, "calls.mjs")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(beside, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return func(broker, upstream string) *exec.Cmd {
		return command(t, runTime, "node", filepath.Join(beside, "calls.mjs"), filepath.Join(root, "proto"), broker, upstream)
	}
}

// check runs a program with an upstream of its own, and judges its report and what the upstream saw.
func check(t *testing.T, broker string, run program) {
	t.Helper()
	up := startUpstream(t)
	c := run(broker, up.server.URL)
	var errors bytes.Buffer
	c.Stderr = &errors
	report, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errors.String())
	}
	var got, expected map[string]map[string]any
	if err := json.Unmarshal(report, &got); err != nil {
		t.Fatalf("%v in the report\n%s", err, report)
	}
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	for name := range expected {
		if !reflect.DeepEqual(got[name], expected[name]) {
			t.Errorf("%s: got %v\nwant %v", name, got[name], expected[name])
		}
	}
	if len(got) != len(expected) {
		t.Errorf("%d calls are reported, want %d", len(got), len(expected))
	}
	for request, want := range map[string]int{"GET /ok": 1, "POST /lost": 1, "GET /slow": 1, "GET /echo": 1} {
		if n := up.saw(request); n != want {
			t.Errorf("%s: the upstream saw %d requests, want %d", request, n, want)
		}
	}
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
