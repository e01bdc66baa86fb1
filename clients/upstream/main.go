// Command upstream is the server that the client programs call through a broker: one path that answers, one that loses the
// answer, one that never ends, one that always fails.
//
//	go run ./clients/upstream
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/sallyport/sallyport/internal/polyglot/upstream"
)

func main() {
	const addr = "127.0.0.1:8000"
	fmt.Println("an upstream at http://" + addr)
	server := &http.Server{Addr: addr, Handler: upstream.New(), ReadHeaderTimeout: 10 * time.Second}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
