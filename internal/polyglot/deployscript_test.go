package polyglot

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/internal/document"
	"github.com/sallyport/sallyport/internal/process"
)

// waits are what the policy of examples/deploy-script makes the broker wait after the attempts at each package.
var waits = map[string][]time.Duration{
	"flaky":   {500 * time.Millisecond, time.Second, 2 * time.Second},
	"missing": {},
	"down":    {500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second},
}

// The commands of the README run as they are written there, and what the script prints is the same to the letter. What it says of the
// waits is what the registry saw of them: none was shorter.
func TestDeployScriptRunsAsWritten(t *testing.T) {
	process.DependOnSources(t)
	bin := t.TempDir()
	broker, registry := filepath.Join(bin, "sallyport"), filepath.Join(bin, "registry")
	if err := process.Build(t.Context(), broker); err != nil {
		t.Fatal(err)
	}
	build := command(t, buildTime, "go", "build", "-o", registry, "./examples/deploy-script/registry")
	build.Dir = root
	must(t, build)
	dir := filepath.Dir(filepath.Dir(typescriptPackage(t))) // the top of the copy
	t.Parallel()

	example := filepath.Join(root, "examples", "deploy-script")
	starts := document.Starts(t, filepath.Join(example, "README.md"))
	if len(starts) != 3 {
		t.Fatalf("%d blocks start something", len(starts))
	}
	installsLikeTheClients(t, starts[0])
	run := func(block string, replace ...string) *process.Process {
		return startBlock(t, dir, process.Environment(), strings.NewReplacer(replace...).Replace(block))
	}
	up := run(starts[1], "go run ./examples/deploy-script/registry", registry+" -addr 127.0.0.1:0")
	packages := up.Await(t, `packages are at http://([^/]+)`)[1]
	stage(t, example, filepath.Join(dir, "examples", "deploy-script"), strings.NewReplacer("8000", port(packages)))
	serve := run(starts[2], "bin/sallyport serve", broker+" serve --grpc 127.0.0.1:0 --http 127.0.0.1:0")
	address := serve.Await(t, `msg=serving grpc=(\S+)`)[1]
	t.Cleanup(func() { serve.Terminate(t) })

	sh := document.StartShell(t, dir, process.Environment())
	here := strings.NewReplacer("127.0.0.1:7400", address, "127.0.0.1:8000", packages)
	commands := document.Commands(t, filepath.Join(example, "README.md"))
	if len(commands) != 1 {
		t.Fatalf("the document has %d commands", len(commands))
	}
	got := strings.TrimSpace(sh(here.Replace(commands[0].Line)))
	if want := strings.TrimSpace(commands[0].Prints); got != want {
		t.Errorf("$ %s\nprints\n%s\nand not\n%s", commands[0].Line, got, want)
	}
	judgeWaits(t, got, packages)
	tellsOfACutAnswer(t, dir)
}

// tellsOfACutAnswer: an answer that broke off after its head has the status of that, and is told as what it is.
func tellsOfACutAnswer(t *testing.T, dir string) {
	t.Helper()
	stop, retry := &pb.Decision{Verdict: pb.Verdict_VERDICT_STOP, Reason: pb.Reason_REASON_SUCCESS}, &pb.Decision{Verdict: pb.Verdict_VERDICT_RETRY, Reason: pb.Reason_REASON_FAILURE_RETRYABLE}
	broker := serve(t, &fake{asked: map[string]int{}, answers: map[string]vector{"": {resp: &pb.CallResponse{
		Outcome: pb.Outcome_OUTCOME_SUCCESS, Effect: pb.Effect_EFFECT_ANSWERED, Next: pb.NextStep_NEXT_STEP_DONE,
		Attempts: []*pb.Attempt{
			{Number: 1, Status: 200, Evidence: pb.Evidence_EVIDENCE_PARTIAL_RESPONSE, Failure: pb.Failure_FAILURE_CONNECTION_LOST, Decision: retry},
			{Number: 2, Status: 200, Evidence: pb.Evidence_EVIDENCE_ANSWERED, Decision: stop},
		},
	}}}})
	script := filepath.Join(dir, "examples", "deploy-script", "deploy.mjs")
	got := string(output(t, command(t, runTime, "node", script, broker, "http://127.0.0.1:8000")))
	if want := "  1  connection lost  retry: failure retryable\n  2  200              stop: success\n"; strings.Count(got, want) != len(waits) {
		t.Errorf("the script tells of a cut answer\n%s", got)
	}
}

// stage copies the script and its policies, with the ports of the test.
func stage(t *testing.T, from, to string, ports *strings.Replacer) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"deploy.mjs", "policies.yaml"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), []byte(ports.Replace(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// judgeWaits: the report has the waits exactly, and the registry saw each of them in full.
func judgeWaits(t *testing.T, report, registry string) {
	t.Helper()
	var seen map[string][]float64
	fetch(t, "GET", "http://"+registry+"/seen", &seen)
	told := regexp.MustCompile(`wait (\S+)`)
	parts := strings.Split(report, "\n\n")
	if len(parts) != len(waits) {
		t.Fatalf("%d packages are told of:\n%s", len(parts), report)
	}
	for _, part := range parts {
		first, _, _ := strings.Cut(part, "\n")
		name := filepath.Base(first)
		said, at := told.FindAllStringSubmatch(part, -1), seen[name]
		if len(said) != len(waits[name]) || len(at) != len(waits[name])+1 {
			t.Errorf("%s: %d waits are told and %d requests were seen, want %d waits", name, len(said), len(at), len(waits[name]))
			continue
		}
		for i, want := range waits[name] {
			wait, err := time.ParseDuration(said[i][1])
			gap := time.Duration((at[i+1] - at[i]) * float64(time.Millisecond))
			if err != nil || wait != want || gap < want {
				t.Errorf("%s: wait %d is told as %s and was %s, want %s", name, i+1, said[i][1], gap, want)
			}
		}
	}
}
