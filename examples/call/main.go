// Command call makes one call through a broker and decides by its answer, as a service would.
//
//	go run ./examples/call http://127.0.0.1:8000/order.json
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: call URL")
		os.Exit(2)
	}
	if err := call(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func call(ctx context.Context, url string) error {
	broker, err := client.Dial("127.0.0.1:7400", client.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = broker.Close() }() // the answer is here
	// The time allowed is the deadline of the context; there is no other.
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req := &pb.CallRequest{Request: &pb.HttpRequest{Method: "GET", Url: url}}
	resp, err := broker.Call(ctx, req)
	if err != nil {
		// The broker, or the way to it: either nothing was sent, or nobody knows.
		return fmt.Errorf("%s: %w", client.DecideError(err, req, false).Step, err)
	}
	switch advice := client.Decide(resp); advice.Step {
	case client.StepDone:
		fmt.Printf("%d: %s", resp.GetResponse().GetStatus(), resp.GetResponse().GetBody())
	case client.StepRetry, client.StepRetrySameID:
		fmt.Printf("%s: try again in %s\n", resp.GetOutcome(), advice.After)
	default:
		fmt.Printf("%s, %s: %s\n", resp.GetOutcome(), resp.GetEffect(), resp.GetDetail())
	}
	return nil
}
