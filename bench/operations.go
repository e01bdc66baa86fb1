package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/store/seal"
	"github.com/sallyport/sallyport/store/sqlite"
)

// startLedgerBroker starts a broker that keeps operations in a file on this disk, as `sallyport serve` does.
func startLedgerBroker(ctx context.Context, upstream *ready) (ready, func(), error) {
	dir, err := os.MkdirTemp(".", "bench-ledger-") // the temporary directory may be in memory
	if err != nil {
		return ready{}, nil, fmt.Errorf("ledger: %w", err)
	}
	remove := func() { _ = os.RemoveAll(dir) }
	keys, err := seal.Load(filepath.Join(dir, "keys"))
	if err != nil {
		remove()
		return ready{}, nil, err
	}
	ledger, err := sqlite.OpenLedger(ctx, filepath.Join(dir, "ledger.db"), keys)
	if err != nil {
		remove()
		return ready{}, nil, err
	}
	at, stop, err := startBroker(ctx, upstream, nil, ledger)
	if err != nil {
		_ = ledger.Close() //nolint:contextcheck // what is given back is given back in any case
		remove()
		return ready{}, nil, err
	}
	return at, func() { //nolint:contextcheck // as above
		stop()
		_ = ledger.Close()
		remove()
	}, nil
}

// pressures are how many calls are made at once.
var pressures = []int{1, 64, 256}

// operations measures POSTs with an operation id of their own each beside the same without one, in turn. With one, two records are on the disk by
// the time of the answer: that the operation begins, before it is sent, and what became of it.
func operations(ctx context.Context, o *options) error {
	upstream, broker, stop, err := startPair(ctx, roleUpstream, roleLedger)
	if err != nil {
		return err
	}
	defer stop()
	var clients []*client.Client
	defer func() {
		for _, c := range clients {
			_ = c.Close() // nothing is measured any more
		}
	}()
	for range connections {
		c, err := client.Dial(broker.at.GRPC, client.Config{})
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	synced, err := syncs(o.length)
	if err != nil {
		return err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s. %d rounds of %s; one file on this disk is appended to and synced %.0f times a second.\n\n", machine(), o.rounds, o.length, synced)
	out.WriteString("| at once | calls | calls/s | p50 | p99 |\n|---|---|---:|---:|---:|\n")
	for _, n := range pressures {
		var with, without []sample
		for round := range o.rounds {
			for _, ids := range []bool{round%2 == 0, round%2 != 0} {
				s, err := posts(ctx, clients, upstream.at.HTTP, n, ids, o.length)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "%d at once, ids %v: %.0f calls/s\n", n, ids, s.rate())
				if ids {
					with = append(with, s)
				} else {
					without = append(without, s)
				}
			}
		}
		row(&out, n, "without an id", without)
		row(&out, n, "with one", with)
	}
	fmt.Print(out.String())
	return nil
}

// row is the medians of some samples.
func row(out *strings.Builder, n int, what string, samples []sample) {
	median := func(of func(*sample) float64) float64 {
		var all []float64
		for i := range samples {
			all = append(all, of(&samples[i]))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	ms := func(q float64) float64 {
		return median(func(s *sample) float64 { return s.quantile(q).Seconds() * 1000 })
	}
	fmt.Fprintf(out, "| %d | %s | %.0f | %.1f ms | %.1f ms |\n", n, what, median((*sample).rate), ms(0.5), ms(0.99))
}

// posts keeps n POSTs under way for that long.
func posts(ctx context.Context, clients []*client.Client, url string, n int, ids bool, length time.Duration) (sample, error) {
	start := time.Now()
	each := make([][]time.Duration, n)
	group, ctx := errgroup.WithContext(ctx)
	for i := range each {
		group.Go(func() error {
			for last := time.Now(); last.Before(start.Add(length)); {
				req := &pb.CallRequest{Request: &pb.HttpRequest{Method: "POST", Url: url + "/orders", Body: []byte(`{"amount": 17}`)}}
				if ids {
					req.OperationId = uuid.NewString()
				}
				if err := post(ctx, clients[i%len(clients)], req); err != nil {
					return err
				}
				now := time.Now()
				each[i] = append(each[i], now.Sub(last))
				last = now
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return sample{}, err //nolint:wrapcheck // of our own function
	}
	s := sample{took: time.Since(start), latencies: slices.Concat(each...)}
	slices.Sort(s.latencies)
	return s, nil
}

func post(ctx context.Context, c *client.Client, req *pb.CallRequest) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.Call(ctx, req)
	if err != nil {
		return err
	}
	if resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		return fmt.Errorf("%s: %s", resp.GetOutcome(), resp.GetDetail())
	}
	return nil
}

// syncs is how often a second 4 KiB can be appended to a file and brought to the disk, one after the other.
func syncs(length time.Duration) (float64, error) {
	f, err := os.CreateTemp(".", "bench-sync-")
	if err != nil {
		return 0, fmt.Errorf("sync: %w", err)
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	page, n, start := make([]byte, 4096), 0, time.Now()
	for ; time.Since(start) < length; n++ {
		if _, err := f.Write(page); err != nil {
			return 0, fmt.Errorf("sync: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("sync: %w", err)
		}
	}
	return float64(n) / time.Since(start).Seconds(), nil
}
