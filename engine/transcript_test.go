package engine_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata with what the plan decides now")

// TestTranscripts plays every script of testdata against a Plan on a virtual clock. A script says what happens; the lines that
// begin with "->" are what the plan decides, and are compared word for word. Read a change of them like a change of the code.
//
//	policy  NAME=VALUE …            the effective policy, over the built-in default
//	call    METHOD NAME=VALUE …     takes the call at 0
//	shared  WHO SAYS …              what budget, breaker, slot or hold say when asked next; else they agree
//	TIME    WHAT …                  what happened at that time since the call was taken
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s: the plan decides\n%s", file, difference(string(want), got))
			}
		})
	}
}

// difference shows the first line that differs, with what stands before it.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return strings.Join(g[max(0, i-4):i], "\n") + "\nwant " + w[i] + "\ngot  " + g[i]
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// stage is where a script is played.
type stage struct {
	t     *testing.T
	p     *policy.Effective
	plan  *engine.Plan
	epoch time.Time
	rnd   float64
	// shared are answers of what is shared, in the order in which it will be asked.
	shared []engine.Event
	sent   uint32 // the number of the latest attempt
	asked  *call.Call
	// remember: what is told of the call under its operation id is written, too.
	remember bool
}

func play(t *testing.T, script string) string {
	t.Helper()
	s := &stage{t: t}
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "->") {
			continue
		}
		out.WriteString(line + "\n")
		for _, said := range s.line(line) {
			out.WriteString("        -> " + said + "\n")
		}
	}
	return out.String()
}

func (s *stage) line(line string) []string {
	text, _, _ := strings.Cut(line, "#")
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return nil
	case words[0] == "policy":
		s.setPolicy(words[1:])
		return nil
	case words[0] == "call":
		return s.call(words[1:])
	case words[0] == "shared":
		s.shared = append(s.shared, s.says(words[1:]))
		return nil
	}
	at, err := time.ParseDuration(words[0])
	s.must(err, line)
	return s.happens(at, words[1:], text)
}

func (s *stage) must(err error, line string) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%q: %v", line, err)
	}
}

func (s *stage) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	s.must(err, text)
	return d
}

func (s *stage) number(text string) uint32 {
	n, err := strconv.ParseUint(text, 10, 32)
	s.must(err, text)
	return uint32(n)
}

func (s *stage) statuses(text string) policy.StatusSet {
	var codes []uint32
	for code := range strings.SplitSeq(text, ",") {
		codes = append(codes, s.number(code))
	}
	return policy.Statuses(codes...)
}

// setPolicy begins a new policy from the built-in default.
func (s *stage) setPolicy(words []string) {
	p := *defaults(s.t)
	s.p, s.rnd = &p, 0.5
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "max_timeout":
			p.Deadline.MaxTimeout = s.duration(value)
		case "default_timeout":
			p.Deadline.DefaultTimeout = s.duration(value)
		case "margin":
			margin := s.duration(value)
			p.Deadline.CallerMargin = &margin
		case "min_attempt":
			p.Deadline.MinAttemptTime = s.duration(value)
		case "timeout":
			p.Attempt.Timeout = s.duration(value)
		case "widen_last":
			p.Attempt.WidenLast = true
		case "max_attempts":
			p.Retry.MaxAttempts = s.number(value)
		case "base":
			p.Retry.Backoff.Base = s.duration(value)
		case "throttle_base":
			p.Retry.Backoff.ThrottleBase = s.duration(value)
		case "multiplier":
			p.Retry.Backoff.Multiplier = float64(s.number(value))
		case "cap":
			p.Retry.Backoff.Cap = s.duration(value)
		case "jitter":
			p.Retry.Backoff.Jitter = map[string]backoff.Jitter{"none": backoff.JitterNone, "full": backoff.JitterFull}[value]
		case "rnd":
			r, err := strconv.ParseFloat(value, 64)
			s.must(err, value)
			s.rnd = r
		case "retry_after_max":
			p.Retry.RetryAfterMax = s.duration(value)
		case "statuses":
			p.Retry.Statuses = s.statuses(value)
		case "rejection_statuses":
			p.Retry.RejectionStatuses = s.statuses(value)
		case "success_after_unknown":
			p.Retry.SuccessAfterUnknown = s.statuses(value)
		case "success_statuses":
			p.Response.SuccessStatuses = s.statuses(value)
		case "trust_callers":
			p.Retry.TrustCallers = true
		case "verdict_header":
			p.Retry.VerdictHeader = policy.VerdictHeader{Enabled: true, Name: value, RetryValues: []string{"again"}, StopValues: []string{"never"}}
		case "contract":
			p.Idempotency.Enabled = true
		case "key_ttl":
			p.Idempotency.KeyTTL = s.duration(value)
		case "max_hops":
			p.Redirects.MaxHops = s.number(value)
		case "hedge":
			p.Hedge.Enabled, p.Hedge.Percentile, p.Hedge.Delay = true, 0, s.duration(value)
		case "max_hedges":
			p.Hedge.MaxHedges = s.number(value)
		case "hedge_methods":
			p.Hedge.Methods = strings.Split(value, ",")
		case "replay_bytes":
			p.Body.ReplayBytes = uint64(s.number(value))
		default:
			s.t.Fatalf("policy: no setting %q", name)
		}
	}
}

