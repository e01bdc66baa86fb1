// Command calls shows, call by call, what a client of a broker meets and how it decides.
//
//	go run ./clients/go/calls 127.0.0.1:7400 http://127.0.0.1:8000
//
// The first argument is the broker, the second the upstream of clients/upstream. It prints a report in JSON.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: calls BROKER UPSTREAM")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// entry is what is reported of one call.
type entry = map[string]any

func run(ctx context.Context, broker, upstream string) error {
	c, err := client.Dial(broker, client.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // every answer is here
	s := scenes{broker: c, upstream: upstream}
	report := map[string]entry{}
	for _, scene := range []struct {
		name string
		play func(context.Context) (entry, error)
	}{
		{"success", s.success},
		{"unknown", s.unknown},
		{"deadline", s.deadline},
		{"too_large", s.tooLarge},
		{"refused", s.refused},
		{"raw_value", s.rawValue},
		{"breaker_open", s.breakerOpen}, // the last one: it leaves the upstream refused for a while
	} {
		if report[scene.name], err = scene.play(ctx); err != nil {
			return fmt.Errorf("%s: %w", scene.name, err)
		}
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	if err := out.Encode(report); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

type scenes struct {
	broker   *client.Client
	upstream string
}

// call makes one call. The time allowed is the deadline of the context; there is no other.
func (s scenes) call(ctx context.Context, allowed time.Duration, req *pb.CallRequest) (*pb.CallResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, allowed)
	defer cancel()
	return s.broker.Call(ctx, req)
}

func (s scenes) request(method, target string) *pb.CallRequest {
	return &pb.CallRequest{Request: &pb.HttpRequest{Method: method, Url: s.upstream + target}}
}

// what is what a caller decides by, and what it decides.
func what(resp *pb.CallResponse) entry {
	advice := client.Decide(resp)
	return entry{
		"outcome": resp.GetOutcome().String(), "effect": resp.GetEffect().String(), "next": resp.GetNext().String(),
		"reason": resp.GetReason().String(), "sends": resp.GetSends(), "status": resp.GetResponse().GetStatus(),
		"advice": advice.Step.String(), "delay_known": advice.After > 0,
	}
}

func (s scenes) success(ctx context.Context) (entry, error) {
	resp, err := s.call(ctx, 30*time.Second, s.request("GET", "/ok"))
	if err != nil {
		return nil, err
	}
	report := what(resp)
	report["body"], report["attempts"] = string(resp.GetResponse().GetBody()), len(resp.GetAttempts())
	return report, nil
}

// unknown: the upstream takes a POST and never answers. Nobody knows what it did, and nothing may be sent again.
func (s scenes) unknown(ctx context.Context) (entry, error) {
	req := s.request("POST", "/lost")
	req.Request.Body = []byte("{}")
	resp, err := s.call(ctx, 30*time.Second, req)
	return what(resp), err
}

// deadline: this client sets the only time limit there is. The answer comes before it, here a second before it, and is typed.
func (s scenes) deadline(ctx context.Context) (entry, error) {
	const allowed = 3 * time.Second
	req := s.request("GET", "/slow")
	req.Reserve = durationpb.New(time.Second)
	began := time.Now()
	resp, err := s.call(ctx, allowed, req)
	report := what(resp)
	report["in_time"] = time.Since(began) < allowed
	return report, err
}

// tooLarge: an answer above the limit is not taken, and of what it did nothing is known. A GET may be asked again.
func (s scenes) tooLarge(ctx context.Context) (entry, error) {
	req := s.request("GET", "/large")
	req.MaxResponseBytes = 1024
	resp, err := s.call(ctx, 30*time.Second, req)
	return what(resp), err
}

// refused: what the broker does not take is an error that says for sure that nothing was sent.
func (s scenes) refused(ctx context.Context) (entry, error) {
	req := s.request("GET", "/ok#fragment")
	_, err := s.call(ctx, 30*time.Second, req)
	if err == nil {
		return nil, errors.New("it was taken")
	}
	refusal := client.Explain(err)
	var fields []string
	for _, v := range refusal.Violations {
		fields = append(fields, v.Field)
	}
	return entry{
		"code":   code.Code(int32(refusal.Code)).String(), //nolint:gosec // seventeen codes
		"reason": refusal.Reason, "nothing_sent": refusal.NothingSent, "fields": fields,
		"advice": client.DecideError(err, req, false).Step.String(),
	}, nil
}

// rawValue: a header value that is not UTF-8 goes and comes as bytes. The upstream sends it back.
func (s scenes) rawValue(ctx context.Context) (entry, error) {
	req := s.request("GET", "/echo")
	req.Request.Headers = []*pb.HttpHeader{{Name: "X-Echo", RawValue: []byte("caf\xe9")}}
	resp, err := s.call(ctx, 30*time.Second, req)
	report := what(resp)
	var values [][]string
	for _, h := range resp.GetResponse().GetHeaders() {
		if strings.EqualFold(h.GetName(), "X-Echo") {
			values = append(values, []string{h.GetValue(), hex.EncodeToString(h.GetRawValue())})
		}
	}
	report["values"] = values
	return report, err
}

// breakerOpen: after five failures in a row the broker leaves the upstream alone, and says when to come again.
func (s scenes) breakerOpen(ctx context.Context) (entry, error) {
	req := s.request("GET", "/broken")
	req.MaxAttempts = 1
	for failures := range 20 {
		resp, err := s.call(ctx, 30*time.Second, req)
		if err != nil {
			return nil, err
		}
		if resp.GetOutcome() == pb.Outcome_OUTCOME_BREAKER_OPEN {
			report := what(resp)
			report["failures"] = failures
			return report, nil
		}
	}
	return nil, errors.New("the breaker did not open")
}
