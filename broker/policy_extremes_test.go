package broker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	sallyportv1 "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// extremes are the ends of what a field of that kind can hold, as written in a file.
func extremes(fd protoreflect.FieldDescriptor) []string {
	switch fd.Kind() {
	case protoreflect.DoubleKind:
		return []string{"0", "5e-324", "0.0005", "1e300"}
	case protoreflect.Uint32Kind:
		return []string{"0", "1", "599", "4294967295"}
	case protoreflect.Uint64Kind:
		return []string{"0", "1", "18446744073709551615"}
	case protoreflect.MessageKind:
		if fd.Message().FullName() == "google.protobuf.Duration" {
			return []string{"0s", "1ns", "2562047h"}
		}
	}
	return nil
}

// settings calls f for each number and duration of the message, with its path and a text that opens the blocks around it.
func settings(md protoreflect.MessageDescriptor, before, after string, f func(fd protoreflect.FieldDescriptor, before, after string)) {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		switch {
		case fd.IsMap():
		case extremes(fd) != nil && fd.IsList():
			f(fd, before+string(fd.Name())+": [", "]"+after)
		case extremes(fd) != nil:
			f(fd, before+string(fd.Name())+": ", after)
		case fd.Kind() == protoreflect.MessageKind && !fd.IsList() && strings.HasPrefix(string(fd.Message().FullName()), "sallyport."):
			settings(fd.Message(), before+string(fd.Name())+": {", "}"+after, f)
		}
	}
}

// TestPolicyThatIsTakenRulesCalls: what may stand in a file can be in force. Each number and each duration at its ends makes a policy
// that is refused when it is read, or under which calls end in time; none makes every call panic.
func TestPolicyThatIsTakenRulesCalls(t *testing.T) {
	taken := 0
	settings((&sallyportv1.Policy{}).ProtoReflect().Descriptor(), "", "", func(fd protoreflect.FieldDescriptor, before, after string) {
		for _, value := range extremes(fd) {
			line := before + value + after
			rules, err := parsePolicies("file", []byte(inPolicy(line)))
			if err != nil {
				continue
			}
			taken++
			t.Run(line, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { ruled(t, rules) }) })
		}
	})
	if taken < 150 {
		t.Errorf("%d policies were taken", taken)
	}
}

// ruled makes a few calls under the rules: answers of every sort, and one that comes late.
func ruled(t *testing.T, rules []policy.Rule) {
	t.Helper()
	table, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	codes := []int{200, 503, 429, 302, 503, 503, 503, 503, 503}
	var sent atomic.Uint32
	sender := senderFunc(func(ctx context.Context, _ *call.Call) call.Result {
		code := codes[int(sent.Add(1))%len(codes)]
		if code == 200 {
			late := time.NewTimer(time.Second)
			defer late.Stop()
			select {
			case <-late.C:
			case <-ctx.Done():
				return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureCancelled}
			}
		}
		r := answered(code)
		r.Response.Headers = []call.Header{{Name: "Retry-After", Value: "1"}, {Name: "Location", Value: "/next"}}
		return r
	})
	e := engine.New(sender, unwatched{}, guard.New(guard.Config{}), engine.NewOrigins())
	for i := range 6 {
		target, err := call.ParseTarget("https://api.example.com/")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		c := &call.Call{Method: "GET", Target: target, Caller: fmt.Sprint("caller", i), Arrived: now, Deadline: now.Add(5 * time.Second)}
		f := e.Do(t.Context(), c, table.Match(c))
		if f.Outcome == call.OutcomeUnspecified || f.RetryAfter < 0 || time.Since(now) > 6*time.Second {
			t.Errorf("call %d: %s after %s, retry after %s", i, f.Outcome, time.Since(now), f.RetryAfter)
		}
	}
}

// unwatched is nobody's telemetry.
type unwatched struct{}

func (unwatched) AttemptStarted(context.Context, *call.Call, *call.Attempt)  {}
func (unwatched) AttemptEnded(context.Context, *call.Attempt, engine.Shared) {}
func (unwatched) Noticed(context.Context, time.Time, engine.Notice)          {}