// call takes a call at 0 and starts its plan.
func (s *stage) call(words []string) []string {
	if s.p == nil {
		s.setPolicy(nil)
	}
	s.epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	target, err := call.ParseTarget("https://api.example.com/a/b")
	s.must(err, "target")
	c := &call.Call{Method: words[0], Target: target, Caller: "local", Arrived: s.epoch}
	gone := false
	s.remember = false
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "deadline":
			c.Deadline = s.epoch.Add(s.duration(value))
		case "reserve":
			c.Reserve = s.duration(value)
		case "attempt_timeout":
			c.AttemptTimeout = s.duration(value)
		case "max_attempts":
			c.MaxAttempts = s.number(value)
		case "body":
			c.Body = make([]byte, s.number(value))
		case "single_use":
			c.SingleUseBody = true
		case "id":
			c.OperationID = value
		case "never":
			c.RepeatSafety = call.RepeatSafetyNever
		case "idempotent":
			c.RepeatSafety = call.RepeatSafetyIdempotent
		case "to":
			c.Target.Address = netip.MustParseAddr(value)
			c.Target.Host = value
		case "port":
			c.Target.Port = uint16(s.number(value))
		case "before": // when an earlier call under the id sent first
			c.Before.FirstSend = s.epoch.Add(s.duration(value))
		case "unknown":
			c.Before.Unknown = true
		case "remember":
			s.remember = true
		case "gone":
			gone = true
		default:
			s.t.Fatalf("call: no field %q", name)
		}
	}
	s.asked = c
	s.plan = engine.NewPlan(c, s.p, guard.New(guard.Config{}), func() float64 { return s.rnd })
	return s.tell(s.epoch, engine.Event{Kind: engine.EventStarted, Gone: gone})
}

// happens tells the plan what happened.
func (s *stage) happens(at time.Duration, words []string, text string) []string {
	gone := words[len(words)-1] == "gone"
	switch words[0] {
	case "waited":
		return s.tell(s.epoch.Add(at), engine.Event{Kind: engine.EventWaited, Gone: gone})
	case "due":
		return s.tell(s.epoch.Add(at), engine.Event{Kind: engine.EventHedgeDue, Gone: gone})
	}
	number := s.sent
	if of := slices.Index(words, "of"); of > 0 { // the latest one unless it says so
		number = s.number(words[of+1])
	}
	result := s.result(words, text)
	return s.tell(s.epoch.Add(at), engine.Event{Kind: engine.EventResult, Gone: gone, Number: number, Result: &result})
}

