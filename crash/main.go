// Command crash audits what the broker promises of operations: callers ask a built broker for thousands of them while it is killed and
// started again, and an upstream that misbehaves counts what really happened. A checker then reads the history of both sides and says what
// must not be. See docs/crash.md.
//
//	go run ./crash -rounds 20
//	go run ./crash -seed 7 -rounds 1
//	go run ./crash -deferred
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/sallyport/sallyport/crash/victim"
)

// The bounds of the flags: an audit ends, whatever it is told.
const (
	maxRounds     = 1000
	maxOperations = 10_000
	maxCallers    = 1000
	maxKills      = 10_000
	maxWaiting    = 100_000
)

// options are what the flags say.
type options struct {
	seed       uint64
	rounds     int
	operations int
	callers    int
	stories    int
	program    string
	keep       bool
	kills      bool

	// Of the audit of deferred calls.
	deferred              bool
	cell, random, waiting int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.program == "" {
		dir, err := os.MkdirTemp("", "crash")
		if err != nil {
			return fmt.Errorf("a place for the broker: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }() // what is left there harms nobody
		o.program = filepath.Join(dir, "sallyport")
		if err := victim.Build(ctx, o.program); err != nil {
			return err
		}
	}
	if o.deferred {
		return deferredCampaign(ctx, &o, os.Stdout)
	}
	return campaign(ctx, &o, os.Stdout)
}

func parse(args []string) (options, error) {
	o := options{}
	fs := flag.NewFlagSet("crash", flag.ContinueOnError)
	fs.Uint64Var(&o.seed, "seed", 0, "of the first round, the next has the next; 0: a random one")
	fs.IntVar(&o.rounds, "rounds", 20, "rounds, each with a fresh broker and a fresh upstream")
	fs.IntVar(&o.operations, "operations", 400, "operations of a round")
	fs.IntVar(&o.callers, "callers", 32, "operations under way at once")
	fs.IntVar(&o.stories, "stories", 2, "violations of each rule and round of which the whole history is printed")
	fs.BoolVar(&o.kills, "kills", true, "end the broker and start it again; without, unknowns have the time to settle")
	fs.BoolVar(&o.deferred, "deferred", false, "audit deferred calls instead of operations")
	fs.IntVar(&o.cell, "cell", 20, "of deferred calls: kills of each step and kind")
	fs.IntVar(&o.random, "random", 1000, "of deferred calls: kills at any moment")
	fs.IntVar(&o.waiting, "waiting", 10_000, "of deferred calls: how many wait while the broker is killed and starts again")
	fs.BoolVar(&o.keep, "keep", false, "keep the logs and the data of each round's broker, and say where")
	fs.StringVar(&o.program, "broker", "", "a built broker; without it, one is built")
	if err := fs.Parse(args); err != nil {
		return o, fmt.Errorf("flags: %w", err)
	}
	if o.rounds < 1 || o.rounds > maxRounds || o.operations < 1 || o.operations > maxOperations || o.callers < 1 || o.callers > maxCallers {
		return o, fmt.Errorf("give 1 to %d rounds of 1 to %d operations, 1 to %d at once", maxRounds, maxOperations, maxCallers)
	}
	if o.cell < 0 || o.cell > maxKills || o.random < 0 || o.random > maxKills || o.waiting < 0 || o.waiting > maxWaiting {
		return o, fmt.Errorf("give at most %d kills and %d waiting", maxKills, maxWaiting)
	}
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	return o, nil
}
