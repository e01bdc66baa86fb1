package main

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/crash/history"
	"github.com/sallyport/sallyport/crash/victim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var seed = flag.Uint64("seed", 0, "of the first round; 0: a random one")

// The short form of `make crash`. What it does is drawn anew each time; the seeds are in its log, and -args -seed has it draw the same.
func TestNothingIsDoneTwice(t *testing.T) {
	program := filepath.Join(t.TempDir(), "sallyport")
	if err := victim.Build(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"-rounds", "3", "-operations", "400", "-callers", "32", "-broker", program})
	if err != nil {
		t.Fatal(err)
	}
	if *seed != 0 {
		o.seed = *seed
	}
	began := time.Now()
	if err := campaign(t.Context(), &o, t.Output()); err != nil {
		t.Error(err)
	}
	t.Logf("%s", time.Since(began).Round(time.Second))
}

// The short form of `make crash` for deferred calls: two kills of each cell, two hundred random ones, and a start with ten thousand waiting.
func TestDeferredCallsSurviveKills(t *testing.T) {
	program := filepath.Join(t.TempDir(), "sallyport")
	if err := victim.Build(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"-deferred", "-cell", "2", "-random", "200", "-broker", program})
	if err != nil {
		t.Fatal(err)
	}
	if *seed != 0 {
		o.seed = *seed
	}
	began := time.Now()
	if err := deferredCampaign(t.Context(), &o, t.Output()); err != nil {
		t.Error(err)
	}
	t.Logf("%s", time.Since(began).Round(time.Second))
}

// Each step has its cells, and one kill hits each mode of its kind.
func TestEveryStepAndModeIsKilled(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cells() {
		for _, m := range c.modes() {
			seen[string(c.step)+m.Name] = true
		}
	}
	if want := len(history.Steps()) * len(history.Modes()); len(seen) != want {
		t.Errorf("%d of steps and modes, want %d", len(seen), want)
	}
}

// A policy file that the broker refuses would end the audit at once; one that lacks a route would audit the defaults.
func TestEveryRouteHasItsPolicy(t *testing.T) {
	text := policies(history.AttemptTimeout)
	for name := range history.Routes() {
		if !strings.Contains(text, "policies/"+name) {
			t.Errorf("no policy for %s", name)
		}
	}
	for name := range extra {
		if _, ok := history.Routes()[name]; !ok {
			t.Errorf("%s is no route", name)
		}
	}
}

func TestFlagsAreBounded(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-rounds", "1001"}, {"-operations", "0"}, {"-callers", "0"}, {"-callers", "1001"}, {"-seed", "x"}, {"-cell", "-1"}, {"-random", "10001"}, {"-waiting", "100001"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
