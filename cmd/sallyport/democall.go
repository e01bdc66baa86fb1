package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// demoCall is one call, or several at once, and how it must end.
type demoCall struct {
	about        string // said before it, where a step has several
	method, path string
	timeout      time.Duration
	operationID  string
	maxAttempts  uint32
	callers      int  // that make it at the same time; 0: one
	patient      bool // it is made when the retry_after of the reply before has passed

	outcome  pb.Outcome
	effect   pb.Effect
	next     pb.NextStep
	reason   pb.Reason      // unspecified: not looked at
	kind     pb.AttemptKind // of the first attempt; unspecified: not looked at
	winner   pb.AttemptKind // of the attempt that won over another one; unspecified: not looked at
	requests int            // that the upstream saw of this call
	keys     int            // different ones among them
}

// play makes the call, for all its callers at once.
func (dc *demoCall) play(ctx context.Context, c *client.Client, target string) ([]*pb.CallResponse, error) {
	limited, cancel := context.WithTimeout(ctx, dc.timeout)
	defer cancel()
	replies := make([]*pb.CallResponse, max(1, dc.callers))
	var group errgroup.Group
	for i := range replies {
		group.Go(func() (err error) {
			replies[i], err = c.Call(limited, dc.request(target))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return replies, nil
}

func (dc *demoCall) request(target string) *pb.CallRequest {
	req := &pb.CallRequest{
		Request:     &pb.HttpRequest{Method: dc.method, Url: target + dc.path},
		OperationId: dc.operationID, MaxAttempts: dc.maxAttempts,
	}
	if dc.method == "POST" {
		req.Request.Body = []byte(`{"amount": 1}`)
	}
	return req
}

// show prints the longest of the replies and what the upstream saw, and checks all of them.
func (dc *demoCall) show(out io.Writer, target string, replies []*pb.CallResponse, requests, keys int) string {
	longest := replies[0]
	var sends uint32
	problem := ""
	for _, reply := range replies {
		sends += reply.GetSends()
		if len(reply.GetAttempts()) > len(longest.GetAttempts()) {
			longest = reply
		}
		if problem == "" {
			problem = dc.check(reply)
		}
	}
	sayf(out, "%s", timeline(dc.request(target), longest))
	if len(replies) > 1 {
		sayf(out, "This was one of %d callers; all ended %s.\n", len(replies), outcomeName(dc.outcome))
	}
	sayf(out, "%s\n", sawWords(requests, keys))
	if problem != "" {
		return problem
	}
	return dc.checkUpstream(requests, keys, sends)
}

// pause lets that time pass, and a little more: the broker's clock decides when it is over.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d + 10*time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// check says how the end of a call differs from what was told; "" when it does not.
func (dc *demoCall) check(resp *pb.CallResponse) string {
	switch {
	case resp.GetOutcome() != dc.outcome:
		return fmt.Sprintf("the outcome is %s, not %s", outcomeName(resp.GetOutcome()), outcomeName(dc.outcome))
	case resp.GetEffect() != dc.effect:
		return fmt.Sprintf("the effect is %s, not %s", effectName(resp.GetEffect()), effectName(dc.effect))
	case resp.GetNext() != dc.next:
		return fmt.Sprintf("the next step is %s, not %s", resp.GetNext(), dc.next)
	case dc.reason != pb.Reason_REASON_UNSPECIFIED && resp.GetReason() != dc.reason:
		return fmt.Sprintf("the reason is %s, not %s", resp.GetReason(), dc.reason)
	case dc.kind != pb.AttemptKind_ATTEMPT_KIND_UNSPECIFIED && (len(resp.GetAttempts()) == 0 || resp.GetAttempts()[0].GetKind() != dc.kind):
		return "the first attempt is no " + kindWord(dc.kind)
	case dc.winner != pb.AttemptKind_ATTEMPT_KIND_UNSPECIFIED && !won(resp, dc.winner):
		return "no " + kindWord(dc.winner) + " won over another attempt"
	}
	return ""
}

// won: an attempt of that kind ended the call, and one that ran beside it lost.
func won(resp *pb.CallResponse, kind pb.AttemptKind) bool {
	winner, loser := false, false
	for _, a := range resp.GetAttempts() {
		winner = winner || a.GetKind() == kind && a.GetDecision().GetReason() == pb.Reason_REASON_SUCCESS
		loser = loser || a.GetDecision().GetReason() == pb.Reason_REASON_SUPERSEDED
	}
	return winner && loser
}

// checkUpstream says how what the upstream saw differs from what was told and from what the broker counted.
func (dc *demoCall) checkUpstream(requests, keys int, sends uint32) string {
	switch {
	case requests != dc.requests || int(sends) != dc.requests:
		return fmt.Sprintf("the upstream saw %d requests and the broker counted %d sends, not %d", requests, sends, dc.requests)
	case keys != dc.keys:
		return fmt.Sprintf("the upstream saw %d different keys, not %d", keys, dc.keys)
	}
	return ""
}

func sawWords(requests, keys int) string {
	words := "The upstream saw " + plural(uint32(requests), "request") //nolint:gosec // a handful
	switch keys {
	case 0:
		return words + "."
	case 1:
		return words + ", all under one key."
	}
	return words + fmt.Sprintf(", under %d keys.", keys)
}
