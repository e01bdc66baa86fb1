package main

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"time"
)

// The limits of the HTTP port: its requests are small and its answers immediate.
const (
	httpHeaderTimeout = 5 * time.Second
	httpTimeout       = 10 * time.Second
	httpIdleTimeout   = time.Minute
	httpMaxHeader     = 16 << 10
	httpMaxConns      = 256
)

// newHTTP makes the server of the HTTP port: is the process alive, should it get calls, and what does it count. tlsConfig nil means
// cleartext.
func newHTTP(draining func() bool, metrics http.Handler, tlsConfig *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           paths(draining, metrics),
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
func paths(draining func() bool, metrics http.Handler) http.HandlerFunc {
	answer := func(w http.ResponseWriter, status int, text string) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n") // whoever asked has gone: nothing to do
	}
	return func(w http.ResponseWriter, r *http.Request) {
		known := r.URL.Path == "/healthz" || r.URL.Path == "/readyz" || r.URL.Path == "/metrics"
		switch {
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
