package broker

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/backoff"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/store/memory"
	"github.com/sallyport/sallyport/tracing"
)

// setup is what a broker under test differs in from the usual one.
type setup struct {
	rules      []policy.Rule
	sender     engine.Sender // nil: real HTTP, which may go to loopback
	identities *Identities
	with       func(*ServerConfig) // changes what the server is made of; nil: nothing
	memory     bool                // no port but an in-memory connection, for bubbles
	noTable    bool                // a broken invariant: every call panics before it is taken
	limits     Limits
	observer   *tracing.Observer // nil: one that counts nothing
	listener   net.Listener      // nil: a port of loopback; else there is no client
	codec      encoding.CodecV2  // nil: the server's own
	store      admin.Store       // nil: there is no PolicyService
	ledger     operation.Ledger  // nil: the memory ledger itself
	replicas   bool              // several brokers without a shared ledger
	deferral   bool              // there is a DeferredService
	kept       keptCalls         // of that; nil: in memory
}

// running is a broker on a real port of loopback, with a client.
type running struct {
	server   *Server
	service  *CallService
	conn     *grpc.ClientConn
	calls    pb.CallServiceClient
	policies pb.PolicyServiceClient
	deferred pb.DeferredServiceClient
	log      *logBuffer
	memory   *memory.Ledger
}

func start(t testing.TB, s setup) *running {
	t.Helper()
	l, dialer := s.listener, func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed }
	if l == nil {
		l, dialer = listen(t, s.memory)
	}
	g := guard.New(guard.Config{Dev: true})
	if s.sender == nil {
		transport := egress.New(egress.Config{Guard: g, UserAgent: "sallyport/test"})
		t.Cleanup(transport.Close)
		s.sender = transport
	}
	table := compile(t, s.rules...)
	if s.noTable {
		table = nil
	}
	r := &running{log: &logBuffer{}}
	r.memory = memory.NewLedger(time.Now())
	if s.ledger == nil {
		s.ledger = r.memory
	}
	observer := s.observer
	if observer == nil {
		observer = &tracing.Observer{}
	}
	operations := NewOperations(operation.Config{
		Ledger: s.ledger, Keeper: r.memory, Owner: "broker-under-test@1", Log: newLog(r.log),
	}, observer)
	t.Cleanup(func() { operations.Close(context.WithoutCancel(t.Context())) })
	asked := operations
	if s.replicas {
		asked = nil
	}
	r.service = NewCallService(CallConfig{
		Operations: asked,
		Engine:     engine.New(s.sender, observer, g, engine.NewOrigins()), Observer: observer, BrokerID: "broker-under-test@1", Log: newLog(r.log), Limits: s.limits,
	}, table)
	if s.codec == nil {
		s.codec = newCodec()
	}
	cfg := ServerConfig{Identities: s.identities, Log: newLog(r.log)}
	if s.store != nil {
		cfg.Services = []Service{r.policyService(t, s)}
	}
	if s.deferral {
		cfg.Deferred = r.deferredService(t, s.kept)
	}
	if s.with != nil {
		s.with(&cfg)
	}
	r.server = newServer(r.service, cfg, s.codec)
	served := make(chan error, 1) // receives one value, never closed
	go func() { served <- r.server.Serve(l) }()
	t.Cleanup(func() {
		r.server.Drain(t.Context()) // which has ended by now
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	r.conn = dial(t, dialer)
	r.deferred = pb.NewDeferredServiceClient(r.conn)
	r.calls, r.policies = pb.NewCallServiceClient(r.conn), pb.NewPolicyServiceClient(r.conn)
	return r
}

// policyService opens the policies of a store beside those of the set-up, which count as those of a file.
func (r *running) policyService(t testing.TB, s setup) Service {
	t.Helper()
	all, table, err := admin.OpenPolicies(t.Context(), admin.PoliciesConfig{
		Store: s.store, Parse: ParsePolicyDocument, Generations: new(atomic.Uint64),
	}, s.rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.service.Replace(table)
	all.Enforce(func(table *policy.Table, _ []policy.Rule) { r.service.Replace(table) })
	return Service{Desc: pb.PolicyService_ServiceDesc, Impl: NewPolicyService(all, s.store, r.service.Table)}
}

// listen gives a listener and the way to it.
func listen(t testing.TB, memory bool) (net.Listener, func(context.Context, string) (net.Conn, error)) {
	t.Helper()
	if memory {
		l := bufconn.Listen(1 << 16)
		return l, func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l, func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}
}

// dial makes a client that sends messages of any size, so that a refusal is the server's.
func dial(t testing.TB, dialer func(context.Context, string) (net.Conn, error)) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///broker", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithContextDialer(dialer), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// compile makes a table whose waits are short and exact.
func compile(t testing.TB, rules ...policy.Rule) *policy.Table {
	t.Helper()
	base := policy.Rule{Name: policy.DefaultName, Revision: 1, File: true}
	base.Retry.Backoff = policy.BackoffRule{Base: new(time.Millisecond), Jitter: new(backoff.JitterNone)}
	table, err := policy.Compile(append([]policy.Rule{base}, rules...), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// contract is a policy with an idempotency contract for everything.
func contract() policy.Rule {
	r := policy.Rule{Name: "policies/contract", Revision: 7, File: true}
	r.Idempotency.Enabled = new(true)
	return r
}

// senderFunc is an upstream without HTTP.
type senderFunc func(ctx context.Context, c *call.Call) call.Result

func (f senderFunc) Send(ctx context.Context, c *call.Call, _ *policy.Effective, _ call.Attempt) call.Result {
	return f(ctx, c)
}

func answered(status int) call.Result {
	return call.Result{
		Evidence: call.EvidenceAnswered, Status: status, Protocol: "HTTP/1.1",
		Response: &call.Response{Status: status, Protocol: "HTTP/1.1"},
	}
}

// within bounds a test that would hang; nothing waits for it otherwise.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func get(url string) *pb.CallRequest {
	return &pb.CallRequest{Request: &pb.HttpRequest{Method: "GET", Url: url}}
}

// post is a request that is not to be repeated without a contract.
func post(url, id string) *pb.CallRequest {
	return &pb.CallRequest{Request: &pb.HttpRequest{Method: "POST", Url: url, Body: []byte("{}")}, OperationId: id}
}

// detail gives the first detail of that type, nil when the error has none.
func detail[D any](err error) *D {
	for _, d := range status.Convert(err).Details() {
		if found, ok := d.(*D); ok {
			return found
		}
	}
	return nil
}

// unsent gives the reason of an error that says for sure that nothing was sent; "" for any other.
func unsent(err error) string {
	info := detail[errdetails.ErrorInfo](err)
	if info.GetDomain() != "sallyport" || info.GetMetadata()["sent"] != "false" {
		return ""
	}
	return info.GetReason()
}

// logBuffer is a log that several goroutines write.
type logBuffer struct {
	mu   sync.Mutex // protects the fields below
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newLog(b *logBuffer) *slog.Logger { return slog.New(slog.NewJSONHandler(b, nil)) }
