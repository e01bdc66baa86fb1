// Package client is the small Go client of a Sallyport broker: it dials, sends the caller's token with every call, and reads what
// the broker's own errors say.
//
// The time allowed for a call is the deadline of its context. A call that was taken returns a typed outcome and no error,
// whatever happened upstream, and [Decide] says what to do about it. An error speaks of the broker or of the way to it:
// [NothingSent] tells whether it proves that nothing left the broker, [DecideError] what to do about it.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// maxMessageBytes is the broker's own limit: a reply may hold a body of 16 MiB and its headers.
const maxMessageBytes = 20 << 20

// ErrTokenInClear says that a token would cross a network that anybody on the way can read.
var ErrTokenInClear = errors.New("a token is not sent in cleartext off this machine: use TLS")

// Config says how to reach a broker. The zero value is cleartext without a token, as a broker on loopback is reached.
type Config struct {
	// Token is the bearer token sent with every call; "" sends none.
	Token string
	// TLS is the client's part of the handshake; nil: cleartext. Its Certificates, if any, are shown to a broker that knows its callers
	// by certificate. A token, where there is one, wins over them.
	TLS *tls.Config
}

// Client makes calls through one broker. It is safe for concurrent use.
type Client struct {
	conn     *grpc.ClientConn
	calls    pb.CallServiceClient
	deferred pb.DeferredServiceClient
}

// Dial makes a client for the broker at addr, "host:port" or "unix:/path". It connects when it is first used, so that a broker
// that is not there shows as the error of a call. Close ends it.
func Dial(addr string, cfg Config) (*Client, error) {
	opts := []grpc.DialOption{
		// A retry by the library would repeat a call whose effect is unknown. Three locks, since each is easily lost: ours has no
		// retry policy, one that comes with name resolution is not read, and retries are off.
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		// A proxy named by the environment would read the token.
		grpc.WithNoProxy(),
		grpc.WithTransportCredentials(transport(cfg.TLS)),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxMessageBytes),
			grpc.MaxCallSendMsgSize(maxMessageBytes),
		),
	}
	if cfg.Token != "" {
		if cfg.TLS == nil && !onThisMachine(addr) {
			return nil, fmt.Errorf("dial %s: %w", addr, ErrTokenInClear)
		}
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{token: cfg.Token, secure: cfg.TLS != nil}))
	}
	conn, err := grpc.NewClient(addr, opts...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return &Client{conn: conn, calls: pb.NewCallServiceClient(conn), deferred: pb.NewDeferredServiceClient(conn)}, nil
}

// Call makes one outbound call. The error, if any, comes from the broker or from the way to it: see [Explain]. It is not
// wrapped: its gRPC status is the contract.
func (c *Client) Call(ctx context.Context, req *pb.CallRequest) (*pb.CallResponse, error) {
	return c.calls.Call(ctx, req)
}

// FanOut makes several calls under one deadline. Errors are as those of Call.
func (c *Client) FanOut(ctx context.Context, req *pb.FanOutRequest) (*pb.FanOutResponse, error) {
	return c.calls.FanOut(ctx, req)
}

// Policies gives access to the policies of the broker. Errors are as those of Call.
func (c *Client) Policies() pb.PolicyServiceClient { return pb.NewPolicyServiceClient(c.conn) }

// Origins gives access to what the broker knows of origins. Errors are as those of Call.
func (c *Client) Origins() pb.OriginServiceClient { return pb.NewOriginServiceClient(c.conn) }

// Close ends the connection; calls in flight end with an error.
func (c *Client) Close() error {
	if err := c.conn.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

func transport(cfg *tls.Config) credentials.TransportCredentials {
	if cfg == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(cfg)
}

// onThisMachine: the address is a unix socket or on loopback, where a cleartext token stays on the machine.
func onThisMachine(addr string) bool {
	if strings.HasPrefix(addr, "unix:") || strings.HasPrefix(addr, "unix-abstract:") {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// bearer sends a token with every call (RFC 6750 §2.1).
type bearer struct {
	token  string
	secure bool // over TLS; Dial has seen to it that anything else stays on this machine
}

// GetRequestMetadata gives the field (credentials.PerRPCCredentials).
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity keeps the token off a connection that is less safe than the one it was meant for.
func (b bearer) RequireTransportSecurity() bool { return b.secure }
