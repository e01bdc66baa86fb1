package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// The limits of the gRPC server. grpc-go's own are generous: unlimited streams per connection, 16 MiB of headers.
const (
	maxMessage = 20 << 20
	// streamWorkers are goroutines that serve one RPC after another. A new goroutine for each would copy its stack several times on the
	// way down to the socket, a tenth of what a call costs. When all are busy there is a new one all the same.
	streamWorkers    = 256
	maxStreams       = 1000
	maxHeaderList    = 16 << 10
	handshakeTimeout = 10 * time.Second
	maxConnIdle      = 15 * time.Minute
	maxConnAge       = 30 * time.Minute
	// maxConnAgeGrace is how long a connection past its age stays for the calls on it. It is far above deadline.max_timeout
	// (60 s unless a policy says more), since the age of a connection is no reason to cut a call; what watches without end (health,
	// reflection) meets it.
	maxConnAgeGrace = time.Hour
	streamWindow    = 64 << 10
	connWindow      = 1 << 20
	pingEvery       = 30 * time.Second
	pingTimeout     = 10 * time.Second
	minClientPing   = 10 * time.Second
	lastReplies     = 5 * time.Second
	// lastWords is how long calls that were told to end at once have to say what they know, lastFlush how long those words have to
	// leave.
	lastWords = time.Second
	lastFlush = 500 * time.Millisecond
)

// Server is the gRPC server of a broker.
type Server struct {
	grpc   *grpc.Server
	health *health.Server
	access *access
	calls  *CallService
	// endWatches has what watches without end leave, once the broker drains.
	endWatches []func()
}

// ServerConfig is how a server is reached.
type ServerConfig struct {
	// Identities knows who may call; nil: one caller, local.
	Identities *Identities
	// TLS is the server's part of a handshake; nil: cleartext.
	TLS *tls.Config
	// Log hears of panics; required.
	Log *slog.Logger
	// Origins is served if it is not nil.
	Origins *OriginService
}

// NewServer makes the server.
func NewServer(calls *CallService, cfg ServerConfig) *Server {
	return newServer(calls, cfg, newCodec())
}

func newServer(calls *CallService, cfg ServerConfig, c encoding.CodecV2) *Server {
	s := &Server{calls: calls, health: health.NewServer(), access: &access{
		gate: newGate(), calls: receptionOfCalls(calls.capacity.limits), strangers: receptionOfStrangers(),
	}}
	s.access.identities.Store(cfg.Identities)
	calls.cfg.Observer.RPCReasons(reasons()...)
	guarded := counted(calls.cfg.Observer, recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(recovered(cfg.Log, calls.cfg.Observer))))
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderList),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.NumStreamWorkers(streamWorkers), grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: maxConnIdle, MaxConnectionAge: maxConnAge, MaxConnectionAgeGrace: maxConnAgeGrace,
			Time: pingEvery, Timeout: pingTimeout,
		}),
		grpc.InTapHandle(hangUps), grpc.ForceServerCodecV2(c),
		grpc.ChainStreamInterceptor(guarded, s.access.stream),
		grpc.UnknownServiceHandler(unknown),
	}
	if cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	s.grpc = grpc.NewServer(opts...)
	s.grpc.RegisterService(lateReading(pb.CallService_ServiceDesc, guarded, s.access), calls)
	s.grpc.RegisterService(lateReading(healthpb.Health_ServiceDesc, guarded, s.access), s.health)
	if cfg.Origins != nil {
		s.grpc.RegisterService(lateReading(pb.OriginService_ServiceDesc, guarded, s.access), cfg.Origins)
		s.endWatches = append(s.endWatches, cfg.Origins.endWatches)
	}
	reflection.Register(s.grpc)
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	s.health.SetServingStatus(pb.CallService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	return s
}

// Serve answers on the listener, within its limits of connections, until the server is drained or stopped.
func (s *Server) Serve(l net.Listener) error {
	// A drain that came before the first accept is an end like any other.
	if err := s.grpc.Serve(limitConns(l, maxConns, maxConnsPerPeer)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Draining reports whether new calls are refused.
func (s *Server) Draining() bool { return s.access.gate.isShut() }

// ReplaceIdentities puts other identities in force, for every RPC that comes from now on.
func (s *Server) ReplaceIdentities(identities *Identities) { s.access.identities.Store(identities) }

// Drain refuses new calls with a clear word, lets those in flight finish within their deadlines, and ends the server.
//
// When ctx ends it cancels the calls in flight. They are not torn down: each still answers with its typed outcome, CANCELLED, with
// an unknown effect where something was sent. What has not answered within lastWords is cut.
func (s *Server) Drain(ctx context.Context) {
	s.health.Shutdown()
	s.access.gate.close()
	for _, end := range s.endWatches {
		end()
	}
	s.access.calls.close() // what came in now would be refused

	finished := make(chan struct{}) // closed by the goroutine below
	go func() {
		defer close(finished)
		<-s.access.gate.left
		s.access.strangers.close()
		// Every call has its reply; what is then still open after a moment only watches (health) and would never end.
		watchers := time.AfterFunc(lastReplies, s.grpc.Stop)
		defer watchers.Stop()
		s.grpc.GracefulStop()
	}()
	select {
	case <-finished:
		return
	case <-ctx.Done():
	}
	s.access.gate.abort()
	patience := time.NewTimer(lastWords)
	defer patience.Stop()
	select {
	case <-s.access.gate.left:
		cut := time.AfterFunc(lastFlush, s.grpc.Stop)
		defer cut.Stop()
	case <-patience.C:
		s.grpc.Stop()
	}
	<-finished // a handler returns soon after its context has ended
}
