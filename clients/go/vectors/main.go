// Command vectors asks a broker for the answers and errors of a list, and prints what the client advises for each. The test
// (internal/polyglot) runs the like of it in every language, and holds them all to the same table.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: vectors BROKER LIST")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// vector is one call of the list; the broker of the test knows by the id what to answer.
type vector struct {
	OperationID   string `json:"operation_id"`
	Method        string `json:"method"`
	Never         bool   `json:"never"`
	UnderContract bool   `json:"under_contract"`
}

// advice is what is printed of it.
type advice struct {
	Step        string `json:"step"`
	AfterMs     int64  `json:"after_ms"`
	OperationID string `json:"operation_id"`
}

func run(ctx context.Context, broker, list string) error {
	text, err := os.ReadFile(list) //nolint:gosec // the test names the file
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	c, err := client.Dial(broker, client.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // every answer is here
	given := map[string]advice{}
	for _, v := range vectors {
		a := ask(ctx, c, v)
		given[v.OperationID] = advice{a.Step.String(), a.After.Milliseconds(), a.OperationID}
	}
	if err := stock(ctx, broker); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(given); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func ask(ctx context.Context, c *client.Client, v vector) client.Advice {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req := &pb.CallRequest{
		OperationId: v.OperationID,
		Request:     &pb.HttpRequest{Method: v.Method, Url: "http://upstream.example.com/"},
	}
	if v.Never {
		req.RepeatSafety = pb.RepeatSafety_REPEAT_SAFETY_NEVER
	}
	resp, err := c.Call(ctx, req)
	if err != nil {
		return client.DecideError(err, req, v.UnderContract)
	}
	return client.Decide(resp)
}

// stock makes one call that fails, over a channel with a retry policy as many services have one: it arrives four times. No caller
// of a broker should have this; the test counts it, and so shows that it would see a client of ours do the same.
func stock(ctx context.Context, broker string) error {
	conn, err := grpc.NewClient(broker, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(`{
		"methodConfig": [{
			"name": [{"service": "sallyport.v1.CallService"}],
			"retryPolicy": {
				"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
				"retryableStatusCodes": ["UNAVAILABLE"]
			}
		}]
	}`))
	if err != nil {
		return fmt.Errorf("stock channel: %w", err)
	}
	defer func() { _ = conn.Close() }() // nothing is in flight
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := pb.NewCallServiceClient(conn).Call(ctx, &pb.CallRequest{OperationId: "stock"}); status.Code(err) != codes.Unavailable {
		return fmt.Errorf("stock channel: %w, want UNAVAILABLE", err)
	}
	return nil
}
