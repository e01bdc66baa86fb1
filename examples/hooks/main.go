// Command hooks is a small upstream that fails three times and then succeeds, to try out deferred calls with (docs/deferred.md). It does
// nothing with what it takes, and forgets everything when it ends.
//
//	go run ./examples/hooks
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9000", "where to listen; port 0: any")
	flag.Parse()
	if err := serve(*addr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers until it is interrupted.
func serve(addr string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("hooks: %w", err)
	}
	fmt.Printf("hooks are taken at http://%s/hooks\n", l.Addr())
	server := &http.Server{Handler: newHooks(), ReadHeaderTimeout: 5 * time.Second}
	ended := context.AfterFunc(ctx, func() { _ = server.Close() }) // nothing of value is in flight
	defer ended()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("hooks: %w", err)
	}
	return nil
}