// says is what something shared answers: "budget refuses 1s", "breaker refuses 1s", "slot refuses", "slot after 20ms",
// "breaker probes", "hold until 2s", "hold until 2s gone", "hedge refused", "agrees".
func (s *stage) says(words []string) engine.Event {
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "budget refuses":
		return engine.Event{Kind: engine.EventRefused, Reason: call.ReasonBudgetExhausted, RetryAfter: s.duration(words[2])}
	case "breaker refuses":
		return engine.Event{Kind: engine.EventRefused, Reason: call.ReasonBreakerOpen, RetryAfter: s.duration(words[2])}
	case "slot refuses":
		return engine.Event{Kind: engine.EventRefused, Reason: call.ReasonConcurrencyLimit}
	case "slot after":
		return engine.Event{Kind: engine.EventAdmitted, Queued: s.duration(words[2])}
	case "breaker probes":
		return engine.Event{Kind: engine.EventAdmitted, Probe: true}
	case "hold until":
		return engine.Event{Kind: engine.EventHeld, Until: s.epoch.Add(s.duration(words[2])), Gone: words[len(words)-1] == "gone"}
	case "hedge refused":
		return engine.Event{Kind: engine.EventHedgeRefused}
	case "agrees":
		return engine.Event{}
	}
	s.t.Fatalf("shared: nothing says %q", words)
	return engine.Event{}
}

// tell takes the plan on, answering for what is shared: it agrees at once, unless the script says otherwise.
func (s *stage) tell(now time.Time, ev engine.Event) []string {
	step := s.plan.Next(now, ev)
	agreed := map[engine.StepKind]engine.EventKind{
		engine.StepWithdraw: engine.EventGranted, engine.StepAdmit: engine.EventAdmitted, engine.StepHedge: engine.EventHedgeAdmitted,
	}
	for agreed[step.Kind] != 0 {
		answer := engine.Event{}
		if len(s.shared) > 0 {
			answer, s.shared = s.shared[0], s.shared[1:]
		}
		if answer.Kind == 0 {
			answer.Kind = agreed[step.Kind]
		}
		now = now.Add(answer.Queued)
		if s.p.Hedge.Enabled {
			answer.HedgeAt = now.Add(s.p.Hedge.Delay)
		}
		step = s.plan.Next(now, answer)
	}
	return s.said(step)
}

func (s *stage) result(words []string, text string) call.Result {
	unsent, sent := call.EvidenceNotSent, call.EvidenceSentNoResponse
	switch what := words[0]; what {
	case "answer":
		r := &call.Response{Status: int(s.number(words[1]))}
		for field := range strings.SplitSeq(between(text, "[", "]"), ";") {
			if name, value, ok := strings.Cut(field, ": "); ok {
				r.Headers = append(r.Headers, call.Header{Name: strings.TrimSpace(name), Value: strings.TrimSpace(value)})
			}
		}
		return call.Result{Evidence: call.EvidenceAnswered, Status: r.Status, Response: r}
	case "lost":
		return call.Result{Evidence: sent, Failure: call.FailureConnectionLost, Detail: "the connection was lost"}
	case "short":
		return call.Result{Evidence: call.EvidencePartialResponse, Failure: call.FailureConnectionLost, Status: 200, Detail: "the body was short"}
	case "stale":
		return call.Result{Evidence: unsent, Failure: call.FailureConnectionLost, Reused: true, Detail: "the idle connection was closed"}
	case "refused-stream":
		return call.Result{Evidence: call.EvidenceRefused, Failure: call.FailureConnectionLost, Detail: "refused"}
	case "connect":
		return call.Result{Evidence: unsent, Failure: call.FailureConnect, Detail: "connection refused"}
	case "connect-timeout":
		return call.Result{Evidence: unsent, Failure: call.FailureConnect, TimedOut: true, Detail: "no connection in time"}
	case "timeout":
		return call.Result{Evidence: sent, Failure: call.FailureAttemptTimeout, TimedOut: true, Detail: "no answer in time"}
	case "no-name":
		return call.Result{Evidence: unsent, Failure: call.FailureNameResolution, Terminal: true, Detail: "no such name"}
	case "resolver":
		return call.Result{Evidence: unsent, Failure: call.FailureNameResolution, Detail: "the name was not resolved"}
	case "certificate":
		return call.Result{Evidence: unsent, Failure: call.FailureTLS, Terminal: true, Detail: "the server's certificate was refused"}
	case "no-http2":
		return call.Result{Evidence: unsent, Failure: call.FailureProtocol, Terminal: true, Detail: "there is no HTTP/2"}
	case "handshake":
		return call.Result{Evidence: unsent, Failure: call.FailureTLS, Detail: "the TLS handshake failed"}
	case "malformed":
		return call.Result{Evidence: call.EvidencePartialResponse, Failure: call.FailureProtocol, Detail: "the answer is malformed"}
	case "superseded":
		return call.Result{Evidence: sent, Failure: call.FailureCancelled, Detail: "cancelled"}
	case "unsent":
		return call.Result{Evidence: unsent, Failure: call.FailureCancelled, Detail: "cancelled"}
	case "too-large":
		return call.Result{Evidence: call.EvidencePartialResponse, Failure: call.FailureResponseTooLarge, Status: 200, Detail: "the answer is too large"}
	case "denied":
		return call.Result{Evidence: unsent, Failure: call.FailureDenied, Detail: "egress rules forbid this destination"}
	case "cancelled":
		return call.Result{Evidence: sent, Failure: call.FailureCancelled, Detail: "the caller went away during the attempt"}
	default:
		s.t.Fatalf("nothing is called %q", what)
		return call.Result{}
	}
}

