package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/policy"
)

// BenchmarkRoundTrip is one attempt on a connection that has served before: alone, and with the kernel and a server on the same machine
// which does no more than it must.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run("HTTP1 alone", func(b *testing.B) {
		tr := newTransport(b, func(cfg *Config) {
			cfg.Dial = func(context.Context, string, netip.AddrPort, func(netip.AddrPort) error) (net.Conn, error) {
				client, _ := net.Pipe()
				return &canned{Conn: client}, nil
			}
		})
		sendAgain(b, tr, loopback(b), newCall(b, "POST", "http://127.0.0.1:8080/v1/charges", `{"amount":1}`))
	})
	b.Run("HTTP1", func(b *testing.B) {
		u := newUpstream(b, curt)
		sendAgain(b, newTransport(b, nil), loopback(b), newCall(b, "POST", u.url("/v1/charges"), `{"amount":1}`))
	})
	a := newAuthority(b)
	for _, row := range []struct {
		name     string
		alpn     string
		protocol policy.Protocol
		serve    func(int, net.Conn)
	}{{"HTTP1", alpnHTTP1, policy.ProtocolHTTP11, curt}, {"HTTP2", alpnHTTP2, policy.ProtocolHTTP2, curt2}} {
		b.Run(row.name+" over TLS", func(b *testing.B) {
			u := newUpstream(b, overTLS(&tls.Config{Certificates: []tls.Certificate{a.server(b, nil)}, NextProtos: []string{row.alpn}}, row.serve))
			p := a.trusting(b)
			p.Attempt.Protocols = []policy.Protocol{row.protocol}
			c := newCall(b, "POST", secure(u, "/v1/charges"), `{"amount":1}`)
			b.Run("one by one", func(b *testing.B) { sendAgain(b, newTransport(b, nil), p, c) })
			b.Run("64 at once", func(b *testing.B) {
				tr := newTransport(b, nil)
				b.SetParallelism(64 / runtime.GOMAXPROCS(0))
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if r := tr.Send(b.Context(), c, p, attempt()); r.Status != 200 {
							b.Errorf("%s (%s)", r.Failure, r.Detail)
						}
					}
				})
			})
		})
	}
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

// curt2 answers every stream that ends, and looks at nothing else.
func curt2(_ int, c net.Conn) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	var out bytes.Buffer
	in, fr := http2.NewFramer(nil, bufio.NewReader(c)), http2.NewFramer(&out, nil)
	in.SetReuseFrames()
	err := fr.WriteSettings()
	for err == nil {
		if _, err = c.Write(out.Bytes()); err != nil {
			return
		}
		out.Reset()
		var f http2.Frame
		if f, err = in.ReadFrame(); err != nil {
			return
		}
		switch h := f.Header(); {
		case h.Type == http2.FrameSettings && !h.Flags.Has(http2.FlagSettingsAck):
			err = fr.WriteSettingsAck()
		case h.Type == http2.FrameData && h.Flags.Has(http2.FlagDataEndStream):
			_ = fr.WriteWindowUpdate(0, h.Length)
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: []byte("\x88\x0f\x0d\x012"), EndHeaders: true})
			err = fr.WriteData(h.StreamID, true, []byte("ok"))
		}
	}
}

func sendAgain(b *testing.B, tr *Transport, p *policy.Effective, c *call.Call) {
	b.Helper()
	c.Headers = []call.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Accept", Value: "*/*"}}
	b.ReportAllocs()
	for b.Loop() {
		if r := tr.Send(b.Context(), c, p, attempt()); r.Status != 200 {
			b.Fatalf("%s (%s)", r.Failure, r.Detail)
		}
	}
}
