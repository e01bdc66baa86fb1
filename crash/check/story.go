package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

// Story is the whole history of one operation, a line for everything that happened, for a person.
func Story(h *history.History, operation string) string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	addf := func(when time.Duration, format string, args ...any) {
		lines = append(lines, line{when, fmt.Sprintf(format, args...)})
	}
	var from, to time.Duration
	for _, s := range gather(h) {
		if s.Name != operation {
			continue
		}
		for _, a := range s.asks {
			who := "ask " + a.Trace[max(0, len(a.Trace)-4):]
			other := ""
			if a.Other {
				other = ", another payload"
			}
			addf(a.Start, "%s: deadline %s%s%s", who, a.Deadline, cancelled(a.CancelAfter), other)
			if a.Code != history.OK {
				addf(a.End, "%s: error %s, nothing sent: %t: %s", who, a.Code, a.NothingSent, a.Detail)
			} else {
				addf(a.End, "%s: %s, %s, %s, next %s, status %d, sends %d, replayed %t: %q", who, a.Outcome, a.Effect, a.Reason, a.Next, a.Status,
					a.Sends, a.Replayed, a.Body)
			}
			to = max(to, a.End)
		}
		for _, r := range s.readings {
			addf(r.End, "GetOperation: %s %s, %s, %s, status %d, %d attempts", r.Code, r.State, r.Outcome, r.Effect, r.Status, r.Attempts)
			to = max(to, r.End)
		}
		for _, x := range s.arrivals {
			who := fmt.Sprintf("  upstream: request of ask %s", x.Trace[max(0, len(x.Trace)-4):])
			addf(x.At, "%s, key %q, script: %s", who, x.Key, x.Script)
			if x.Committed > 0 {
				addf(x.Committed, "%s COMMITTED", who)
			}
			addf(x.End, "%s is done with, answer %d", who, x.Status)
			to = max(to, x.End)
		}
		for _, l := range lines {
			if from == 0 || l.at < from {
				from = l.at
			}
		}
	}
	for _, s := range h.Stops {
		if s.Back >= from && s.At <= to {
			what := "SIGTERM"
			if s.Killed {
				what = "kill -9"
			}
			addf(s.At, "  broker: %s", what)
			addf(s.Back, "  broker: serves again")
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "    %10s  %s\n", at(l.at), l.text)
	}
	return out.String()
}

func cancelled(after time.Duration) string {
	if after == 0 {
		return ""
	}
	return ", gone after " + at(after)
}

// at is an instant of the history, short.
func at(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
