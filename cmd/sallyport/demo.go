package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// demoPolicies is a file like any operator's; it goes in by the same door, --policies.
//
//go:embed demo.yaml
var demoPolicies []byte

// lateOpening is when the port of a late step opens: after the first attempt, before the attempts run out.
const lateOpening = 300 * time.Millisecond

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show what a broker is for: ten scenes with a flaky upstream, explained",
		Long: `Run a broker and a flaky upstream in this process, on loopback ports of their own, and play ten scenes that show
each mechanism: what happened, what was proved, what was decided, and what the upstream saw. Nothing is left behind.

Exit codes: 0 every call ended as told · 1 one did not.`,
		Example: "  sallyport demo",
		Args:    cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer cancel()
			return demo(ctx, cmd.OutOrStdout())
		}),
	}
}

// demo is a guided tour and a test: it fails when a call does not end as it tells.
func demo(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "sallyport-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	policies := filepath.Join(dir, "policies.yaml")
	if err := os.WriteFile(policies, demoPolicies, 0o600); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	s := &settings{GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Data: filepath.Join(dir, "data"), Policies: policies, Dev: true}
	n, err := startNode(ctx, s, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop(ctx)) }()
	upstream, err := startFlaky(ctx, "127.0.0.1:0", demoScripts())
	if err != nil {
		return err
	}
	defer upstream.close()
	c, err := client.Dial(address(n.grpc), client.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	sayf(out, "%s", wrap("", fmt.Sprintf("A broker listens on %s, a flaky upstream on %s. Both end with this demo.", address(n.grpc), upstream.url)))
	steps := demoSteps()
	wrong := 0
	for i := range steps {
		step := &steps[i]
		sayf(out, "\n%d. %s\n%s\n", i+1, step.title, wrap("", step.about))
		problem, err := step.run(ctx, out, c, upstream)
		if err != nil {
			return err
		}
		if problem != "" {
			wrong++
			sayf(out, "NOT AS TOLD: %s\n", problem)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("demo: %d of %d scenes did not end as told", wrong, len(steps))
	}
	sayf(out, demoEnd)
	return nil
}

const demoEnd = `
All ten ended as told. Where to go next:
  sallyport serve --dev                        run a broker that may call your own machine
  sallyport call GET http://127.0.0.1:PORT/    make a call through it
  sallyport policy resolve GET URL             see every value that rules a call, and who set it
  sallyport help                               everything else
`

// run makes the calls of one step and shows them. The text is the difference from what was told, "" when there is none.
func (s *demoStep) run(ctx context.Context, out io.Writer, c *client.Client, upstream *flaky) (string, error) {
	target := upstream.url
	opened := make(chan *flaky, 1) // receives the late upstream, or nil; then it is closed
	var late *flaky
	defer func() {
		if late != nil {
			late.close()
		}
	}()
	if s.late {
		addr, err := latePort(ctx)
		if err != nil {
			return "", err
		}
		target = "http://" + addr
		go func() {
			defer close(opened)
			opened <- openLate(ctx, addr)
		}()
	}
	var retryAfter time.Duration
	for i := range s.calls {
		dc := &s.calls[i]
		if dc.about != "" {
			sayf(out, "%s", wrap("- ", dc.about))
		}
		if dc.patient {
			pause(ctx, retryAfter)
		}
		before, _ := upstream.saw(dc.path)
		replies, err := dc.play(ctx, c, target)
		if s.late && late == nil {
			if late = <-opened; late == nil {
				return "the late port could not be opened", nil
			}
			upstream = late
		}
		if err != nil {
			return "", err
		}
		requests, keys := upstream.saw(dc.path)
		if problem := dc.show(out, target, replies, requests-before, keys); problem != "" {
			return problem, nil
		}
		if attempts := replies[0].GetAttempts(); s.late && (len(attempts) < 2 || attempts[0].GetEvidence() != pb.Evidence_EVIDENCE_NOT_SENT) {
			return "the first attempt was not refused", nil
		}
		retryAfter = replies[0].GetRetryAfter().AsDuration()
	}
	return "", nil
}

// openLate opens the upstream at that address after a moment; nil when it cannot.
func openLate(ctx context.Context, addr string) *flaky {
	timer := time.NewTimer(lateOpening)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	f, err := startFlaky(ctx, addr, demoScripts())
	if err != nil {
		return nil
	}
	return f
}
