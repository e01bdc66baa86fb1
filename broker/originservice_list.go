package broker

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/breaker"
	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// maxPageBytes keeps a page within the 4 MiB that a stock client takes: one that would be larger has fewer origins.
const maxPageBytes = 3 << 20

// ListOrigins gives a page of the origins there are, the one with the most recent trouble first, then by name. A page begins behind the
// place where the one before ended, whatever came or went meanwhile. An origin that gets into trouble while pages are read goes to
// the front: who reads on will not see it.
func (s *OriginService) ListOrigins(_ context.Context, req *pb.ListOriginsRequest) (*pb.ListOriginsResponse, error) {
	filter, bad := filterOf(req)
	after, badToken := rankOf(req.GetPageToken(), filter)
	var badSize *call.InvalidError
	if req.GetPageSize() < 0 {
		badSize = &call.InvalidError{Field: "page_size", Problem: "must not be negative"}
	}
	if err := invalid(problems(append(bad, badSize, badToken)...)); err != nil {
		return nil, err
	}
	size := min(int(req.GetPageSize()), maxPage)
	if size == 0 {
		size = defaultPage
	}
	now := time.Now()
	forced := s.forcedByOrigin()
	all := s.listed(now, forced)
	all = slices.DeleteFunc(all, func(p rank) bool { return !filter.takes(&p) || after != nil && p.compare(after) <= 0 })
	slices.SortFunc(all, func(a, b rank) int { return a.compare(&b) })
	return s.page(now, all, forced, filter, size), nil
}

// page reads the origins at the first places, and says where the next page begins.
func (s *OriginService) page(now time.Time, all []rank, forced map[string]*admin.Forced, filter originFilter, size int) *pb.ListOriginsResponse {
	page := all[:min(size, len(all))]
	wanted := make(map[string]bool, len(page))
	for i := range page {
		wanted[page[i].name] = true
	}
	states := make(map[string]*engine.OriginState, len(page))
	for _, state := range s.origins.Read(now, func(name string) bool { return wanted[name] }) {
		states[state.Name] = &state
	}
	resp, bytes := &pb.ListOriginsResponse{}, 0
	for i := range page {
		state := states[page[i].name]
		if state == nil {
			if forced[page[i].name] == nil {
				continue // forgotten meanwhile
			}
			state = &engine.OriginState{Name: page[i].name}
		}
		origin := encodeOrigin(state, forced[page[i].name])
		if bytes += proto.Size(origin); bytes > maxPageBytes && i > 0 {
			resp.NextPageToken = page[i-1].token(filter)
			return resp
		}
		resp.Origins = append(resp.Origins, origin)
	}
	if len(page) < len(all) {
		resp.NextPageToken = page[len(page)-1].token(filter)
	}
	return resp
}

func (s *OriginService) forcedByOrigin() map[string]*admin.Forced {
	all := s.breakers.List()
	by := make(map[string]*admin.Forced, len(all))
	for i := range all {
		by[all[i].Origin] = &all[i]
	}
	return by
}

// listed are the places of all origins that were called of late, or are forced.
func (s *OriginService) listed(now time.Time, forced map[string]*admin.Forced) []rank {
	known := s.origins.Known(now)
	all := make([]rank, 0, len(known))
	called := make(map[string]bool, len(forced))
	for i := range known {
		k := &known[i]
		p := rank{name: k.Name, states: k.States}
		if !k.Trouble.IsZero() {
			p.trouble = k.Trouble.UnixNano()
		}
		if forced[k.Name] != nil {
			called[k.Name] = true
		}
		all = append(all, p)
	}
	for name, f := range forced {
		if called[name] {
			continue
		}
		state := breaker.Closed
		if f.Open {
			state = breaker.Open
		}
		all = append(all, rank{name: name, states: 1 << state})
	}
	return all
}

// rank is where an origin stands in a list.
type rank struct {
	name    string
	trouble int64 // nanoseconds of the epoch; 0: none
	states  uint8 // of its breakers, as in [engine.Known]
}

func (p *rank) compare(other *rank) int {
	return cmp.Or(cmp.Compare(other.trouble, p.trouble), cmp.Compare(p.name, other.name))
}

// token leads behind the place, for a list of the same filter.
func (p *rank) token(f originFilter) string {
	b := binary.BigEndian.AppendUint64(nil, f.sum())
	b = binary.BigEndian.AppendUint64(b, uint64(p.trouble)) //nolint:gosec // and back
	return base64.RawURLEncoding.EncodeToString(append(b, p.name...))
}

// rankOf reads a token; nil where there is none.
func rankOf(token string, f originFilter) (*rank, *call.InvalidError) {
	if token == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	switch {
	case err != nil || len(b) <= 16:
		return nil, &call.InvalidError{Field: "page_token", Problem: "is none that a page came with"}
	case binary.BigEndian.Uint64(b) != f.sum():
		return nil, &call.InvalidError{Field: "page_token", Problem: "is of a list with another state or host; begin that list anew"}
	}
	return &rank{trouble: int64(binary.BigEndian.Uint64(b[8:])), name: string(b[16:])}, nil //nolint:gosec // as above
}

// originFilter says which origins are wanted.
type originFilter struct {
	state breaker.State // 0: any
	host  string        // as policy.CoversHost reads it; "": any
}

func filterOf(req *pb.ListOriginsRequest) (f originFilter, bad []*call.InvalidError) {
	f.state = breaker.State(req.GetState())
	if f.state < 0 || f.state > breaker.HalfOpen {
		bad = append(bad, &call.InvalidError{Field: "state", Problem: "is no state of a breaker"})
	}
	var problem *call.InvalidError
	f.host, problem = hostFilter(req.GetHost())
	return f, append(bad, problem)
}

func hostFilter(pattern string) (string, *call.InvalidError) {
	if pattern == "" {
		return "", nil
	}
	host, problem := policy.HostPattern(pattern)
	if problem != "" {
		return "", &call.InvalidError{Field: "host", Problem: problem}
	}
	return host, nil
}

func (f *originFilter) takes(p *rank) bool {
	return (f.state == 0 || p.states&(1<<f.state) != 0) && coversOrigin(f.host, p.name)
}

func (f *originFilter) sum() uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, f.state, f.host)
	return h.Sum64()
}

// coversOrigin tells whether a pattern, "" for any, covers the host of an origin.
func coversOrigin(pattern, origin string) bool {
	if pattern == "" {
		return true
	}
	_, authority, _ := strings.Cut(origin, "://")
	host := authority[:max(strings.LastIndexByte(authority, ':'), 0)]
	return policy.CoversHost(pattern, strings.Trim(host, "[]"))
}
