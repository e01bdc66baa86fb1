// Command upstreams is the three services that the reading list depends on, each on a port of its own: identity, links, and a web site. They
// are slow, lose answers and fail on request (see the README), and forget everything when they end.
//
//	go run ./examples/reading-list/upstreams
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
	identity := flag.String("identity", "127.0.0.1:9001", "where identity listens; port 0: any")
	links := flag.String("links", "127.0.0.1:9002", "where links listens")
	pages := flag.String("pages", "127.0.0.1:9003", "where the web site listens")
	flag.Parse()
	err := serve([]upstream{
		{"identity", *identity, newIdentity()},
		{"links", *links, newLinks()},
		{"pages", *pages, newPages()},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// upstream is one of them.
type upstream struct {
	name, addr string
	handler    http.Handler
}

// serve answers until it is interrupted, or one of them ends.
func serve(upstreams []upstream) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ended := make(chan error, len(upstreams)) // receives one value of each
	for _, u := range upstreams {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", u.addr)
		if err != nil {
			return fmt.Errorf("%s: %w", u.name, err)
		}
		fmt.Printf("%s at http://%s\n", u.name, l.Addr())
		go func() { ended <- u.serve(ctx, l) }() // ends with the process
	}
	return <-ended
}

func (u upstream) serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: u.handler, ReadHeaderTimeout: 5 * time.Second}
	closed := context.AfterFunc(ctx, func() { _ = server.Close() }) // nothing of value is in flight
	defer closed()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", u.name, err)
	}
	return nil
}
