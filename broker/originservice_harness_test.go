package broker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/tracing"
)

// breakerMemory is a store of breakers that may fail.
type breakerMemory struct {
	mu      sync.Mutex // protects the fields below
	forced  map[string]admin.Forced
	records []admin.Record
	err     error
}

func (m *breakerMemory) Forced(context.Context) ([]admin.Forced, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.forced)), m.err
}

func (m *breakerMemory) WriteForced(_ context.Context, origin string, f *admin.Forced, r *admin.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.forced == nil {
		m.forced = make(map[string]admin.Forced)
	}
	if delete(m.forced, origin); f != nil {
		m.forced[origin] = *f
	}
	m.records = append(m.records, *r)
	return nil
}

func (m *breakerMemory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *breakerMemory) audit() []admin.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records)
}

// answering is an upstream whose answer may be changed.
type answering struct {
	mu     sync.Mutex // protects the field below
	result call.Result
}

func (a *answering) Send(context.Context, *call.Call, *policy.Effective, call.Attempt) call.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.result
}

func (a *answering) with(result call.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.result = result
}

// operated is a broker whose origins are looked at.
type operated struct {
	server   *Server
	service  *OriginService
	upstream *answering
	engine   *engine.Origins
	store    *breakerMemory
	breakers *admin.Breakers
	origins  pb.OriginServiceClient
	calls    pb.CallServiceClient
	conn     *grpc.ClientConn
}

// strict is a policy under which two failures open a breaker, for exactly a second.
func strict() policy.Rule {
	r := policy.Rule{Name: "policies/strict", Revision: 7, File: true}
	r.Retry.MaxAttempts = new(uint32(1))
	r.Breaker.ConsecutiveFailures, r.Breaker.OpenJitter = new(uint32(2)), new(0.0)
	return r
}

func operate(t testing.TB, memory bool, store *breakerMemory, identities *Identities, rules ...policy.Rule) *operated {
	t.Helper()
	l, dialer := listen(t, memory)
	log := newLog(&logBuffer{})
	o := &operated{upstream: &answering{result: answered(200)}, engine: engine.NewOrigins(), store: store}
	var err error
	if o.breakers, err = admin.LoadBreakers(t.Context(), store, o.engine); err != nil {
		t.Fatal(err)
	}
	observer := &tracing.Observer{}
	calls := NewCallService(CallConfig{
		Engine: engine.New(o.upstream, observer, guard.New(guard.Config{Dev: true}), o.engine), Observer: observer, BrokerID: "b@1", Log: log,
	}, compile(t, rules...))
	o.service = NewOriginService(o.engine, o.breakers)
	o.server = NewServer(calls, ServerConfig{Identities: identities, Log: log, Services: []Service{{Desc: pb.OriginService_ServiceDesc, Impl: o.service}}})
	served := make(chan error, 1) // receives one value, never closed
	go func() { served <- o.server.Serve(l) }()
	t.Cleanup(func() {
		o.server.Drain(context.WithoutCancel(t.Context()))
		o.breakers.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	o.conn = dial(t, dialer)
	o.origins, o.calls = pb.NewOriginServiceClient(o.conn), pb.NewCallServiceClient(o.conn)
	return o
}

// call makes one to a host, whatever comes of it.
func (o *operated) call(t testing.TB, host string) *pb.CallResponse {
	t.Helper()
	resp, err := o.calls.Call(t.Context(), get("https://"+host+"/"))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func (o *operated) get(t testing.TB, name string) *pb.Origin {
	t.Helper()
	resp, err := o.origins.GetOrigin(t.Context(), &pb.GetOriginRequest{Origin: name})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetOrigin()
}

func (o *operated) names(t testing.TB, req *pb.ListOriginsRequest) (names []string, next string) {
	t.Helper()
	resp, err := o.origins.ListOrigins(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, origin := range resp.GetOrigins() {
		names = append(names, origin.GetOrigin())
	}
	return names, resp.GetNextPageToken()
}

func (o *operated) set(t testing.TB, name string, mode pb.BreakerMode, end time.Time) *pb.Origin {
	t.Helper()
	req := &pb.SetBreakerRequest{Origin: name, Mode: mode, Reason: "drill", ExpireTime: stamp(end)}
	resp, err := o.origins.SetBreaker(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetOrigin()
}
