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
	resp, err := broker.Call(ctx, &pb.CallRequest{Request: &pb.HttpRequest{Method: "GET", Url: url}})
	if err != nil {
		// The broker, or the way to it. Without proof that nothing was sent the effect is unknown.
		return fmt.Errorf("nothing was sent: %t: %w", client.NothingSent(err), err)
	}
	switch resp.GetNext() {
	case pb.NextStep_NEXT_STEP_DONE:
		fmt.Printf("%d: %s", resp.GetResponse().GetStatus(), resp.GetResponse().GetBody())
	case pb.NextStep_NEXT_STEP_RETRY, pb.NextStep_NEXT_STEP_RETRY_SAME_ID:
		fmt.Printf("%s: try again in %s\n", resp.GetOutcome(), resp.GetRetryAfter().AsDuration())
	default:
		fmt.Printf("%s, %s: %s\n", resp.GetOutcome(), resp.GetEffect(), resp.GetDetail())
	}
	return nil
}
