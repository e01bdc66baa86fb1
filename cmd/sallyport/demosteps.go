package main

import (
	"context"
	"fmt"
	"net"
	"time"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// demoStep is one scene of the demo: what it shows, and its calls in order.
type demoStep struct {
	title, about string
	// late: the upstream of this step opens its port only after the first attempt was refused.
	late  bool
	calls []demoCall
}

// stormCallers is how many make the same call at once in the step of the budget.
const stormCallers = 10

// demoScripts is how the flaky upstream behaves, path by path.
func demoScripts() map[string][]reply {
	busy, ok := 503, 200
	return map[string][]reply{
		"/stock":     {{status: busy, body: "busy"}, {status: ok, body: "12 in stock"}},
		"/prices":    {{status: busy, retryAfter: "1", body: "in a second, please"}, {status: ok, body: "9.90"}},
		"/report":    {{status: busy, after: time.Second, body: "busy"}},
		"/orders":    {{status: 201, body: "order made"}},
		"/transfers": {{}},
		"/payments":  {{}, {status: 201, body: "paid once"}},
		"/weather":   {{status: busy, body: "down"}, {status: busy, body: "down"}, {status: busy, body: "down"}, {status: ok, body: "sunny"}},
		"/news":      {{status: busy, together: stormCallers, body: "busy"}},
		"/quotes":    {{status: ok, after: 2 * time.Second, body: "1.07, late"}, {status: ok, body: "1.07"}},
		"/tickets":   {{status: busy, retryAfter: "2", body: "in two seconds, please"}, {status: ok, body: "two left"}},
	}
}

func demoSteps() []demoStep {
	const (
		success  = pb.Outcome_OUTCOME_SUCCESS
		answered = pb.Effect_EFFECT_ANSWERED
		done     = pb.NextStep_NEXT_STEP_DONE
	)
	return []demoStep{
		{
			title: "A retry",
			about: "The upstream is busy once and answers 503. A GET may be repeated, so the broker waits and tries again.",
			calls: []demoCall{{
				method: "GET", path: "/stock", timeout: 3 * time.Second,
				outcome: success, effect: answered, next: done, requests: 2,
			}},
		},
		{
			title: "Retry-After",
			about: "The upstream answers 503 and asks for one second. The broker waits that long, although its own backoff is shorter.",
			calls: []demoCall{{
				method: "GET", path: "/prices", timeout: 5 * time.Second,
				outcome: success, effect: answered, next: done, requests: 2,
			}},
		},
		{
			title: "A deadline that cannot hold another attempt",
			about: "The caller allows 1.5s and the upstream takes 1s to say that it is busy. Another attempt would not fit, so the " +
				"call ends at once with a typed answer instead of running into the deadline.",
			calls: []demoCall{{
				method: "GET", path: "/report", timeout: 1500 * time.Millisecond,
				outcome: pb.Outcome_OUTCOME_DEADLINE_EXCEEDED, effect: answered, next: pb.NextStep_NEXT_STEP_RETRY, requests: 1,
			}},
		},
		{
			title: "A POST that is repeated because nothing was sent",
			about: "Nobody listens on the upstream's port yet, it opens a moment later. A refused connection proves that not one " +
				"byte was sent, and so even a POST without a key may be tried again.",
			late: true,
			calls: []demoCall{{
				method: "POST", path: "/orders", timeout: 5 * time.Second,
				outcome: success, effect: answered, next: done, requests: 1,
			}},
		},
		{
			title: "A POST whose answer is lost",
			about: "The upstream takes the request and the connection breaks before the answer. The transfer may have been made: " +
				"a repeat could make a second one. The broker does not guess, it says UNKNOWN.",
			calls: []demoCall{{
				method: "POST", path: "/transfers", timeout: 3 * time.Second,
				outcome: pb.Outcome_OUTCOME_UNKNOWN, effect: pb.Effect_EFFECT_UNKNOWN, next: pb.NextStep_NEXT_STEP_RECONCILE, requests: 1,
			}},
		},
		{
			title: "The same with an idempotency contract",
			about: "Again the answer is lost, but the policy knows that this upstream understands Idempotency-Key. The broker repeats " +
				"under one and the same key, and the upstream pays once.",
			calls: []demoCall{{
				method: "POST", path: "/payments", timeout: 3 * time.Second, operationID: "payment-4711",
				outcome: success, effect: answered, next: done, requests: 2, keys: 1,
			}},
		},
		demoBreaker(),
		demoBudget(),
		demoHedge(),
		demoHold(),
	}
}

// latePort finds a port that nobody listens on.
func latePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("port: %w", err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", fmt.Errorf("port: %w", err)
	}
	return addr, nil
}
