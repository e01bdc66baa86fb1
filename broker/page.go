package broker

import (
	"encoding/base64"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
)

// The sizes of a page.
const (
	defaultPage = 50
	maxPage     = 1000
)

// paged is a request for a page.
type paged interface {
	GetPageSize() int32
	GetPageToken() string
}

// page is what a request asks for: size things after the one that was last on the page before, "" for the first page.
type page struct {
	size         int
	after        string
	taken, bytes int // what is on it
}

// takes reports whether one more thing fits, and counts it. The first one always does. A page ends early where it would be larger than
// a stock client takes.
func (p *page) takes(thing proto.Message) bool {
	p.bytes += proto.Size(thing)
	if p.taken > 0 && (p.taken == p.size || p.bytes > maxPageBytes) {
		return false
	}
	p.taken++
	return true
}

// pageOf reads it. A token says after which thing a page begins, and not at which number, so that it survives what is inserted.
func pageOf(req paged) (page, error) {
	d := decoder{}
	p := page{size: int(req.GetPageSize())}
	switch {
	case p.size < 0:
		d.add("page_size", "is negative; leave it out for 50")
	case p.size == 0:
		p.size = defaultPage
	case p.size > maxPage:
		p.size = maxPage
	}
	if token := req.GetPageToken(); token != "" {
		raw, err := base64.RawURLEncoding.DecodeString(token)
		after, ok := strings.CutPrefix(string(raw), pageMark)
		if err != nil || !ok || after == "" {
			d.add("page_token", notAToken)
		}
		p.after = after
	}
	return p, invalid(d.violations)
}

const (
	// pageMark tells a token from something else that is base64.
	pageMark  = "after:"
	notAToken = "is none that a page ended with; leave it out for the first page"
)

// number reads what a page begins after where things are numbered; 0 for the first page.
func (p *page) number() (uint64, error) {
	if p.after == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(p.after, 10, 64)
	if err != nil || n <= 0 {
		d := decoder{}
		d.add("page_token", notAToken)
		return 0, invalid(d.violations)
	}
	return uint64(n), nil
}

// batch is how many numbered things are read at a time, so that a page that ends early for its bytes has read few that it does not give.
const batch = 20

// fillPage takes numbered things onto the page, the latest first, and gives the token of the next page; "" after the last. read gives those
// less than before, 0 for the latest.
func fillPage[T any](p *page, read func(before uint64, n int) ([]T, error), number func(*T) uint64, take func(*T) bool) (next string, err error) {
	last, err := p.number()
	for err == nil {
		var some []T
		if some, err = read(last, batch); err != nil {
			break
		}
		for i := range some {
			if !take(&some[i]) {
				return pageToken(strconv.FormatUint(last, 10)), nil
			}
			last = number(&some[i])
		}
		if len(some) < batch {
			return "", nil
		}
	}
	return "", err
}

func pageToken(last string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(pageMark + last))
}
