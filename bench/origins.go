package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sallyport/sallyport/client"
)

// callersAtOnce go through the origins.
const callersAtOnce = 32

// untilIdle is the window of the default settings (10 s), and the time until the next sweep after it.
const untilIdle = 10*time.Second + 2*sweepEvery

// idleOrigins measures what origins that were called once cost in memory when nothing goes to them any more. All are names of the one
// upstream, and none keeps a connection.
func idleOrigins(ctx context.Context, n int) error {
	upstream, broker, stop, err := startPair(ctx, roleUpstream, roleBroker)
	if err != nil {
		return err
	}
	defer stop()
	c, err := client.Dial(broker.at.GRPC, client.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is measured any more
	at, err := url.Parse(upstream.at.HTTP)
	if err != nil {
		return err //nolint:wrapcheck // of our own child
	}
	if err := visit(ctx, c, at.Port(), 0, 1); err != nil {
		return err
	}
	before, err := broker.order("collected")
	if err != nil {
		return err
	}
	if err := visit(ctx, c, at.Port(), 1, n); err != nil {
		return err
	}
	time.Sleep(untilIdle)
	after, err := broker.order("collected")
	if err != nil {
		return err
	}
	per := func(now, was uint64) float64 { return float64(int64(now)-int64(was)) / float64(n) } //nolint:gosec // far below
	fmt.Printf("%s. %s. One call to each of %d origins, then nothing for %s; garbage was collected before both readings.\n\n",
		time.Now().UTC().Format(time.DateOnly), machine(), n, untilIdle)
	fmt.Printf("Resident: %.1f MiB before, %.1f MiB after. Per idle origin %.0f bytes of heap, %.0f bytes resident.\n",
		float64(before.Resident)/(1<<20), float64(after.Resident)/(1<<20), per(after.Heap, before.Heap), per(after.Resident, before.Resident))
	return nil
}

// visit calls n origins from that one on.
func visit(ctx context.Context, c *client.Client, port string, first, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(callersAtOnce)
	for i := range n {
		origin := fmt.Sprintf("http://origin%d.example.com:%s", first+i, port)
		group.Go(func() error { return succeed(ctx, c, origin+onceOnly, callTimeout) })
	}
	return group.Wait() //nolint:wrapcheck // of our own function
}
