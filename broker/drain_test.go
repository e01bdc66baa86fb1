package broker

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// inFlight is a broker with a call that waits for its upstream.
type inFlight struct {
	*running
	proceed chan struct{} // closed by the test: the upstream answers
	called  chan ended    // receives the end of the call; never closed
	drained chan struct{} // closed when Drain has returned
	stop    context.CancelFunc
}

type ended struct {
	resp *pb.CallResponse
	err  error
}

// drainWithACall begins to drain a broker while a call is in flight.
func drainWithACall(t *testing.T) *inFlight {
	t.Helper()
	f := &inFlight{proceed: make(chan struct{}), called: make(chan ended, 1), drained: make(chan struct{})}
	entered := make(chan struct{})
	f.running = start(t, setup{sender: senderFunc(func(ctx context.Context, _ *call.Call) call.Result {
		close(entered)
		select {
		case <-f.proceed:
			return answered(200)
		case <-ctx.Done():
			return call.Result{Evidence: call.EvidenceSentNoResponse, Failure: call.FailureCancelled, Detail: "cancelled"}
		}
	})})
	go func() {
		resp, err := f.calls.Call(within(t), post("http://127.0.0.1/", ""))
		f.called <- ended{resp, err}
	}()
	<-entered
	ctx, stop := context.WithCancel(within(t))
	f.stop = stop
	t.Cleanup(stop)
	watching, unwatch := context.WithCancel(within(t))
	defer unwatch()
	watch, err := healthpb.NewHealthClient(f.conn).Watch(watching, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := watch.Recv(); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health before the drain: %v, %v", resp, err)
	}
	go func() {
		defer close(f.drained)
		f.server.Drain(ctx)
	}()
	if resp, err := watch.Recv(); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("health in the drain: %v, %v", resp, err)
	}
	for !f.server.Draining() && watching.Err() == nil { // health comes first, the gate right after it
		runtime.Gosched()
	}
	return f
}

// over waits for a channel, and fails the test rather than hang.
func over[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-within(t).Done():
		t.Fatalf("%s does not end", what)
	}
	return v
}

func TestDrainLetsCallsFinishAndRefusesNewOnes(t *testing.T) {
	f := drainWithACall(t)
	unary, _ := everyRPC()
	for _, m := range append(unary, "/sallyport.v1.NothingService/Call") {
		if err := ask(within(t), f.conn, m); status.Code(err) != codes.Unavailable || unsent(err) != "DRAINING" {
			t.Errorf("%s: %v, unsent reason %q", m, err, unsent(err))
		}
	}
	if err := askStream(within(t), f.conn, pb.CallService_StreamCall_FullMethodName); status.Code(err) != codes.Unavailable || unsent(err) != "DRAINING" {
		t.Errorf("StreamCall: %v", err)
	}
	openToAll(t, f.conn, healthpb.HealthCheckResponse_NOT_SERVING)
	select {
	case <-f.drained:
		t.Error("drained with a call in flight")
	default:
	}
	close(f.proceed)
	if got := over(t, "the call", f.called); got.err != nil || got.resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Errorf("the call in flight: %v", got)
	}
	over(t, "the drain", f.drained)
}

// Told to end at once, the broker still owes every caller the truth: what was sent has an unknown effect.
func TestDrainThatIsCutShortStillAnswers(t *testing.T) {
	f := drainWithACall(t)
	f.stop()
	got := over(t, "the call", f.called)
	if got.err != nil || got.resp.GetOutcome() != pb.Outcome_OUTCOME_CANCELLED || got.resp.GetEffect() != pb.Effect_EFFECT_UNKNOWN ||
		got.resp.GetNext() != pb.NextStep_NEXT_STEP_RECONCILE || got.resp.GetDetail() != "the broker was ended before the call was over" {
		t.Errorf("the call in flight: %v", got)
	}
	over(t, "the drain", f.drained)
}

