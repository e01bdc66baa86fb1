package main

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"
)

// reset closes the connection as a crashed server does; it is no status of HTTP.
const reset = 0

// answers are what the requests for a package get, one after the other; the last one stays.
var answers = map[string][]int{
	"flaky":   {reset, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusOK},
	"missing": {http.StatusNotFound},
	"down":    {http.StatusServiceUnavailable},
}

// registry has three packages.
//
//	GET /packages/flaky      a reset connection, 503, 502, then 200
//	GET /packages/missing    404
//	GET /packages/down       503, always
//	GET /seen                when each was asked for, in milliseconds since the first request of all
type registry struct {
	http.Handler

	mu    sync.Mutex // protects the fields below
	began time.Time
	seen  map[string][]float64
}

func newRegistry() *registry {
	r := &registry{seen: map[string][]float64{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /packages/{name}", r.get)
	mux.HandleFunc("GET /seen", r.tell)
	r.Handler = mux
	return r
}

func (r *registry) get(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("name")
	script, ok := answers[name]
	if !ok {
		http.NotFound(w, req)
		return
	}
	code := script[min(r.note(name), len(script))-1]
	if code == reset {
		cut(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte("{}\n")) // whoever is gone needs no answer
}

// note notes the instant, and gives the number of the request.
func (r *registry) note(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.began.IsZero() {
		r.began = now
	}
	r.seen[name] = append(r.seen[name], float64(now.Sub(r.began).Microseconds())/1000)
	return len(r.seen[name])
}

func (r *registry) tell(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := json.Marshal(r.seen)
	if err != nil {
		panic(err) // strings and finite numbers
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}

// cut has the kernel send a RST, in place of a FIN.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
