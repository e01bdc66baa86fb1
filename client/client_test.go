package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake answers with what it is given and remembers what it was asked.
type fake struct {
	pb.UnimplementedCallServiceServer
	reply  *pb.CallResponse
	err    error
	stream func(grpc.BidiStreamingServer[pb.StreamCallRequest, pb.StreamCallResponse]) error
	asked  chan metadata.MD // closed by nobody; holds one entry per call
}

func (f *fake) Call(ctx context.Context, _ *pb.CallRequest) (*pb.CallResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	f.asked <- md
	return f.reply, f.err
}

func serve(t *testing.T, network, addr string, f *fake) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.MaxSendMsgSize(20 << 20))
	pb.RegisterCallServiceServer(s, f)
	done := make(chan error, 1) // receives one value
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

func dial(t *testing.T, addr string, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.Dial(addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func call(t *testing.T, c *client.Client) (*pb.CallResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return c.Call(ctx, &pb.CallRequest{})
}

func TestTokenGoesWithEveryCallOnLoopback(t *testing.T) {
	f := &fake{reply: &pb.CallResponse{Outcome: pb.Outcome_OUTCOME_SUCCESS}, asked: make(chan metadata.MD, 2)}
	c := dial(t, serve(t, "tcp", "127.0.0.1:0", f).Addr().String(), client.Config{Token: "t0ken"})
	for range 2 {
		if _, err := call(t, c); err != nil {
			t.Fatal(err)
		}
		if got := (<-f.asked).Get("authorization"); len(got) != 1 || got[0] != "Bearer t0ken" {
			t.Errorf("authorization = %q", got)
		}
	}
}

func TestUnixSocketIsReached(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f := &fake{reply: &pb.CallResponse{Outcome: pb.Outcome_OUTCOME_SUCCESS}, asked: make(chan metadata.MD, 1)}
	serve(t, "unix", path, f)
	c := dial(t, "unix:"+path, client.Config{Token: "t0ken"})
	resp, err := call(t, c)
	if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Errorf("outcome %v, error %v", resp.GetOutcome(), err)
	}
}

func TestReplyAboveStockLimitIsTaken(t *testing.T) {
	body := make([]byte, 16<<20)
	f := &fake{reply: &pb.CallResponse{Response: &pb.HttpResponse{Body: body}}, asked: make(chan metadata.MD, 1)}
	c := dial(t, serve(t, "tcp", "127.0.0.1:0", f).Addr().String(), client.Config{})
	resp, err := call(t, c)
	if err != nil || len(resp.GetResponse().GetBody()) != len(body) {
		t.Errorf("%d bytes, error %v", len(resp.GetResponse().GetBody()), err)
	}
}

func TestTokenIsNotSentInClearOffTheMachine(t *testing.T) {
	for _, tt := range []struct {
		name, addr string
		cfg        client.Config
		refused    bool
	}{
		{"loopback", "127.0.0.1:7400", client.Config{Token: "t"}, false},
		{"loopback, IPv6", "[::1]:7400", client.Config{Token: "t"}, false},
		{"this machine by name", "localhost:7400", client.Config{Token: "t"}, false},
		{"no token", "broker.example.com:7400", client.Config{}, false},
		{"TLS", "broker.example.com:7400", client.Config{Token: "t", TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, false},
		{"cleartext", "broker.example.com:7400", client.Config{Token: "t"}, true},
		{"cleartext to an address", "198.51.100.1:7400", client.Config{Token: "t"}, true},
		{"a name that begins like loopback", "127.0.0.1.example.com:7400", client.Config{Token: "t"}, true},
		{"a resolver's own spelling", "dns:///broker.example.com:7400", client.Config{Token: "t"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := client.Dial(tt.addr, tt.cfg)
			if got := errors.Is(err, client.ErrTokenInClear); got != tt.refused {
				t.Errorf("refused = %v, want %v (%v)", got, tt.refused, err)
			}
			if err == nil {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func detailed(t *testing.T, code codes.Code, details ...protoadapt.MessageV1) error {
	t.Helper()
	st, err := status.New(code, "message").WithDetails(details...)
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func TestNothingSentNeedsTheBrokersOwnWord(t *testing.T) {
	info := func(domain, sent string) *errdetails.ErrorInfo {
		e := &errdetails.ErrorInfo{Domain: domain, Reason: "DRAINING"}
		if sent != "" {
			e.Metadata = map[string]string{"sent": sent}
		}
		return e
	}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"the broker says so", detailed(t, codes.Unavailable, info("sallyport", "false")), true},
		{"the broker does not say so", detailed(t, codes.Internal, info("sallyport", "")), false},
		{"the broker says the contrary", detailed(t, codes.Internal, info("sallyport", "true")), false},
		{"a bare UNAVAILABLE of the way there", status.Error(codes.Unavailable, "connection refused"), false},
		{"no gRPC error", context.DeadlineExceeded, false},
		{"another service says so", detailed(t, codes.Unavailable, info("example.com", "false")), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := client.NothingSent(tt.err); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRefusalTellsReasonFieldsAndDelay(t *testing.T) {
	f := &fake{asked: make(chan metadata.MD, 1), err: detailed(
		t, codes.InvalidArgument,
		&errdetails.ErrorInfo{Domain: "sallyport", Reason: "INVALID_REQUEST", Metadata: map[string]string{"sent": "false"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "request.url", Description: "no host"}}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(2 * time.Second)},
	)}
	c := dial(t, serve(t, "tcp", "127.0.0.1:0", f).Addr().String(), client.Config{})
	_, err := call(t, c)
	got := client.Explain(err)
	if got.Code != codes.InvalidArgument || got.Reason != "INVALID_REQUEST" || !got.NothingSent || got.RetryAfter != 2*time.Second {
		t.Errorf("got %+v", got)
	}
	if len(got.Violations) != 1 || got.Violations[0] != (client.Violation{Field: "request.url", Problem: "no host"}) {
		t.Errorf("violations %+v", got.Violations)
	}
}

func TestNotFoundTellsTheLedger(t *testing.T) {
	for _, tt := range []struct {
		name, since string
		want        time.Time
	}{
		{"an instant", "2026-11-30T12:00:00.5Z", time.Date(2026, 11, 30, 12, 0, 0, 500_000_000, time.UTC)},
		{"none", "", time.Time{}},
		{"of a later form", "yesterday", time.Time{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := client.Explain(detailed(t, codes.NotFound, &errdetails.ErrorInfo{
				Domain: "sallyport", Reason: "NOT_FOUND", Metadata: map[string]string{"sent": "false", "ledger": "0f3a", "known_since": tt.since},
			}))
			if got.Reason != "NOT_FOUND" || got.Ledger != "0f3a" || !got.KnownSince.Equal(tt.want) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if got := client.Explain(detailed(t, codes.NotFound, &errdetails.ErrorInfo{
		Domain: "example.com", Metadata: map[string]string{"ledger": "theirs"},
	})); got.Ledger != "" {
		t.Errorf("another service's ledger: %q", got.Ledger)
	}
}
