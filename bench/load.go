package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// callTimeout is the deadline of each call: a caller has one, and it must cost what it costs.
const callTimeout = 10 * time.Second

// sample is what one measurement of one cell gave.
type sample struct {
	took           time.Duration
	latencies      []time.Duration // sorted, one for each call
	cpu            time.Duration   // of the server's process
	mallocs, bytes uint64          // allocated there
}

func (s *sample) calls() float64 { return float64(len(s.latencies)) }

func (s *sample) rate() float64 { return s.calls() / s.took.Seconds() }

func (s *sample) cpuPer100k() float64 { return s.cpu.Seconds() / s.calls() * 100_000 }

func (s *sample) mallocsPerCall() float64 { return float64(s.mallocs) / s.calls() }

func (s *sample) bytesPerCall() float64 { return float64(s.bytes) / s.calls() }

// quantile is the nearest-rank one; q is in (0, 1).
func (s *sample) quantile(q float64) time.Duration {
	return s.latencies[min(int(q*s.calls()), len(s.latencies)-1)]
}

// load puts the cell's pressure on its server for that long.
func (f *fleet) load(ctx context.Context, c cell, length time.Duration) (sample, error) {
	url := f.upstream.at.HTTP
	if c.scheme == "https" {
		url = f.upstream.at.HTTPS
	}
	if c.rate > 0 {
		return f.open(ctx, c, url, length)
	}
	return f.closed(ctx, c, url, length)
}

// open makes so many calls a second, whether or not the ones before have ended. A latency counts from the moment at which the call was
// due, so that a server that stalls cannot hide the calls which came meanwhile.
func (f *fleet) open(ctx context.Context, c cell, url string, length time.Duration) (sample, error) {
	start := time.Now()
	latencies := make([]time.Duration, int(length.Seconds()*float64(c.rate)))
	group, ctx := errgroup.WithContext(ctx)
	pace := time.NewTimer(0)
	defer pace.Stop()
	for i := range latencies {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(c.rate))
		pace.Reset(time.Until(due))
		select {
		case <-pace.C:
		case <-ctx.Done():
			return sample{}, group.Wait() //nolint:wrapcheck // of our own function
		}
		group.Go(func() error {
			err := callOnce(ctx, f.clients[c.variant][i%connections], url)
			latencies[i] = time.Since(due)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return sample{}, err //nolint:wrapcheck // as above
	}
	slices.Sort(latencies)
	return sample{took: time.Since(start), latencies: latencies}, nil
}

// closed keeps the cell's number of calls in flight for that long. Each caller makes its next call when it has its answer, so that
// the rate is what the server can do and not what it was asked for. The first error ends it: a figure with errors in it is none.
func (f *fleet) closed(ctx context.Context, c cell, url string, length time.Duration) (sample, error) {
	start := time.Now()
	end := start.Add(length)
	each := make([][]time.Duration, c.concurrency)
	group, ctx := errgroup.WithContext(ctx)
	for i := range each {
		cl := f.clients[c.variant][i%connections]
		group.Go(func() error {
			for last := time.Now(); last.Before(end); {
				if err := callOnce(ctx, cl, url); err != nil {
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
	if len(s.latencies) == 0 {
		return s, fmt.Errorf("no call ended within %s", length)
	}
	slices.Sort(s.latencies)
	return s, nil
}

// succeed makes a call that must succeed, whatever its answer holds.
func succeed(ctx context.Context, c *client.Client, url string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	resp, err := c.Call(ctx, &pb.CallRequest{Request: &pb.HttpRequest{Method: "GET", Url: url}})
	if err != nil {
		return err
	}
	if resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		return fmt.Errorf("%s: %s", resp.GetOutcome(), resp.GetDetail())
	}
	return nil
}

func callOnce(ctx context.Context, cl *client.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := cl.Call(ctx, &pb.CallRequest{Request: &pb.HttpRequest{
		Method: "GET", Url: url + "/orders/17?part=all",
		Headers: []*pb.HttpHeader{{Name: "Accept", Value: "application/octet-stream"}, {Name: "X-Request-Id", Value: "4711"}},
	}})
	if err != nil {
		return err
	}
	if resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS || len(resp.GetResponse().GetBody()) != answerBytes {
		return fmt.Errorf("%s with a body of %d bytes: %s", resp.GetOutcome(), len(resp.GetResponse().GetBody()), resp.GetDetail())
	}
	return nil
}
