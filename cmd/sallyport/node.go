package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/egress"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/policy"
	"github.com/sallyport/sallyport/store/sqlite"
	"github.com/sallyport/sallyport/tracing"
)

const (
	// defaultMaxTimeout is deadline.max_timeout where no policy sets it.
	defaultMaxTimeout = time.Minute
	// drainGrace is for encoding the last replies.
	drainGrace = 5 * time.Second
)

// node is one running broker: listeners, services, and what they stand on.
type node struct {
	grpc, http net.Addr
	admin      net.Addr // nil where there is none

	transport *egress.Transport
	observer  *tracing.Observer
	server    *broker.Server
	health    *http.Server
	serving   errgroup.Group // the servers
	failed    chan error     // receives at most one value from each server; never closed
	longest   atomic.Int64   // nanoseconds; no call lasts longer
	state     *brokerState
	files     *reloader
	sweeps    *sweeper
	store     *sqlite.Store
	engine    *engine.Engine
	inside    *broker.Inside        // for REST
	client    *grpc.ClientConn      // of inside
	deferred  *deferred.Queue       // nil as ledger
	ledger    *ledgerFile           // nil where several brokers serve the same callers
	asked     *operation.Operations // nil as ledger
	breakers  *admin.Breakers
	lastGood  *lastGood
	log       *slog.Logger
}

// startNode reads the files, listens, and serves. Its order keeps a start that fails without a trace: files are read before
// anything is opened, and the start is counted only once the ports are ours.
func startNode(ctx context.Context, s *settings, log *slog.Logger) (*node, error) {
	sources := newSources(s)
	in, err := loadInputs(ctx, s, log)
	if err != nil {
		return nil, usage(err)
	}
	ls, err := listenAll(ctx, s)
	if err != nil {
		return nil, err
	}
	machine, err := local()
	if err != nil {
		return nil, failure(ls.closing(err))
	}
	state, err := openState(s.Data)
	if err != nil {
		return nil, failure(ls.closing(err))
	}
	store, table, err := openStore(ctx, s.Data, in.rules, log)
	if err != nil {
		return nil, failure(errors.Join(ls.closing(err), state.close()))
	}
	origins := engine.NewOrigins()
	breakers, err := admin.LoadBreakers(ctx, store, origins)
	if err != nil {
		return nil, failure(errors.Join(ls.closing(err), store.Close(), state.close())) //nolint:contextcheck // what is given back is given back in any case
	}
	g := guard.New(guard.Config{Special: s.AllowSpecial, Own: own(ls.all()...), Local: machine, Dev: s.Dev})
	n := &node{
		grpc: ls.grpc.Addr(), http: ls.http.Addr(), observer: in.observer,
		transport: egress.New(egress.Config{Guard: g, UserAgent: "sallyport/" + programVersion()}),
		failed:    make(chan error, 4),
		state:     state,
		files:     newReloader(sources.all()...),
		sweeps:    newSweeper(origins.Sweep),
		store:     store,
		breakers:  breakers,
		ledger:    openLedger(ctx, s, log),
		lastGood:  newLastGood(s.Data, in.rules.all, log),
		log:       log,
	}
	if ls.admin != nil {
		n.admin = ls.admin.Addr()
	}
	n.longest.Store(int64(longestCall(in.rules.all.Rules())))
	n.engine = engine.New(n.transport, n.observer, g, origins)
	if n.ledger != nil {
		n.asked = broker.NewOperations(operation.Config{Ledger: n.ledger, Keeper: n.ledger, Owner: state.process(), Log: log}, n.observer)
	}
	calls := broker.NewCallService(broker.CallConfig{
		Engine: n.engine, Observer: n.observer, Operations: n.asked,
		BrokerID: state.String(), Log: log, AccessLog: s.AccessLog, Limits: s.Limits,
	}, table)
	in.rules.all.Enforce(n.enforcing(calls))
	n.deferred = newQueue(n.ledger, calls, log)
	calls.HandOverTo(n.deferred)
	n.server = broker.NewServer(calls, broker.ServerConfig{ //nolint:contextcheck // its handlers take the context of their stream
		Identities: in.identities, TLS: in.certificate.config(), Authorities: in.authorities, Log: log, Apart: ls.admin != nil,
		Deferred: broker.NewDeferredService(calls, n.deferred),
		Services: []broker.Service{
			{Desc: pb.PolicyService_ServiceDesc, Impl: broker.NewPolicyService(in.rules.all, store, calls.Table)},
			{Desc: pb.OriginService_ServiceDesc, Impl: broker.NewOriginService(origins, breakers)},
		},
	})
	rest, err := n.rest(s, ls.http) //nolint:contextcheck // its connection outlives the start
	if err != nil {
		return nil, failure(errors.Join(ls.closing(err), n.ledger.Close(), store.Close(), state.close())) //nolint:contextcheck // as above
	}
	n.health = newHTTP(n.server.Draining, n.observer.Scrape(log), rest, in.certificate.config(), log)
	told := reloadLog{log, n.observer.Reloaded}
	sources.rules.reload = func() { in.rules.reload(told) } //nolint:contextcheck // a reload outlives the start
	sources.tokens.reload = func() { reloadTokens(s, n.server, told) }
	sources.certificate.reload = func() { in.certificate.reload(told) }
	sources.authorities.reload = func() { reloadAuthorities(in.authorities, told) }
	n.watch(s, origins)
	announce(s, n, in.rules.all.Rules(), state, log)
	n.serve(ls)
	if n.deferred != nil {
		n.deferred.Run() //nolint:contextcheck // its attempts outlive the start
	}
	go n.files.run()
	go n.sweeps.run()
	go n.lastGood.run()
	return n, nil
}

