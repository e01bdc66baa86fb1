package broker

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// Inside is a listener within the process, for what serves the RPCs in another form. Its connections prove nothing of whoever is at the
// other end of that: he is known by his token alone, or is local where everybody is.
type Inside struct{ *bufconn.Listener }

// insideBuffer is what a connection within the process holds, in bytes each way.
const insideBuffer = 256 << 10

// NewInside makes one. It is served as any other listener is ([Server.Serve]).
func NewInside() *Inside { return &Inside{bufconn.Listen(insideBuffer)} }

// Accept gives the next connection.
func (i *Inside) Accept() (net.Conn, error) {
	c, err := i.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // the server tells the listener's errors apart by their types
	}
	return insideConn{c}, nil
}

// insideConn is a connection within the process.
type insideConn struct{ net.Conn }

// isInside: nobody could listen in between, and nobody shows a certificate.
func isInside(c net.Conn) bool {
	if limited, ok := c.(*limitedConn); ok {
		c = limited.Conn
	}
	_, ok := c.(insideConn)
	return ok
}

// Client makes the client of the listener.
func (i *Inside) Client() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///inside", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return i.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("client within the process: %w", err)
	}
	return conn, nil
}
