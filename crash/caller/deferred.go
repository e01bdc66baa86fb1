package caller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/crash/history"
	"github.com/sallyport/sallyport/crash/upstream"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

const (
	// retries are enough for a call that is killed many times: an attempt that a crash cuts is not counted.
	retries   = 20
	firstWait = 10 * time.Millisecond
	// answerWithin bounds one RPC about deferred calls.
	answerWithin = 3 * time.Second
	// pauseAgain is the pause after one that failed.
	pauseAgain = 10 * time.Millisecond
)

// Submit submits a deferred call to an upstream until it is acknowledged, and gives the name that it has, "" when ctx ended before.
// Due is when its first attempt may begin; zero: at once.
func (c *Caller) Submit(ctx context.Context, d *history.Deferred, up string, due time.Time) string {
	req := &pb.SubmitDeferredCallRequest{
		Call: &pb.CallRequest{OperationId: d.Name, Request: &pb.HttpRequest{
			Method: d.Mode.Route.Method, Url: "http://" + up + "/" + d.Mode.Route.Name + "/" + d.Name,
		}},
		MaxRetries: proto.Uint32(retries), Backoff: durationpb.New(firstWait),
	}
	if d.Mode.Route.Method != "GET" {
		req.Call.Request.Body = upstream.Body(false, 0)
	}
	if d.Mode.Delivery != "" {
		req.Delivery = pb.DeliveryMode(pb.DeliveryMode_value["DELIVERY_MODE_"+d.Mode.Delivery])
	}
	if !due.IsZero() {
		req.NotBeforeTime = timestamppb.New(due)
	}
	for ctx.Err() == nil {
		a := history.Ack{Operation: d.Name, Start: c.history.At(time.Now())}
		within, cancel := context.WithTimeout(ctx, answerWithin)
		resp, err := c.deferred.SubmitDeferredCall(within, req)
		cancel()
		a.End, a.Code, a.ID = c.history.At(time.Now()), code(status.Code(err)), resp.GetDeferredCall().GetName()
		c.history.Ack(a)
		if err == nil {
			return a.ID
		}
		wait(ctx, pauseAgain)
	}
	return ""
}

// Cancel asks for the end of a deferred call, once.
func (c *Caller) Cancel(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_, _ = c.deferred.CancelDeferredCall(ctx, &pb.CancelDeferredCallRequest{Name: name}) // what came of it is told by the next look
}

// Look reads a deferred call and writes down what is told.
func (c *Caller) Look(ctx context.Context, operation, name string, final bool) history.Sight {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	s := history.Sight{Operation: operation, Start: c.history.At(time.Now()), Final: final}
	resp, err := c.deferred.GetDeferredCall(ctx, &pb.GetDeferredCallRequest{Name: name})
	d := resp.GetDeferredCall()
	s.End, s.Code = c.history.At(time.Now()), code(status.Code(err))
	s.State, s.Failure = state(d.GetState()), word(d.GetFailure().String(), "DEFERRED_FAILURE_")
	s.Effect, s.Reason = word(d.GetEffect().String(), "EFFECT_"), word(d.GetReason().String(), "REASON_")
	s.PossibleDuplicate, s.Status, s.Body = d.GetPossibleDuplicate(), int(d.GetResponse().GetStatus()), string(d.GetResponse().GetBody())
	for _, a := range d.GetAttempts() {
		s.Attempts = append(s.Attempts, history.Attempt{
			Sent:     a.GetEvidence() != pb.Evidence_EVIDENCE_NOT_SENT && a.GetEvidence() != pb.Evidence_EVIDENCE_REFUSED,
			Orphaned: strings.HasPrefix(a.GetDetail(), "the broker ended"), Status: int(a.GetStatus()),
		})
	}
	c.history.Sight(s)
	return s
}

// Await looks until it has come to one of these states, and gives the state; "" when ctx ended before.
func (c *Caller) Await(ctx context.Context, operation, name string, states ...string) string {
	for ctx.Err() == nil {
		if s := c.Look(ctx, operation, name, false); s.Code == history.OK && slices.Contains(states, s.State) {
			return s.State
		}
		wait(ctx, pauseAgain)
	}
	return ""
}

// Counts are how many deferred calls there are, by state.
func (c *Caller) Counts(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	resp, err := c.deferred.ListDeferredCalls(ctx, &pb.ListDeferredCallsRequest{PageSize: 1})
	return counts(resp), err
}

// List reads the whole list, in pages, and writes it down.
func (c *Caller) List(ctx context.Context) error {
	const page = 100
	l := history.Listing{States: map[string]string{}}
	req := &pb.ListDeferredCallsRequest{PageSize: page}
	for {
		resp, err := c.deferred.ListDeferredCalls(ctx, req)
		if err != nil {
			return fmt.Errorf("the list of deferred calls: %w", err)
		}
		for _, d := range resp.GetDeferredCalls() {
			if _, twice := l.States[d.GetOperationId()]; twice {
				return fmt.Errorf("%s is listed twice", d.GetOperationId())
			}
			l.States[d.GetOperationId()] = state(d.GetState())
		}
		l.Counts = counts(resp)
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			c.history.Listing(l)
			return nil
		}
	}
}

func counts(resp *pb.ListDeferredCallsResponse) map[string]int {
	out := map[string]int{}
	for name, n := range resp.GetCounts() {
		out[word(name, "DEFERRED_STATE_")] = int(n) //nolint:gosec // few
	}
	return out
}

func state(s pb.DeferredState) string { return word(s.String(), "DEFERRED_STATE_") }

// Ready asks until the broker answers.
func (c *Caller) Ready(ctx context.Context) error {
	for {
		if _, err := c.Counts(ctx); err == nil || status.Code(err) == codes.Unimplemented {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the broker does not answer: %w", ctx.Err())
		}
		wait(ctx, pauseAgain)
	}
}
