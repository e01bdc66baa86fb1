package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/egress"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/internal/ballast"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/store/sqlite"
	"github.com/sallyport/sallyport/tracing"
)

// maxStreams is the limit of streams per connection of both servers, the broker's own.
const maxStreams = 1000

func listen(ctx context.Context) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// startBroker starts the broker as `sallyport serve --dev` does, under the default policy with the upstream's authority added, with the
// patience that a slow upstream needs, with these policies beside, and with a ledger of operations unless that is nil. Spans are exported as the environment says. Every call counts
// toward the byte limit with the largest answer it would take, which the load has room for.
func startBroker(ctx context.Context, upstream *ready, beside []policy.Rule, ledger *sqlite.Ledger) (ready, func(), error) {
	weight := ballast.New(os.LookupEnv)
	l, err := listen(ctx)
	if err != nil {
		return ready{}, nil, err
	}
	rules := append(beside, policy.Rule{Name: policy.DefaultName, Revision: 1, File: true, Settings: policy.Settings{
		Egress: policy.EgressRule{TLS: policy.TLSRule{CAPEM: &upstream.CA}},
	}})
	if upstream.Slow {
		fallback := &rules[len(rules)-1]
		fallback.Attempt.Timeout = new(heldFor)
		fallback.Concurrency.MaxInFlight = new(uint32(0)) // no limit
	}
	table, err := policy.Compile(rules, policy.Options{Generations: new(atomic.Uint64)})
	if err != nil {
		return ready{}, nil, err
	}
	g := guard.New(guard.Config{Dev: true})
	transport := egress.New(egress.Config{Guard: g, UserAgent: "sallyport/bench", Resolver: here{}})
	observer, err := tracing.New(ctx, os.LookupEnv, "bench", slog.New(slog.DiscardHandler))
	if err != nil {
		return ready{}, nil, err
	}
	origins := engine.NewOrigins()
	log := slog.New(slog.DiscardHandler)
	var operations *operation.Operations
	if ledger != nil {
		operations = broker.NewOperations(operation.Config{Ledger: ledger, Keeper: ledger, Owner: "bench@1", Log: log}, observer)
	}
	calls := broker.NewCallService(broker.CallConfig{
		Engine: engine.New(transport, observer, g, origins), Observer: observer, BrokerID: "bench@1", Log: log, Operations: operations,
	}, table)
	server := broker.NewServer(calls, broker.ServerConfig{Log: log}) //nolint:contextcheck // its handlers take the context of their stream
	served := make(chan struct{})                                    // closed by the goroutine below
	go func() {
		defer close(served)
		_ = server.Serve(l) // a server that fails shows in the load
	}()
	swept := make(chan struct{}) // closed by the goroutine below
	stop := make(chan struct{})  // closed by the function returned
	go func() {
		defer close(swept)
		sweep(origins, stop)
	}()
	return ready{GRPC: l.Addr().String()}, func() {
		close(stop)
		<-swept
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		server.Drain(ctx)
		<-served
		transport.Close()
		if operations != nil {
			operations.Close(ctx)
		}
		_ = observer.Close(ctx) // nothing is measured any more
		runtime.KeepAlive(weight)
	}, nil
}

// sweepEvery is as often as `sallyport serve` gives back the memory of idle origins.
const sweepEvery = 15 * time.Second

func sweep(origins *engine.Origins, stop <-chan struct{}) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-ticker.C:
			origins.Sweep(now)
		}
	}
}

// here finds every name on this machine, so that there can be many origins.
type here struct{}

// LookupNetIP gives the loopback address (egress.Resolver).
func (here) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
}

// manyPolicies are a thousand, by host, path and caller; a hundred of them are for the upstream's own host, and one is the load's.
func manyPolicies() []policy.Rule {
	const total, same = 1000, 100
	rules := make([]policy.Rule, 0, total+1)
	for i := range total {
		m := policy.Match{Hosts: []string{fmt.Sprintf("host%d.example.com", i)}, PathPrefix: fmt.Sprintf("/service%d", i), Callers: []string{fmt.Sprint("caller", i)}}
		switch {
		case i == 0:
			m = policy.Match{Hosts: []string{"127.0.0.1"}, PathPrefix: "/orders", Callers: []string{"local"}}
		case i < same:
			m.Hosts = []string{"127.0.0.1"}
		}
		rules = append(rules, policy.Rule{Name: fmt.Sprint("policies/p", i), Revision: 1, File: true, Match: m})
	}
	return rules
}

// startBare starts the handler that a service would write without a broker.
func startBare(ctx context.Context, ca string) (ready, func(), error) {
	l, err := listen(ctx)
	if err != nil {
		return ready{}, nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		return ready{}, nil, errors.New("bare: no authority")
	}
	server := grpc.NewServer(grpc.MaxConcurrentStreams(maxStreams))
	transport := &http.Transport{
		// As many idle connections as there can be calls: with the default of 2 it would measure handshakes.
		MaxIdleConns: maxConcurrency, MaxIdleConnsPerHost: maxConcurrency, IdleConnTimeout: time.Minute,
		DisableCompression: true, // the broker passes bodies through as they came
		TLSClientConfig:    &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}},
	}
	pb.RegisterCallServiceServer(server, &bare{client: http.Client{Transport: transport}})
	served := make(chan struct{}) // closed by the goroutine below
	go func() {
		defer close(served)
		_ = server.Serve(l) // a server that fails shows in the load
	}()
	return ready{GRPC: l.Addr().String()}, func() {
		server.Stop()
		<-served
		transport.CloseIdleConnections()
	}, nil
}

// bare hands a call on and its answer back: no policy, no guard, no evidence, no limits.
type bare struct {
	pb.UnimplementedCallServiceServer
	client http.Client
}

// Call makes one request under the caller's deadline.
func (b *bare) Call(ctx context.Context, req *pb.CallRequest) (*pb.CallResponse, error) {
	asked := req.GetRequest()
	r, err := http.NewRequestWithContext(ctx, asked.GetMethod(), asked.GetUrl(), bytes.NewReader(asked.GetBody()))
	if err != nil {
		return nil, err //nolint:wrapcheck // the load stops at the first error
	}
	for _, h := range asked.GetHeaders() {
		r.Header.Add(h.GetName(), h.GetValue())
	}
	answer, err := b.client.Do(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	defer func() { _ = answer.Body.Close() }() // it was read to its end
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	response := &pb.HttpResponse{Status: uint32(answer.StatusCode), Body: body, Protocol: answer.Proto} //nolint:gosec // three digits
	for name, values := range answer.Header {
		for _, value := range values {
			response.Headers = append(response.Headers, &pb.HttpHeader{Name: name, Value: value})
		}
	}
	return &pb.CallResponse{Outcome: pb.Outcome_OUTCOME_SUCCESS, Response: response}, nil
}