// The reply is more than gRPC takes of a stream at once, and the context of its RPC has ended.
func TestLargeAnswerOfACallThatWasSentAwayArrives(t *testing.T) {
	entered, body := make(chan struct{}), make([]byte, 4*streamWindow)
	r := start(t, setup{sender: senderFunc(func(ctx context.Context, _ *call.Call) call.Result {
		close(entered)
		<-ctx.Done()
		result := answered(200)
		result.Response.Body = body
		return result
	})})
	type reply struct {
		resp *pb.CallResponse
		err  error
	}
	called := make(chan reply, 1) // receives one value, never closed
	go func() {
		resp, err := r.calls.Call(within(t), get("http://127.0.0.1/"))
		called <- reply{resp, err}
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.server.Drain(ctx)
	got := <-called
	if got.err != nil || got.resp.GetOutcome() != pb.Outcome_OUTCOME_CANCELLED || len(got.resp.GetResponse().GetBody()) != len(body) {
		t.Errorf("outcome %v with a body of %d bytes, error %v", got.resp.GetOutcome(), len(got.resp.GetResponse().GetBody()), got.err)
	}
}

// A call that does not hear is cut after a second; its caller learns that nothing is known.
func TestCallThatDoesNotEndIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, proceed := make(chan struct{}), make(chan struct{})
		r := start(t, setup{memory: true, sender: senderFunc(func(context.Context, *call.Call) call.Result {
			close(entered)
			<-proceed
			return answered(200)
		})})
		called := make(chan error, 1)
		go func() {
			_, err := r.calls.Call(t.Context(), get("http://127.0.0.1/"))
			called <- err
		}()
		<-entered
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin, drained := time.Now(), make(chan struct{})
		go func() {
			defer close(drained)
			r.server.Drain(ctx)
		}()
		if err := <-called; status.Code(err) != codes.Unavailable || unsent(err) != "" || time.Since(begin) != lastWords {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		close(proceed)
		<-drained
	})
}

// What is on its way when a drain begins hears so at once, and can go to another broker; it does not wait for the calls in flight.
func TestMessagesOnTheirWayHearOfADrainAtOnce(t *testing.T) {
	entered, proceed := make(chan struct{}, 1), make(chan struct{})
	r := onSockets(t, setup{sender: gated(entered, proceed)})
	called := make(chan error, 1) // receives one value, never closed
	go func() {
		_, err := r.calls.Call(within(t), get("http://127.0.0.1/hold"))
		called <- err
	}()
	over(t, "the way to the sender", entered)
	c := r.raw(t)
	c.half(1, pb.CallService_Call_FullMethodName, large)
	c.open(3, healthpb.Health_Check_FullMethodName, 0, false)
	c.taken(t)
	drained := make(chan struct{}) // closed when Drain has returned
	go func() {
		defer close(drained)
		r.server.Drain(within(t))
	}()
	if err := c.answer(1); status.Code(err) != codes.Unavailable || unsent(err) != "DRAINING" {
		t.Errorf("%v, unsent reason %q", err, unsent(err))
	}
	c.write(func() error { return c.framer.WriteData(3, true, make([]byte, 5)) })
	if err := c.answer(3); err != nil {
		t.Errorf("health in the drain: %v", err)
	}
	close(proceed)
	if err := over(t, "the call", called); err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	over(t, "the drain", drained)
}

// A load balancer that watches the health of the broker never hangs up by itself.
func TestWatcherDoesNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, setup{memory: true})
		watch, err := healthpb.NewHealthClient(r.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		r.server.Drain(t.Context())
		if took := time.Since(begin); took != lastReplies {
			t.Errorf("the drain took %v, want %v", took, lastReplies)
		}
	})
}

func TestIdleServerDrainsAtOnce(t *testing.T) {
	r := start(t, setup{})
	if r.server.Draining() {
		t.Error("draining before it was told to")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.server.Drain(ctx)
	if ctx.Err() != nil || !r.server.Draining() {
		t.Errorf("draining %v, %v", r.server.Draining(), ctx.Err())
	}
	r.server.Drain(ctx) // a second time changes nothing
}

// A broker that is told to end while it starts ends well.
func TestDrainBeforeServeIsNoFailure(t *testing.T) {
	r := start(t, setup{})
	r.server.Drain(t.Context())
	l, _ := listen(t, false)
	if err := r.server.Serve(l); err != nil {
		t.Errorf("serve: %v", err)
	}
	if c, err := l.Accept(); err == nil {
		_ = c.Close()
		t.Error("the listener is still open")
	}
}