func between(text, open, end string) string {
	_, text, _ = strings.Cut(text, open)
	text, _, _ = strings.Cut(text, end)
	return text
}

// said writes a step for a person.
func (s *stage) said(step engine.Step) []string {
	switch step.Kind {
	case engine.StepListen:
		switch {
		case step.Cancel:
			return []string{"cancel the others"}
		case step.HedgeAt.IsZero():
			return []string{"listen"}
		}
		return []string{"listen, hedge at " + step.HedgeAt.Sub(s.epoch).String()}
	case engine.StepSend:
		a := step.Attempt
		s.sent = a.Number
		said := fmt.Sprintf("send %d %s at %s for %s", a.Number, a.Kind, a.Offset, a.Timeout)
		if c := s.plan.Request(); c != s.asked {
			said += fmt.Sprintf(" to %s %s", c.Method, c.Target.Scheme+"://"+c.Target.Authority+c.Target.RequestTarget)
		}
		if a.Waited != 0 {
			said += fmt.Sprintf(", waited %s", a.Waited)
		}
		if a.Queued != 0 {
			said += fmt.Sprintf(", queued %s", a.Queued)
		}
		if !step.HedgeAt.IsZero() {
			said += ", hedge at " + step.HedgeAt.Sub(s.epoch).String()
		}
		return []string{said}
	case engine.StepWait:
		return []string{"wait until " + step.Until.Sub(s.epoch).String()}
	}
	f := step.Final
	said := fmt.Sprintf("%s effect=%s reason=%s next=%s sends=%d retry_safe=%t elapsed=%s",
		f.Outcome, f.Effect, f.Reason, f.Next, f.Sends, f.RetrySafe, f.Elapsed)
	if f.RetryAfter != 0 {
		said += " retry_after=" + f.RetryAfter.String()
	}
	if f.Response != nil {
		said += fmt.Sprintf(" response=%d", f.Response.Status)
	}
	lines := []string{said}
	if f.Detail != "" {
		lines = append(lines, strconv.Quote(f.Detail))
	}
	for _, a := range f.Attempts {
		decided := fmt.Sprintf("after %d: %s %s", a.Number, a.Decision.Verdict, a.Decision.Reason)
		if a.Decision.Wait != 0 {
			decided += " wait " + a.Decision.Wait.String()
		}
		lines = append(lines, decided)
	}
	switch {
	case !s.remember:
		return lines
	case f.Told == call.Told{}:
		return []string{said, "the id is free"}
	}
	return []string{said, "kept: " + f.Told.Outcome.String() + " " + f.Told.Reason.String()}
}

// defaults is the built-in policy.
func defaults(t testing.TB) *policy.Effective {
	t.Helper()
	table, err := policy.Compile(nil, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table.Match(&call.Call{Method: "GET", Target: call.Target{Scheme: "https", Host: "api.example.com", Port: 443, Path: "/"}})
}
