package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/deferred"
)

// dispatchesAtOnce bounds the attempts of deferred calls that run at once; a quarter of them go to one origin.
const dispatchesAtOnce = 256

// newQueue makes the queue of deferred calls, which are kept beside the operations; nil where those are not.
func newQueue(ledger *ledgerFile, calls *broker.CallService, log *slog.Logger) *deferred.Queue {
	if ledger == nil {
		return nil
	}
	kept := deferredFile{ledger}
	return deferred.New(deferred.Config{Store: kept, Keeper: kept, Dispatcher: broker.NewDispatcher(calls), Log: log, AtOnce: dispatchesAtOnce})
}

// rest makes what serves REST on the HTTP listener.
func (n *node) rest(s *settings, l net.Listener) (http.Handler, error) {
	n.inside = broker.NewInside()
	var err error
	if n.client, err = n.inside.Client(); err != nil {
		return nil, err
	}
	known := s.Tokens != "" || s.ClientCA != ""
	if !known && strings.HasPrefix(s.GRPC, unixPrefix) {
		return ownerOnly(), nil
	}
	tcp, _ := l.Addr().(*net.TCPAddr)
	loopback := tcp != nil && tcp.IP.IsLoopback()
	return broker.NewREST(broker.RESTConfig{
		Client: n.client, Known: n.server.Knows, Plain: loopback || s.Dev || s.PlainREST, OwnHosts: loopback && !known,
	})
}

// ownerOnly refuses REST where a unix socket keeps all but its owner from calling: a port of loopback is open to every user.
func ownerOnly() http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "REST needs --tokens where --grpc is a unix socket: whoever reaches this port would be its owner", http.StatusForbidden)
	}
}

// closeHTTP lets the last answers leave, and closes the HTTP port.
func (n *node) closeHTTP(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, httpLastWords)
	defer cancel()
	var err error
	if n.health.Shutdown(ctx) != nil { // whoever does not take his answer
		err = n.health.Close()
	}
	if err = errors.Join(err, n.client.Close()); err != nil {
		return fmt.Errorf("HTTP: %w", err)
	}
	return nil
}