func (n *node) serve(ls *listeners) {
	n.serving.Go(func() error {
		if err := n.server.Serve(ls.grpc); err != nil {
			n.failed <- fmt.Errorf("gRPC listener: %w", err)
		}
		return nil
	})
	n.serving.Go(func() error {
		if err := n.server.Serve(n.inside); err != nil {
			n.failed <- fmt.Errorf("listener within the process: %w", err)
		}
		return nil
	})
	if ls.admin != nil {
		n.serving.Go(func() error {
			if err := n.server.ServeAdmin(ls.admin); err != nil {
				n.failed <- fmt.Errorf("admin listener: %w", err)
			}
			return nil
		})
	}
	n.serving.Go(func() error {
		serve := n.health.Serve
		if n.health.TLSConfig != nil {
			serve = func(l net.Listener) error { return n.health.ServeTLS(l, "", "") }
		}
		if err := serve(broker.LimitConns(ls.http, httpMaxConns)); !errors.Is(err, http.ErrServerClosed) {
			n.failed <- fmt.Errorf("HTTP listener: %w", err)
		}
		return nil
	})
}

// enforcing puts a new table in force. Calls that come from now on have it; those in flight keep theirs, and no connection made under
// it outlives them.
func (n *node) enforcing(calls *broker.CallService) func(*policy.Table, []policy.Rule) {
	return func(t *policy.Table, rules []policy.Rule) {
		n.longest.Store(max(n.longest.Load(), int64(longestCall(rules)))) // of the calls in flight too
		calls.Replace(t)
		n.transport.Retire(t.Generation())
	}
}

// stop drains and ends the node: calls in flight finish within their deadlines, or end when ctx does. It returns after every
// goroutine of the node has ended.
func (n *node) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n.longest.Load())+drainGrace)
	defer cancel()
	var attempts sync.WaitGroup
	if n.deferred != nil {
		attempts.Go(func() { n.deferred.Close(ctx) })
	}
	n.server.Drain(ctx) // first of all: from now on no call is taken
	attempts.Wait()
	n.engine.Wait(ctx) // for answers that their callers did not wait for
	lastWrites, cancelWrites := context.WithTimeout(context.WithoutCancel(ctx), drainGrace)
	defer cancelWrites()
	if n.asked != nil {
		n.asked.Close(lastWrites)
	}
	n.files.close()
	n.sweeps.close()
	n.lastGood.close()
	n.breakers.Close()
	err := n.closeHTTP(lastWrites) // to the last moment it told that the broker drains
	_ = n.serving.Wait()           // they report through failed
	n.transport.Close()
	if err := n.observer.Close(ctx); err != nil {
		n.log.Warn("the last spans were not exported", "error", err)
	}
	if err = errors.Join(err, n.ledger.Close(), n.store.Close(), n.state.close()); err != nil { //nolint:contextcheck // as above
		return fmt.Errorf("at the end: %w", err)
	}
	return nil
}

// longestCall is the highest deadline.max_timeout there is.
func longestCall(rules []policy.Rule) time.Duration {
	longest := defaultMaxTimeout
	for i := range rules {
		if d := rules[i].Deadline.MaxTimeout; d != nil {
			longest = max(longest, *d)
		}
	}
	return longest
}

// announce says once what an operator should know of this start.
func announce(s *settings, n *node, rules []policy.Rule, state *brokerState, log *slog.Logger) {
	if s.Dev {
		log.Warn("dev mode: calls may go to loopback addresses of this machine, on any port; not for production")
	}
	if s.Insecure {
		log.Warn("insecure: the listeners may be off loopback without TLS, or without tokens and client certificates; whoever reaches them may call")
	}
	for _, p := range s.AllowSpecial {
		log.Warn("allow-special: this range is opened although it is reserved, link-local or the like", "range", p.String())
	}
	where := []any{"grpc", address(n.grpc), "http", address(n.http)}
	if n.admin != nil {
		where = append(where, "admin", address(n.admin))
	}
	log.Info("serving", append(where, "version", programVersion(), "policies", len(rules), "broker_id", state.String())...)
}

// address is how a client writes it.
func address(a net.Addr) string {
	if a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return a.String()
}
