package main

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/sallyport/sallyport/broker"
)

// The limits of the HTTP port. What REST makes of them stands in package broker.
const (
	httpHeaderTimeout = 5 * time.Second
	httpTimeout       = 10 * time.Second
	httpIdleTimeout   = time.Minute
	httpMaxHeader     = 16 << 10
	httpMaxConns      = 1024
	// httpLastWords is how long answers have to leave once the broker has ended.
	httpLastWords = time.Second
)

// newHTTP makes the server of the HTTP port: is the process alive, should it get calls, what does it count, and REST. tlsConfig nil means
// cleartext.
func newHTTP(draining func() bool, metrics, rest http.Handler, tlsConfig *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           paths(draining, metrics, rest),
		TLSConfig:         tlsConfig.Clone(), // the server adds its protocols to it
		ReadHeaderTimeout: httpHeaderTimeout,
		ReadTimeout:       httpTimeout,
		WriteTimeout:      httpTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    httpMaxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// paths is a plain switch: a mux would clean paths and answer a redirect where nothing is.
func paths(draining func() bool, metrics, rest http.Handler) http.HandlerFunc {
	answer := func(w http.ResponseWriter, status int, text string) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n") // whoever asked has gone: nothing to do
	}
	return func(w http.ResponseWriter, r *http.Request) {
		known := r.URL.Path == "/healthz" || r.URL.Path == "/readyz" || r.URL.Path == "/metrics"
		switch {
		case broker.IsREST(r.URL.Path):
			rest.ServeHTTP(w, r)
		case !known:
			answer(w, http.StatusNotFound, "not found")
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			answer(w, http.StatusMethodNotAllowed, "use GET")
		case r.URL.Path == "/metrics":
			w.Header().Set("X-Content-Type-Options", "nosniff")
			metrics.ServeHTTP(w, r)
		case r.URL.Path == "/readyz" && draining():
			answer(w, http.StatusServiceUnavailable, "draining")
		default:
			answer(w, http.StatusOK, "ok")
		}
	}
}
