package h2_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/h2"
)

func TestRequestOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		r := post([]byte("hello"))
		r.Field("Authorization", "Bearer s3cr3t")
		r.Field("x-a", "2")
		r.Field("X-Key", "k")
		r.Unindexed = []string{"x-key"}
		out := send(t.Context(), c, r, roomy())
		f := p.want(http2.FrameHeaders)
		var got []string
		for _, h := range f.fields {
			line := h.Name + "=" + h.Value
			if h.Sensitive {
				line += " (unindexed)"
			}
			got = append(got, line)
		}
		want := []string{
			":method=POST", ":scheme=https", ":authority=api.example.com", ":path=/a?b=c", "x-a=1",
			"authorization=Bearer s3cr3t (unindexed)", "x-a=2", "x-key=k (unindexed)", "content-length=5 (unindexed)",
		}
		if f.id != 1 || f.ends || !slices.Equal(got, want) {
			t.Errorf("stream %d, ends %v\n%q, want\n%q", f.id, f.ends, got, want)
		}
		if d := p.want(http2.FrameData); d.data != "hello" || !d.ends {
			t.Errorf("%v", d)
		}
		p.ok(1)
		if o := <-out; o.err != nil || o.Status != 200 {
			t.Errorf("%v", o)
		}
	})
}

func TestRequestsWithoutABodyEndWithTheirHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		for method, length := range map[string]string{"GET": "", "DELETE": "", "POST": "0"} {
			r := request(method, nil)
			r.Bodyless = length == ""
			out := send(t.Context(), c, r, roomy())
			f := p.want(http2.FrameHeaders)
			got := ""
			for _, h := range f.fields {
				if h.Name == "content-length" {
					got = h.Value
				}
			}
			if !f.ends || got != length {
				t.Errorf("%s: ends %v, length %q", method, f.ends, got)
			}
			p.ok(f.id)
			<-out
		}
	})
}

func TestAnswerHasNamesAsHTTP1WritesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		out := send(t.Context(), c, get(), roomy())
		id := p.want(http2.FrameHeaders).id
		p.head(id, false, ":status", "103", "link", "</a>")
		p.head(id, false, ":status", "200", "content-type", "text/plain", "set-cookie", "a=1", "x-two", " b\t", "set-cookie", "b=2", "x-bytes", "a\xff", "etag", "")
		p.data(id, false, "hel")
		p.data(id, false, "")
		p.data(id, false, "lo")
		p.head(id, true, "x-sum", "7", "content-length", "9", "te", "x", "host", "h", "x-sum", "8")
		o := <-out
		if o.err != nil || o.Status != 200 || string(o.Body) != "hello" {
			t.Fatalf("%v", o)
		}
		want := []call.Header{
			{Name: "Content-Type", Value: "text/plain"},
			{Name: "Set-Cookie", Value: "a=1"},
			{Name: "X-Two", Value: "b"},
			{Name: "Set-Cookie", Value: "b=2"},
			{Name: "X-Bytes", Value: "a\xff"},
			{Name: "Etag", Value: ""},
		}
		if !slices.Equal(o.Fields, want) {
			t.Errorf("fields %q", o.Fields)
		}
		if !slices.Equal(o.Trailers, []call.Header{{Name: "X-Sum", Value: "7"}, {Name: "X-Sum", Value: "8"}}) {
			t.Errorf("trailers %q", o.Trailers)
		}
	})
}

func TestWhatCannotBeWrittenIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		for name, change := range map[string]func(*h2.Request){
			"a blank in the target":    func(r *h2.Request) { r.Start("GET", "/a b", "h") },
			"no target":                func(r *h2.Request) { r.Start("GET", "", "h") },
			"a line break in the host": func(r *h2.Request) { r.Start("GET", "/", "h\nx") },
			"a blank in the method":    func(r *h2.Request) { r.Start("G T", "/", "h") },
			"a pseudo-header":          func(r *h2.Request) { r.Field(":path", "/b") },
			"a line break in a value":  func(r *h2.Request) { r.Field("X-B", "a\r\nx: y") },
			"a length":                 func(r *h2.Request) { r.Field("content-length", "9") },
			"a coding":                 func(r *h2.Request) { r.Field("Transfer-Encoding", "chunked") },
			"a connection":             func(r *h2.Request) { r.Field("Connection", "close") },
			"a body unannounced":       func(r *h2.Request) { r.Body = []byte("x") },
		} {
			r := get()
			change(r)
			o := <-send(t.Context(), c, r, roomy())
			if o.Sent || o.err == nil || !strings.HasPrefix(o.err.Error(), "request refused: ") {
				t.Errorf("%s: %v", name, o.err)
			}
		}
		answers(t, c, p)
	})
}

// TestLargeHeadsGoInSeveralFrames, both ways.
func TestLargeHeadsGoInSeveralFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := connect(t)
		r := get()
		value := strings.Repeat("v", 40_000)
		r.Field("X-Long", value)
		out := send(t.Context(), c, r, roomy())
		f := p.want(http2.FrameHeaders)
		if last := f.fields[len(f.fields)-1]; last.Name != "x-long" || last.Value != value || !f.ends {
			t.Errorf("%s, %d bytes, ends %v", last.Name, len(last.Value), f.ends)
		}
		p.head(f.id, true, ":status", "200", "x-long", value)
		if o := <-out; o.err != nil || len(o.Fields) != 1 || o.Fields[0].Value != value {
			t.Errorf("%v", o.err)
		}
		answers(t, c, p)
	})
}

func TestLimitIsThePeersWithinOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fresh, _ := connectSilent(t, nil)
		if n, said := fresh.Limit(); n != 1 || said || fresh.Greeted() {
			t.Errorf("before the settings: %d, %v", n, said)
		}
		for val, want := range map[uint32]int{7: 7, 0: 0, 1 << 31: 128} {
			c, p := connect(t, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: val})
			if n, said := c.Limit(); n != want || !said || !c.Greeted() {
				t.Errorf("%d: %d, %v", val, n, said)
			}
			p.write(func() error { return p.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 9}) })
			for f := range p.in {
				if f.ack {
					break
				}
			}
			if n := limit(c); n != 9 {
				t.Errorf("changed to 9: %d", n)
			}
		}
		if c, _ := connect(t); limit(c) != 128 {
			t.Errorf("unsaid: %d", limit(c))
		}
	})
}

func TestOneHundredStreamsAtOnce(t *testing.T) {
	c, p := connect(t)
	p.generous = true
	const n = 100
	var outs []<-chan outcome
	for range n {
		outs = append(outs, send(t.Context(), c, post([]byte(strings.Repeat("x", 1000))), roomy()))
	}
	go func() {
		for f := range p.in {
			if f.kind == http2.FrameData && f.ends {
				p.ok(f.id)
			}
		}
	}()
	for _, out := range outs {
		if o := <-out; o.err != nil || string(o.Body) != "ok" {
			t.Fatal(o.err)
		}
	}
}
