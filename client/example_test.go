package client_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func Example() {
	broker, stop := exampleBroker() // for a real one: "127.0.0.1:7400", or where yours listens
	defer stop()
	c, err := client.Dial(broker, client.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()

	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second) // the time allowed for the whole call
	defer cancel()
	req := &pb.CallRequest{
		Request:     &pb.HttpRequest{Method: "POST", Url: "https://api.example.com/orders", Body: []byte(`{"item":1}`)},
		OperationId: "order-4711", // made and stored before the call, so that the same order can be asked for again
	}
	var advice client.Advice
	resp, err := c.Call(ctx, req)
	if err != nil {
		advice = client.DecideError(err, req, false)
	} else {
		advice = client.Decide(resp)
	}
	switch advice.Step {
	case client.StepDone:
		fmt.Println("answered", resp.GetResponse().GetStatus())
	case client.StepRetry, client.StepRetrySameID:
		fmt.Println("again, not before", advice.After)
	default:
		fmt.Println(resp.GetOutcome(), advice.Step)
	}
	// Output: OUTCOME_UNKNOWN reconcile
}

// exampleBroker answers every call as a broker does whose upstream took the request and then vanished.
func exampleBroker() (addr string, stop func()) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterCallServiceServer(s, &fake{asked: make(chan metadata.MD, 1), reply: &pb.CallResponse{
		Outcome: pb.Outcome_OUTCOME_UNKNOWN, Effect: pb.Effect_EFFECT_UNKNOWN, Next: pb.NextStep_NEXT_STEP_RECONCILE,
	}})
	go func() { _ = s.Serve(l) }() // ends with the server
	return l.Addr().String(), s.Stop
}
