package tracing_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/tracing"
)

const (
	callerTrace  = "0af7651916cd43dd8448eb211c80319c"
	callerSpan   = "b7ad6b7169203331"
	sampled      = "00-" + callerTrace + "-" + callerSpan + "-01"
	unsampled    = "00-" + callerTrace + "-" + callerSpan + "-00"
	policyInTest = "policies/default@1"
)

// senderFunc is an upstream without HTTP.
type senderFunc func(ctx context.Context, a call.Attempt) call.Result

func (f senderFunc) Send(ctx context.Context, _ *call.Call, _ *policy.Effective, a call.Attempt) call.Result {
	return f(ctx, a)
}

// giving is a sender that gives these results, the last one again and again.
func giving(results ...call.Result) engine.Sender {
	sent := 0
	return senderFunc(func(context.Context, call.Attempt) call.Result {
		sent++
		return results[min(sent, len(results))-1]
	})
}

func answered(status int) call.Result {
	return call.Result{
		Evidence: call.EvidenceAnswered, Status: status, Protocol: "HTTP/1.1", RemoteAddress: "192.0.2.7:443",
		Response: &call.Response{Status: status, Protocol: "HTTP/1.1"},
	}
}

// overHTTP is the real thing, which may go to loopback.
func overHTTP(t *testing.T, g *guard.Guard) engine.Sender {
	t.Helper()
	transport := egress.New(egress.Config{Guard: g, UserAgent: "sallyport/test"})
	t.Cleanup(transport.Close)
	return transport
}

// open lets calls go to loopback, and to addresses of the documentation.
func open() *guard.Guard {
	return guard.New(guard.Config{Dev: true, Special: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}})
}

func asked(t testing.TB, method, url string) *call.Call {
	t.Helper()
	target, err := call.ParseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return &call.Call{Method: method, Target: target, Caller: "checkout", Arrived: now, Deadline: now.Add(10 * time.Second)}
}

// rules are what every call of these tests has: short and exact waits.
func rules(t testing.TB, c *call.Call) *policy.Effective {
	t.Helper()
	r := policy.Rule{Name: policy.DefaultName, Revision: 1, File: true}
	r.Retry.Backoff = policy.BackoffRule{Base: new(3 * time.Millisecond), Jitter: new(backoff.JitterNone)}
	r.Egress.AnyPort = new(true)
	table, err := policy.Compile([]policy.Rule{r}, policy.Options{Generations: new(atomic.Uint64)})
	if err != nil {
		t.Fatal(err)
	}
	return table.Match(c)
}

// do makes a call as the service does.
func do(t testing.TB, o *tracing.Observer, s engine.Sender, g *guard.Guard, c *call.Call, traceparent string) call.Final {
	t.Helper()
	ctx, span := o.Begin(t.Context(), traceparent, "")
	final := engine.New(s, o, g, engine.NewOrigins()).Do(ctx, c, rules(t, c))
	span.End(c, &final, policyInTest)
	return final
}

// upstream answers with these statuses in turn, and keeps the trace contexts and the header fields it saw.
type upstream struct {
	*httptest.Server
	traceparents chan []string    // of each request; never closed
	headers      chan http.Header // of each request; never closed
}

func startUpstream(t *testing.T, statuses ...int) *upstream {
	t.Helper()
	u := &upstream{traceparents: make(chan []string, 16), headers: make(chan http.Header, 16)}
	var n atomic.Int32
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.traceparents <- r.Header.Values("Traceparent")
		u.headers <- r.Header
		w.WriteHeader(statuses[min(int(n.Add(1)), len(statuses))-1])
	}))
	t.Cleanup(u.Close)
	return u
}
