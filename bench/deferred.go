package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

const (
	// idleFor is how long the broker is watched with nothing to do.
	idleFor = 20 * time.Second
	// completions is how many deferred calls are made one after the other.
	completions = 5000
	// ticks is the unit of /proc/PID/stat (sysconf(_SC_CLK_TCK), 100 on every Linux).
	ticks = 100
)

// program is the broker as it is shipped.
type program struct {
	cmd  *exec.Cmd
	grpc string
}

// startProgram starts it on a directory of its own on this disk, and waits until it serves.
func startProgram(ctx context.Context, binary, data string, more ...string) (*program, error) {
	args := append([]string{"serve", "--dev", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", data}, more...)
	cmd := exec.CommandContext(ctx, binary, args...) //nolint:gosec // the caller names it
	out, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	lines := bufio.NewScanner(out)
	serving := regexp.MustCompile(`msg=serving .*?grpc=(\S+)`)
	for lines.Scan() {
		if m := serving.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the broker
			return &program{cmd: cmd, grpc: m[1]}, nil
		}
	}
	return nil, errors.Join(errors.New("the broker did not serve"), cmd.Wait())
}

func (p *program) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = p.cmd.Wait()
}

// cpu is what it used so far.
func (p *program) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("cpu: %w", err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name may hold anything
	fields := strings.Fields(after)
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticks, errors.Join(err1, err2)
}

// resident is its memory in MiB.
func (p *program) resident() (float64, error) {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20), nil
}

// deferredCalls measures the shipped broker with a store on this disk: acknowledged submissions, completions, and what many calls cost that wait
// for tomorrow.
func deferredCalls(ctx context.Context, o *options) error {
	dir, err := os.MkdirTemp(".", "bench-deferred-") // the temporary directory may be in memory
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	upstream, err := startChild(ctx, roleUpstream, nil)
	if err != nil {
		return err
	}
	defer func() { _ = upstream.stop() }()
	p, err := startProgram(ctx, o.broker, dir)
	if err != nil {
		return err
	}
	defer func() { p.stop() }()
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	defer func() { _ = conn.Close() }()
	service := pb.NewDeferredServiceClient(conn)
	synced, err := syncs(o.length)
	if err != nil {
		return err
	}
	fmt.Printf("%s. Each for %s; one file on this disk is appended to and synced %.0f times a second.\n\n", machine(), o.length, synced)
	fmt.Println("| submitters | acknowledged/s | p50 | p99 |\n|---|---:|---:|---:|")
	waiting := 0
	for _, n := range pressures {
		s, err := submissions(ctx, service, upstream.at.HTTP, n, o.length)
		if err != nil {
			return err
		}
		waiting += len(s.latencies)
		fmt.Printf("| %d | %.0f | %.1f ms | %.1f ms |\n", n, s.rate(), s.quantile(0.5).Seconds()*1000, s.quantile(0.99).Seconds()*1000)
	}
	rate, err := complete(ctx, service, upstream.at.HTTP)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d calls that are due, to a fast upstream: %.0f completed a second.\n", completions, rate)
	if more := o.waiting - waiting; more > 0 {
		fmt.Fprintf(os.Stderr, "%d more submissions\n", more)
		if err := fill(ctx, service, upstream.at.HTTP, more); err != nil {
			return err
		}
		waiting += more
	}
	return p.idle(ctx, waiting)
}

// idle tells what it costs that calls wait.
func (p *program) idle(ctx context.Context, waiting int) error {
	if err := pause(ctx, settleTime); err != nil {
		return err
	}
	before, err := p.cpu()
	if err != nil {
		return err
	}
	if err := pause(ctx, idleFor); err != nil {
		return err
	}
	after, err := p.cpu()
	if err != nil {
		return err
	}
	resident, err := p.resident()
	if err != nil {
		return err
	}
	fmt.Printf("\nWith %d calls that wait for tomorrow: %.2f %% of a core over %s, %.0f MiB resident.\n", waiting, 100*(after-before).Seconds()/idleFor.Seconds(), idleFor, resident)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // it says all there is
	}
}

// tomorrow is a submission that waits.
func tomorrow(url string) *pb.SubmitDeferredCallRequest {
	r := dueNow(url)
	r.NotBeforeTime = timestamppb.New(time.Now().Add(23 * time.Hour))
	return r
}

func dueNow(url string) *pb.SubmitDeferredCallRequest {
	return &pb.SubmitDeferredCallRequest{Call: &pb.CallRequest{Request: &pb.HttpRequest{Method: "PUT", Url: url + "/orders/17", Body: []byte(`{"amount": 17}`)}}}
}

// submissions keeps n of them under way for that long.
func submissions(ctx context.Context, service pb.DeferredServiceClient, url string, n int, length time.Duration) (sample, error) {
	start := time.Now()
	each := make([][]time.Duration, n)
	group, ctx := errgroup.WithContext(ctx)
	for i := range each {
		group.Go(func() error {
			for last := time.Now(); last.Before(start.Add(length)); {
				if _, err := service.SubmitDeferredCall(ctx, tomorrow(url)); err != nil {
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

// fill submits so many that wait.
func fill(ctx context.Context, service pb.DeferredServiceClient, url string, n int) error {
	var left atomic.Int64
	left.Store(int64(n))
	group, ctx := errgroup.WithContext(ctx)
	for range 256 {
		group.Go(func() error {
			for left.Add(-1) >= 0 {
				if _, err := service.SubmitDeferredCall(ctx, tomorrow(url)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait() //nolint:wrapcheck // of our own function
}

// complete submits calls that are due, and tells how many a second are done, from the first submission on.
func complete(ctx context.Context, service pb.DeferredServiceClient, url string) (float64, error) {
	start := time.Now()
	var left atomic.Int64
	left.Store(completions)
	group, within := errgroup.WithContext(ctx)
	for range 64 {
		group.Go(func() error {
			for left.Add(-1) >= 0 {
				if _, err := service.SubmitDeferredCall(within, dueNow(url)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err //nolint:wrapcheck // of our own function
	}
	for {
		list, err := service.ListDeferredCalls(ctx, &pb.ListDeferredCallsRequest{PageSize: 1})
		if err != nil {
			return 0, err
		}
		if list.GetCounts()[pb.DeferredState_DEFERRED_STATE_COMPLETED.String()] >= completions {
			return completions / time.Since(start).Seconds(), nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
}
