package main

import (
	"context"
	"errors"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/client"
)

// rewatchEvery is how long a watch waits before it tries again.
const rewatchEvery = time.Second

// watch follows a stream until somebody ends it. A stream that breaks after it had begun, as it does when the broker is started again,
// is followed anew; one that never began is an error. begun is told by follow, which returns with the error of its stream.
func (f *adminFlags) watch(cmd *cobra.Command, follow func(ctx context.Context, c *client.Client, begun func()) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return f.with(cmd, func(_ context.Context, c *client.Client) error {
		ever, lost := false, false
		for {
			err := follow(ctx, c, func() {
				if lost {
					sayf(cmd.ErrOrStderr(), "the broker is there again\n")
				}
				ever, lost = true, false
			})
			switch {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // whoever watched has seen enough
			case !ever || !passing(err):
				return err
			case !lost:
				lost = true
				sayf(cmd.ErrOrStderr(), "the broker at %s is gone; waiting for it\n", plain(f.broker))
			}
			wait := time.NewTimer(rewatchEvery)
			select {
			case <-wait.C:
			case <-ctx.Done():
				wait.Stop()
				return nil
			}
		}
	})
}

// passing tells whether a stream that broke may be had again.
func passing(err error) bool {
	return errors.Is(err, io.EOF) || status.Code(err) == codes.Unavailable
}
