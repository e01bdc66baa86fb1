package h1_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/egress/h1"
)

// model is an answer as a peer means it; wire is how it writes that, with every freedom the grammar leaves.
type model struct {
	interim  int
	minor    int
	status   int
	fields   []h1.Field
	body     string
	trailers []h1.Field
	framing  string // none, length, chunked, close
	close    bool
}

func drawModel(t *rapid.T) model {
	field := rapid.Custom(func(t *rapid.T) h1.Field {
		return h1.Field{
			// X- keeps clear of the fields that mean something to the reader.
			Name:  "X-" + rapid.StringMatching("[-!#$%&'*+.^_`|~0-9A-Za-z]{0,12}").Draw(t, "name"),
			Value: strings.Trim(string(rapid.SliceOfN(rapid.SampledFrom([]byte("ab:;,= \t\"\x80\xc3\xff")), 0, 20).Draw(t, "value")), " \t"),
		}
	})
	m := model{
		interim: rapid.IntRange(0, 3).Draw(t, "interim"),
		minor:   rapid.IntRange(0, 1).Draw(t, "minor"),
		status:  rapid.OneOf(rapid.SampledFrom([]int{200, 204, 205, 304, 404}), rapid.IntRange(200, 599)).Draw(t, "status"),
		fields:  rapid.SliceOfN(field, 0, 8).Draw(t, "fields"),
		close:   rapid.Bool().Draw(t, "close"),
	}
	size := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(8000, 30_000)).Draw(t, "size")
	m.body = strings.Repeat(rapid.StringN(1, 7, -1).Draw(t, "text"), size)[:size]
	m.framing = rapid.SampledFrom([]string{"length", "chunked", "close"}).Draw(t, "framing")
	switch {
	case m.status == 204 || m.status == 304:
		m.framing, m.body = "none", ""
	case m.minor == 0 && m.framing == "chunked":
		m.framing = "length"
	}
	if m.framing == "chunked" {
		m.trailers = rapid.SliceOfN(field, 0, 3).Draw(t, "trailers")
	}
	return m
}

// wire writes the answer, adding the framing fields to m.fields.
func (m *model) wire(t *rapid.T) string {
	var b strings.Builder
	eol := rapid.SampledFrom([]string{"\r\n", "\n"}).Draw(t, "eol")
	section := func(fields []h1.Field, eol string) {
		for _, f := range fields {
			before := rapid.SampledFrom([]string{"", " ", "\t  ", eol + " "}).Draw(t, "before")
			after := rapid.SampledFrom([]string{"", " ", "\t", eol + "\t"}).Draw(t, "after")
			value := f.Value
			if i := strings.IndexByte(value, ' '); i > 0 && rapid.Bool().Draw(t, "fold") {
				// A single space between other bytes may have been a fold.
				if !strings.ContainsAny(value[i-1:i]+value[i+1:i+2], " \t") {
					value = value[:i] + " \t" + eol + "\t" + value[i+1:]
				}
			}
			b.WriteString(f.Name + ":" + before + value + after + eol)
		}
		b.WriteString(eol)
	}
	for range m.interim {
		fmt.Fprintf(&b, "HTTP/1.1 103 Early%s", eol)
		section([]h1.Field{{Name: "X-Link", Value: "a"}}, eol)
	}
	fmt.Fprintf(&b, "HTTP/1.%d %d%s%s", m.minor, m.status, rapid.SampledFrom([]string{"", " ", " Some reason"}).Draw(t, "reason"), eol)
	switch {
	case m.close:
		m.fields = append(m.fields, h1.Field{Name: "Connection", Value: "close"})
	case m.minor == 0:
		m.fields = append(m.fields, h1.Field{Name: "connection", Value: "keep-alive"})
	}
	switch m.framing {
	case "length":
		m.fields = append(m.fields, h1.Field{Name: "content-Length", Value: fmt.Sprint(len(m.body))})
	case "chunked":
		m.fields = append(m.fields, h1.Field{Name: "Transfer-encoding", Value: "Chunked"})
	}
	m.fields = rapid.Permutation(m.fields).Draw(t, "order")
	section(m.fields, eol)
	if m.framing != "chunked" {
		b.WriteString(m.body)
		return b.String()
	}
	for rest, chunks := m.body, 0; rest != ""; chunks++ {
		n := min(len(rest), rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 20_000)).Draw(t, "chunk"))
		if chunks == 30 { // enough of small ones
			n = len(rest)
		}
		format := rapid.SampledFrom([]string{"%x\r\n%s\r\n", "%X;ext\r\n%s\r\n", "%04x\r\n%s\r\n"}).Draw(t, "format")
		fmt.Fprintf(&b, format, n, rest[:n])
		rest = rest[n:]
	}
	b.WriteString("0\r\n")
	section(m.trailers, "\r\n")
	return b.String()
}

func TestAnyValidAnswerReadsAsItWasMeant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		raw := m.wire(t)
		p := &peer{takes: -1}
		for rest := raw; rest != ""; {
			n := min(len(rest), rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(1, 20_000)).Draw(t, "piece"))
			if len(p.fragments) > 200 {
				n = len(rest)
			}
			p.fragments = append(p.fragments, []byte(rest[:n]))
			rest = rest[n:]
		}
		if m.framing != "close" {
			p.end = os.ErrDeadlineExceeded // an answer with an end of its own needs no other
		}
		c := h1.New(p)
		c.Start("GET", "/", "example.com")
		if err := c.Send(nil, true); err != nil {
			t.Fatal(err)
		}
		var r h1.Response
		if err := c.ReadResponse(&r, roomy()); err != nil {
			t.Fatalf("%v in %.300q", err, raw)
		}
		if r.Status != m.status || r.Minor != m.minor || string(r.Body) != m.body {
			t.Fatalf("HTTP/1.%d %d, %d bytes; want HTTP/1.%d %d, %d bytes", r.Minor, r.Status, len(r.Body), m.minor, m.status, len(m.body))
		}
		if !slices.Equal(r.Fields, m.fields) || !slices.Equal(r.Trailers, m.trailers) {
			t.Fatalf("fields %q, trailers %q; want %q, %q", r.Fields, r.Trailers, m.fields, m.trailers)
		}
		if closes := m.close || m.framing == "close"; r.Close != closes || c.Reusable() == closes {
			t.Fatalf("close %v, reusable %v; want close %v", r.Close, c.Reusable(), closes)
		}
	})
}
