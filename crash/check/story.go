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
	var lines lines
	for _, s := range gather(h) {
		if s.Name == operation {
			lines.tell(s)
		}
	}
	return lines.withStops(h)
}

// withStops writes them out, with the ends of the broker between them.
func (l *lines) withStops(h *history.History) string {
	lines := *l
	if len(lines) == 0 {
		return ""
	}
	lines.sort()
	from, to := lines[0].at, lines[len(lines)-1].at
	for _, s := range h.Stops {
		if s.Back >= from && s.At <= to {
			what := "SIGTERM"
			if s.Killed {
				what = "kill -9"
			}
			lines.addf(s.At, "  broker: %s", what)
			lines.addf(s.Back, "  broker: serves again")
		}
	}
	lines.sort()
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "    %10s  %s\n", at(l.at), l.text)
	}
	return out.String()
}

// lines are what happened, each at its instant.
type lines []line

type line struct {
	at   time.Duration
	text string
}

func (l *lines) addf(at time.Duration, format string, args ...any) {
	*l = append(*l, line{at, fmt.Sprintf(format, args...)})
}

func (l *lines) sort() {
	slices.SortStableFunc(*l, func(a, b line) int { return cmp.Compare(a.at, b.at) })
}

// tell adds what happened to an operation.
func (l *lines) tell(s *story) {
	for i := range s.asks {
		a := &s.asks[i]
		who := "ask " + short(a.Trace)
		other := ""
		if a.Other {
			other = ", another payload"
		}
		l.addf(a.Start, "%s: %s /%s, id %t, deadline %s%s%s", who, s.Route.Method, s.Route.Name, s.Identified, a.Deadline, cancelled(a.CancelAfter), other)
		if a.Code == history.OK {
			l.addf(a.End, "%s: %s, effect %s, %s, next %s, status %d, sends %d, replayed %t, %q: %s", who, a.Outcome, a.Effect, a.Reason, a.Next,
				a.Status, a.Sends, a.Replayed, a.Body, a.Detail)
		} else {
			l.addf(a.End, "%s: error %s, nothing sent: %t: %s", who, a.Code, a.NothingSent, a.Detail)
		}
	}
	for _, r := range s.readings {
		l.addf(r.End, "GetOperation, asked at %s: %s %s, outcome %s, effect %s, status %d, %d attempts", at(r.Start), r.Code, r.State, r.Outcome,
			r.Effect, r.Status, r.Attempts)
	}
	for _, x := range s.arrivals {
		who := "  upstream: the request of ask " + short(x.Trace)
		l.addf(x.At, "%s arrives, key %q: %s", who, x.Key, x.Script)
		if x.Committed > 0 {
			l.addf(x.Committed, "%s is COMMITTED", who)
		}
		l.addf(x.End, "%s is over, answered with %d", who, x.Status)
	}
}

// short is enough of a trace to tell it from the others of an operation.
func short(trace string) string { return trace[max(0, len(trace)-4):] }

func cancelled(after time.Duration) string {
	if after == 0 {
		return ""
	}
	return ", gone after " + at(after)
}

// at is an instant of the history, short.
func at(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
