package broker

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// endpoint is what a listener of the broker serves. Health and reflection are on each, and speak of its services alone.
type endpoint struct {
	grpc   *grpc.Server
	health *health.Server
}

// newEndpoint serves here, and refuses elsewhere with a word that says so.
func newEndpoint(opts []grpc.ServerOption, guarded grpc.StreamServerInterceptor, a *access, here, elsewhere []Service) *endpoint {
	e := &endpoint{grpc: grpc.NewServer(append(slices.Clone(opts), grpc.UnknownServiceHandler(unknown(elsewhere)))...), health: health.NewServer()}
	e.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	for _, s := range append(slices.Clone(here), Service{healthpb.Health_ServiceDesc, e.health}) {
		e.grpc.RegisterService(lateReading(s.Desc, guarded, a), s.Impl)
	}
	for _, s := range here {
		e.health.SetServingStatus(s.Desc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	}
	reflection.Register(e.grpc)
	return e
}

// serve answers on the listener until the endpoint is stopped.
func (e *endpoint) serve(l net.Listener) error {
	// A drain that came before the first accept is an end like any other.
	if err := e.grpc.Serve(limitConns(l, maxConns, maxConnsPerPeer)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
