package egress

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/sallyport/sallyport/call"
)

// BenchmarkRoundTrip is one attempt on a connection that has served before: alone, and with the kernel and a server on the same machine
// which does no more than it must.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run("HTTP/1.1 alone", func(b *testing.B) {
		tr := newTransport(b, func(cfg *Config) {
			cfg.Dial = func(context.Context, string, netip.AddrPort, func(netip.AddrPort) error) (net.Conn, error) {
				client, _ := net.Pipe()
				return &canned{Conn: client}, nil
			}
		})
		sendAgain(b, tr, newCall(b, "POST", "http://127.0.0.1:8080/v1/charges", `{"amount":1}`))
	})
	b.Run("HTTP/1.1", func(b *testing.B) {
		u := newUpstream(b, curt)
		sendAgain(b, newTransport(b, nil), newCall(b, "POST", u.url("/v1/charges"), `{"amount":1}`))
	})
}

// canned answers every read at once.
type canned struct{ net.Conn }

func (*canned) Read(b []byte) (int, error)    { return copy(b, okAnswer), nil }
func (*canned) Write(b []byte) (int, error)   { return len(b), nil }
func (*canned) ReadNow(_ []byte) (int, error) { return 0, errNothingYet }

// curt answers every request that ends in a brace, and looks at nothing else of it.
func curt(_ int, c net.Conn) {
	in := make([]byte, 4<<10)
	for n := 0; ; {
		m, err := c.Read(in[n:])
		if err != nil {
			return
		}
		if n += m; !bytes.HasSuffix(in[:n], []byte("}")) {
			continue
		}
		n = 0
		if _, err := io.WriteString(c, okAnswer); err != nil {
			return
		}
	}
}

func sendAgain(b *testing.B, tr *Transport, c *call.Call) {
	b.Helper()
	p := loopback(b)
	c.Headers = []call.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Accept", Value: "*/*"}}
	b.ReportAllocs()
	for b.Loop() {
		if r := tr.Send(b.Context(), c, p, attempt()); r.Status != 200 {
			b.Fatalf("%s (%s)", r.Failure, r.Detail)
		}
	}
}
