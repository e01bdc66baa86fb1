// Command bench measures what the broker costs beside the least a service could do instead: a bare gRPC handler that makes one
// net/http request. Both run in processes of their own, so that what a server used is its own process's account and not that
// of the load or of the upstream.
//
// The cells (variant, scheme, number of concurrent calls) run in a new random order every round: a machine that is busier in one
// minute than in the next then blurs all of them alike, and the ratio of two cells of one round stays fair.
//
//	go run ./bench -rounds 5 -seconds 3 -concurrency 64,256
//	go run ./bench -inflight 10000
//	go run ./bench -operations
//	go run ./bench -deferred -broker bin/sallyport
//	go run ./bench -stream 2048 -broker bin/sallyport
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The bounds of the flags: a measurement ends, whatever it is told.
const (
	maxRounds      = 100
	maxSeconds     = 60
	maxConcurrency = 4096
	maxRate        = 5000
	maxOrigins     = 50_000
	maxWaiting     = 2_000_000
	// warmUp opens the connections and fills the pools before a cell is measured.
	warmUp = 500 * time.Millisecond
)

// options are what the flags say.
type options struct {
	role        string
	rounds      int
	length      time.Duration
	concurrency []int
	schemes     []string
	profile     string
	inFlight    int
	rate        int
	origins     int
	operations  bool
	deferred    bool
	broker      string
	bare        string
	waiting     int
	stream      int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := bench(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.role != "" {
		return runRole(ctx, o.role, os.Stdin, os.Stdout)
	}
	switch {
	case o.inFlight > 0:
		return inFlight(ctx, o.inFlight)
	case o.deferred:
		return deferredCalls(ctx, &o)
	case o.stream > 0:
		return streams(ctx, &o)
	case o.operations:
		return operations(ctx, &o)
	case o.origins > 0:
		return idleOrigins(ctx, o.origins)
	}
	f, err := startFleet(ctx, o.bare)
	if err != nil {
		return err
	}
	defer f.stop()
	results, err := f.measure(ctx, &o)
	if err != nil {
		return err
	}
	fmt.Print(report(&o, results))
	if o.profile != "" {
		return f.profile(ctx, &o)
	}
	return nil
}

func parse(args []string) (options, error) {
	o := options{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	var seconds float64
	var concurrency string
	var secure bool
	fs.StringVar(&o.role, "role", "", "internal: be one of the servers")
	fs.IntVar(&o.rounds, "rounds", 5, "rounds; every cell is measured once in each")
	fs.Float64Var(&seconds, "seconds", 3, "length of one measurement, in seconds")
	fs.StringVar(&concurrency, "concurrency", "64,256", "concurrent calls, one number per cell")
	fs.BoolVar(&secure, "tls", true, "measure an https upstream as well")
	fs.StringVar(&o.profile, "profile", "", "after the rounds, write a CPU profile of the broker to this file")
	fs.IntVar(&o.rate, "rate", 1000, "calls a second of the open loop; 0 leaves it out")
	fs.IntVar(&o.origins, "origins", 0, "measure the broker's memory after one call to each of so many origins, and nothing else")
	fs.BoolVar(&o.deferred, "deferred", false, "measure deferred calls of the program -broker, with a store on this disk, and nothing else")
	fs.StringVar(&o.broker, "broker", "bin/sallyport", "with -deferred and -stream: the broker, built by make build")
	fs.StringVar(&o.bare, "bare", "", "another build of this program, for the bare server: one without a profile, as a service would be built")
	fs.IntVar(&o.waiting, "waiting", 100_000, "with -deferred: how many calls wait for tomorrow while it is watched")
	fs.BoolVar(&o.operations, "operations", false, "measure what an operation id costs, with a ledger on this disk, and nothing else")
	fs.IntVar(&o.inFlight, "inflight", 0, "measure the broker's memory with so many calls in flight, and nothing else")
	fs.IntVar(&o.stream, "stream", 0, "measure an upload and a download of so many MiB in parallel through the program -broker, and nothing else")
	if err := fs.Parse(args); err != nil {
		return o, fmt.Errorf("flags: %w", err)
	}
	if o.rounds < 1 || o.rounds > maxRounds || seconds <= 0 || seconds > maxSeconds {
		return o, fmt.Errorf("give 1 to %d rounds of at most %d seconds", maxRounds, maxSeconds)
	}
	if o.rate < 0 || o.rate > maxRate || o.origins < 0 || o.origins > maxOrigins {
		return o, fmt.Errorf("give a -rate up to %d and -origins up to %d", maxRate, maxOrigins)
	}
	if o.waiting < 0 || o.waiting > maxWaiting {
		return o, fmt.Errorf("-waiting %d: give up to %d", o.waiting, maxWaiting)
	}
	if o.inFlight < 0 || o.inFlight > maxInFlight {
		return o, fmt.Errorf("-inflight %d: give 1 to %d", o.inFlight, maxInFlight)
	}
	if o.stream < 0 || o.stream > maxStreamMiB {
		return o, fmt.Errorf("-stream %d: give 1 to %d", o.stream, maxStreamMiB)
	}
	o.length = time.Duration(seconds * float64(time.Second))
	for word := range strings.SplitSeq(concurrency, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 || n > maxConcurrency {
			return o, fmt.Errorf("-concurrency %q: give numbers from 1 to %d", concurrency, maxConcurrency)
		}
		o.concurrency = append(o.concurrency, n)
	}
	o.schemes = []string{"http"}
	if secure {
		o.schemes = append(o.schemes, "https")
	}
	return o, nil
}

// cell is one thing to measure.
type cell struct {
	variant, scheme string
	concurrency     int // calls at once, each caller with its next call when it has its answer; 0: open loop
	rate            int // calls a second, whatever becomes of them; 0: closed loop
}

func (c cell) String() string { return c.variant + " " + c.scheme + ", " + c.pressure() }

// pressure is the load of the cell.
func (c cell) pressure() string {
	if c.rate > 0 {
		return fmt.Sprintf("%d/s", c.rate)
	}
	return fmt.Sprintf("%d at once", c.concurrency)
}

// cells gives every combination in a random order.
func (o *options) cells() []cell {
	all := o.inOrder()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// measure runs the rounds, telling its progress on standard error.
func (f *fleet) measure(ctx context.Context, o *options) (map[cell][]sample, error) {
	results := make(map[cell][]sample)
	total, done := o.rounds*len(o.cells()), 0
	for range o.rounds {
		for _, c := range o.cells() {
			s, err := f.run(ctx, c, o.length)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c, err)
			}
			results[c] = append(results[c], s)
			done++
			fmt.Fprintf(os.Stderr, "%d/%d  %s: %.0f calls/s, %.2f CPU s per 100000\n", done, total, c, s.rate(), s.cpuPer100k())
		}
	}
	return results, nil
}

// machine tells what the figures were measured on.
func machine() string {
	return fmt.Sprintf("%s %s/%s, %d cores, GOMAXPROCS %d", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.GOMAXPROCS(0))
}
