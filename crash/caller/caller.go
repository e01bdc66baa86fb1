// Package caller asks a broker as its documents say, under operation ids where there are any: again after an error that proves nothing,
// again where next says so, and now and then where it does not. It writes down all it is told.
package caller

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/client"
	"github.com/sallyport/sallyport/crash/history"
	"github.com/sallyport/sallyport/crash/upstream"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// Caller asks one broker about one upstream. It is safe for concurrent use.
type Caller struct {
	conn     *grpc.ClientConn
	calls    pb.CallServiceClient
	deferred pb.DeferredServiceClient
	upstream string
	number   uint64
	history  *history.Recorder
	traces   atomic.Uint64
}

// Dial makes one for the broker and the upstream at these addresses. Nothing on the way sends anything again, and a broker that is back
// is found soon.
//
// The number tells callers of one history apart.
func Dial(broker, upstream string, number uint64, h *history.Recorder) (*Caller, error) {
	conn, err := grpc.NewClient(broker,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", broker, err)
	}
	return &Caller{conn: conn, calls: pb.NewCallServiceClient(conn), deferred: pb.NewDeferredServiceClient(conn), upstream: upstream, number: number, history: h}, nil
}

// Close ends it.
func (c *Caller) Close() error { return c.conn.Close() } //nolint:wrapcheck // says all there is to say

// patience is how one ask differs from another.
type patience struct {
	other       bool
	deadline    time.Duration
	cancelAfter time.Duration // 0: never
	final       bool
}

// ask makes one call and writes it down.
func (c *Caller) ask(ctx context.Context, o history.Operation, p patience) history.Ask {
	ctx, cancel := context.WithTimeout(ctx, p.deadline)
	defer cancel()
	if p.cancelAfter > 0 {
		timer := time.AfterFunc(p.cancelAfter, cancel)
		defer timer.Stop()
	}
	a := history.Ask{
		Operation: o.Name, Trace: c.trace(), Other: p.other, Final: p.final, Start: c.history.At(time.Now()), Deadline: p.deadline, CancelAfter: p.cancelAfter,
	}
	req := &pb.CallRequest{Request: &pb.HttpRequest{
		Method: o.Route.Method, Url: "http://" + c.upstream + "/" + o.Route.Name + "/" + o.Name, Body: upstream.Body(p.other, o.Padding),
	}}
	if o.Identified {
		req.OperationId = o.Name
	}
	// The span is the caller's own, which nobody reads: that of the attempt goes upstream, in the same trace.
	resp, err := c.calls.Call(metadata.AppendToOutgoingContext(ctx, "traceparent", "00-"+a.Trace+"-"+a.Trace[16:]+"-00"), req)
	a.End, a.Told = c.history.At(time.Now()), told(resp, err)
	c.history.Ask(a)
	return a
}

// Read asks what is known of an operation and writes it down.
func (c *Caller) Read(ctx context.Context, o history.Operation, final bool) history.Reading {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r := history.Reading{Operation: o.Name, Start: c.history.At(time.Now()), Final: final}
	resp, err := c.calls.GetOperation(ctx, &pb.GetOperationRequest{OperationId: o.Name})
	r.End, r.Code = c.history.At(time.Now()), code(status.Code(err))
	r.State = word(resp.GetState().String(), "OPERATION_STATE_")
	r.Outcome = word(resp.GetOutcome().String(), "OUTCOME_")
	r.Effect = word(resp.GetEffect().String(), "EFFECT_")
	r.Reason = word(resp.GetReason().String(), "REASON_")
	r.Status, r.Body, r.Attempts = int(resp.GetResponse().GetStatus()), string(resp.GetResponse().GetBody()), len(resp.GetAttempts())
	c.history.Reading(r)
	return r
}

// Last asks for an operation when all is calm and everything late has had its time: what is known before, one more ask, what is known
// after.
func (c *Caller) Last(ctx context.Context, o history.Operation) {
	const limit = 5 * time.Second
	if !o.Identified {
		return
	}
	c.Read(ctx, o, true)
	c.ask(ctx, o, patience{deadline: limit, final: true})
	c.Read(ctx, o, true)
}

// trace numbers the asks.
func (c *Caller) trace() string {
	var id [16]byte
	const callers = 100 // fewer than that in one history
	n := c.traces.Add(1)*callers + c.number
	binary.BigEndian.PutUint64(id[:8], n)
	binary.BigEndian.PutUint64(id[8:], n) // a span id is never zero
	return hex.EncodeToString(id[:])
}

func told(resp *pb.CallResponse, err error) history.Told {
	if err != nil {
		refusal := client.Explain(err)
		return history.Told{Code: code(refusal.Code), NothingSent: refusal.NothingSent, Reason: refusal.Reason, Detail: refusal.Message}
	}
	return history.Told{
		Code:    code(codes.OK),
		Outcome: word(resp.GetOutcome().String(), "OUTCOME_"), Effect: word(resp.GetEffect().String(), "EFFECT_"),
		Reason: word(resp.GetReason().String(), "REASON_"), Next: word(resp.GetNext().String(), "NEXT_STEP_"),
		Status: int(resp.GetResponse().GetStatus()), Body: string(resp.GetResponse().GetBody()), Detail: resp.GetDetail(),
		Replayed: resp.GetReplayed(), Sends: int(resp.GetSends()), Attempts: len(resp.GetAttempts()),
	}
}

// word is a value without the prefix of its enum.
func word(value, prefix string) string { return strings.TrimPrefix(value, prefix) }

// code is a gRPC code as the contract writes it.
func code(c codes.Code) string { return history.Code(c.String()) }
