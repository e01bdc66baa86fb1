// Command files is a small upstream to try out streams with (docs/streaming.md): it keeps what is PUT, gives it back to a GET, and tells
// of five events, one every half second. It forgets everything when it ends.
//
//	go run ./examples/files
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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

// serve answers until it is interrupted. The files are in a directory of its own, which goes with it.
func serve(addr string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "files")
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	defer func() { _ = root.Close() }() // nothing is written through it
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	fmt.Printf("files are kept at http://%s/NAME\n", l.Addr())
	server := &http.Server{Handler: newFiles(root, 500*time.Millisecond), ReadHeaderTimeout: 5 * time.Second}
	ended := context.AfterFunc(ctx, func() { _ = server.Close() }) // nothing of value is in flight
	defer ended()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("files: %w", err)
	}
	return nil
}

// newFiles keeps files in root; its events come one every so often.
func newFiles(root *os.Root, every time.Duration) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /{name}", func(w http.ResponseWriter, r *http.Request) {
		n, err := keep(root, r.PathValue("name"), r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "%d bytes kept\n", n) //nolint:gosec // a number; its client may be gone
	})
	mux.HandleFunc("GET /{name}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, root.FS(), r.PathValue("name")) //nolint:gosec // nothing leads out of an os.Root
	})
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 1; i <= 5; i++ {
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
			if _, err := fmt.Fprintf(w, "data: event %d\n\n", i); err != nil {
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
		}
	})
	return mux
}

// keep writes a file whole, or leaves the one that was there.
func keep(root *os.Root, name string, body io.Reader) (n int64, err error) {
	part := name + ".part"
	f, err := root.Create(part)
	if err != nil {
		return 0, err //nolint:wrapcheck // it names the file
	}
	n, err = io.Copy(f, body)
	if err = errors.Join(err, f.Close()); err != nil {
		return n, errors.Join(err, root.Remove(part))
	}
	return n, root.Rename(part, name) //nolint:wrapcheck // as above
}
