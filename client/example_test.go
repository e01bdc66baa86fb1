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
	resp, err := c.Call(ctx, &pb.CallRequest{
		Request:     &pb.HttpRequest{Method: "POST", Url: "https://api.example.com/orders", Body: []byte(`{"item":1}`)},
		OperationId: "order-4711",
	})
	switch {
	case client.NothingSent(err):
		fmt.Println("nothing was sent:", err)
	case err != nil:
		fmt.Println("unknown; ask again under the same operation id:", err)
	case resp.GetEffect() == pb.Effect_EFFECT_UNKNOWN: // decide by effect and next first, by outcome second
		fmt.Println("it may have happened:", resp.GetNext())
	default:
		fmt.Println(resp.GetOutcome(), resp.GetResponse().GetStatus())
	}
	// Output: it may have happened: NEXT_STEP_RECONCILE
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
