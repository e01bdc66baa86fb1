package main

import (
	"strings"
	"testing"
	"time"
)

func TestDemoEndsAsToldWithinItsTime(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out strings.Builder
	start := time.Now()
	if err := demo(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if took := time.Since(start); took >= 15*time.Second {
		t.Errorf("took %s", took)
	}
	for i, step := range demoSteps() {
		if !strings.Contains(out.String(), step.title+"\n") {
			t.Errorf("call %d, %q, was not shown", i+1, step.title)
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimSpace(line))); n > width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
