package broker

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"

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
	main   *endpoint
	admin  *endpoint // nil: main has its services too
	access *access
	calls  *CallService
}

// Service is a gRPC service with what it is made of.
type Service struct {
	Desc grpc.ServiceDesc
	Impl any
}

// ServerConfig is how a server is reached.
type ServerConfig struct {
	// Identities knows who may call; nil: one caller, local.
	Identities *Identities
	// TLS is the server's part of a handshake; nil: cleartext.
	TLS *tls.Config
	// Authorities are those of client certificates; nil: none are asked for. They need TLS.
	Authorities *Authorities
	// Deferred keeps calls; nil: it is not served.
	Deferred *DeferredService
	// Services are those that administer.
	Services []Service
	// Apart has them served by [Server.ServeAdmin] and nowhere else; otherwise they stand beside the calls.
	Apart bool
	// Log hears of panics; required.
	Log *slog.Logger
}

// NewServer makes the server.
func NewServer(calls *CallService, cfg ServerConfig) *Server {
	return newServer(calls, cfg, newCodec())
}

func newServer(calls *CallService, cfg ServerConfig, c encoding.CodecV2) *Server {
	s := &Server{calls: calls, access: &access{
		gate: newGate(), calls: receptionOfCalls(calls.capacity.limits), strangers: receptionOfStrangers(), chunks: receptionOfChunks(calls.capacity.limits),
		authorities: cfg.Authorities, log: cfg.Log,
	}}
	s.access.identities.Store(cfg.Identities)
	calls.cfg.Observer.RPCReasons(reasons()...)
	guarded := counted(calls.cfg.Observer, recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(recovered(cfg.Log, calls.cfg.Observer))))
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderList),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: maxConnIdle, MaxConnectionAge: maxConnAge, MaxConnectionAgeGrace: maxConnAgeGrace,
			Time: pingEvery, Timeout: pingTimeout,
		}),
		grpc.InTapHandle(hangUps), grpc.ForceServerCodecV2(c),
		grpc.ChainStreamInterceptor(guarded, s.access.stream),
		grpc.Creds(newHandshake(cfg)),
	}
	toCall, toAdminister := []Service{{pb.CallService_ServiceDesc, calls}}, cfg.Services
	if cfg.Deferred != nil {
		toCall = append(toCall, Service{pb.DeferredService_ServiceDesc, cfg.Deferred})
	}
	if cfg.Apart {
		s.admin = newEndpoint(opts, guarded, s.access, toAdminister, toCall)
	} else {
		toCall, toAdminister = append(toCall, toAdminister...), nil
	}
	s.main = newEndpoint(append(opts, grpc.NumStreamWorkers(streamWorkers)), guarded, s.access, toCall, toAdminister)
	return s
}

// Serve answers on the listener, within its limits of connections, until the server is drained or stopped.
func (s *Server) Serve(l net.Listener) error { return s.main.serve(l) }

// ServeAdmin is Serve for the services that stand apart.
func (s *Server) ServeAdmin(l net.Listener) error { return s.admin.serve(l) }

// Draining reports whether new calls are refused.
func (s *Server) Draining() bool { return s.access.gate.isShut() }

// ReplaceIdentities puts other identities in force, for every RPC that comes from now on.
func (s *Server) ReplaceIdentities(identities *Identities) { s.access.identities.Store(identities) }

// Drain refuses new calls with a clear word, lets those in flight finish within their deadlines, and ends the server.
//
// When ctx ends it cancels the calls in flight. They are not torn down: each still answers with its typed outcome, CANCELLED, with
// an unknown effect where something was sent. What has not answered within lastWords is cut.
func (s *Server) Drain(ctx context.Context) {
	s.each(func(e *endpoint) { e.health.Shutdown() })
	s.access.gate.close()
	s.access.calls.close() // what came in now would be refused

	finished := make(chan struct{}) // closed by the goroutine below
	go func() {
		defer close(finished)
		<-s.access.gate.left
		s.access.strangers.close()
		// Every call has its reply; what is then still open after a moment only watches (health) and would never end.
		watchers := time.AfterFunc(lastReplies, s.stop)
		defer watchers.Stop()
		s.each(func(e *endpoint) { e.grpc.GracefulStop() })
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
		cut := time.AfterFunc(lastFlush, s.stop)
		defer cut.Stop()
	case <-patience.C:
		s.stop()
	}
	<-finished // a handler returns soon after its context has ended
}

func (s *Server) stop() { s.each(func(e *endpoint) { e.grpc.Stop() }) }

// each does it to all endpoints at once, and returns when it is done.
func (s *Server) each(do func(*endpoint)) {
	var all sync.WaitGroup
	for _, e := range []*endpoint{s.main, s.admin} {
		if e != nil {
			all.Go(func() { do(e) })
		}
	}
	all.Wait()
}

// Knows reports whether somebody with these values of the field authorization may be anybody, on a connection that proves nothing.
func (s *Server) Knows(authorization []string) bool {
	ids := s.access.identities.Load()
	if ids.open() && s.access.authorities == nil {
		return true
	}
	_, err := ids.byToken(authorization)
	return err == nil
}
