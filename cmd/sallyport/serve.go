package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sallyport/sallyport/internal/ballast"
)

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker",
		Long: `Run the broker until SIGTERM or SIGINT.

No flag is needed: gRPC on 127.0.0.1:7400, HTTP (REST, /healthz, /readyz, /metrics) on 127.0.0.1:7480, state in ./sallyport-data.
Settings come from these flags, else from SALLYPORT_* (SALLYPORT_GRPC, SALLYPORT_TLS_CERT …), else from --config.

Off loopback the broker wants TLS, and tokens or --client-ca; or --insecure. A unix socket belongs to the user who runs the broker.
Who may do what stands in the file of --tokens: tokens, SPIFFE ids and DNS names of client certificates, users of a unix socket.

SIGTERM drains: new calls are refused, those in flight finish within their deadlines. A second signal ends them at once, and each
still gets its answer.

SIGHUP reads the files of policies, tokens, secrets, certificate and client authorities again; a change of them is also noticed within two seconds. What is
broken is refused and logged, and what was in force stays.

Exit codes: 0 after a signal · 1 the broker cannot run (port in use, data directory not writable) · 2 usage, or a
broken configuration, policy, token or secret file.`,
		Example: `  sallyport serve --dev
  sallyport serve --policies policies.yaml --secrets /run/secrets
  sallyport serve --grpc unix:/run/sallyport/grpc.sock
  sallyport serve --grpc 0.0.0.0:7400 --tls-cert tls.crt --tls-key tls.key --tokens tokens.yaml
  sallyport serve --grpc 0.0.0.0:7400 --tls-cert tls.crt --tls-key tls.key --client-ca clients.pem --admin unix:/run/sallyport/admin.sock`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			s, err := loadSettings(cmd.Flags(), os.Environ())
			if err != nil {
				return usage(err)
			}
			// Whoever reads the log may go away; that is no reason to end with calls in flight.
			signal.Ignore(syscall.SIGPIPE)
			// Of their own each, so that no storm of SIGHUPs crowds out the signal to end.
			ends, hangups := make(chan os.Signal, 2), make(chan os.Signal, 1) // closed by nobody
			signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
			signal.Notify(hangups, syscall.SIGHUP)
			defer signal.Stop(ends)
			defer signal.Stop(hangups)
			return serve(cmd.Context(), s, cmd.ErrOrStderr(), ends, hangups)
		}),
	}
	settingFlags(cmd.Flags())
	return cmd
}

// serve runs a broker until the first of ends drains it, and a second one or the end of ctx ends it. A hangup has the files read again.
func serve(ctx context.Context, s *settings, errOut io.Writer, ends, hangups <-chan os.Signal) error {
	defer runtime.KeepAlive(ballast.New(os.LookupEnv))
	lines := newLogWriter(errOut)
	defer lines.close()
	log := slog.New(slog.NewTextHandler(lines, nil))
	n, err := startNode(ctx, s, log)
	if err != nil {
		return err
	}
	broken := untilDrain(ctx, n, ends, hangups, log)
	drain, cancel := context.WithCancel(ctx)
	defer cancel()
	watching := make(chan struct{}) // closed by the goroutine below
	go func() {
		defer close(watching)
		select {
		case <-ends:
			cancel()
		case <-drain.Done():
		}
	}()
	err = n.stop(drain)
	cancel()
	<-watching
	if broken != nil {
		return failure(broken)
	}
	log.Info("stopped")
	return err
}

// untilDrain returns when it is time to drain, with the error of a listener that failed.
func untilDrain(ctx context.Context, n *node, ends, hangups <-chan os.Signal, log *slog.Logger) error {
	for {
		select {
		case <-hangups:
			n.files.ask()
		case sig := <-ends:
			log.Info("draining; a second signal ends at once", "signal", sig.String())
			return nil
		case err := <-n.failed:
			log.Error("a listener failed; draining", "error", err)
			return err
		case <-ctx.Done():
			return nil
		}
	}
}
