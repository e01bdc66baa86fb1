package broker

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/engine"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// watchPause is how long a watch says nothing after it said something, and how old what it says may be.
const watchPause = time.Second

// originNews is what watches say. All of them say it of the same pictures, one of which they make when the last one is too old: a
// watcher that is slow to take it holds up none, and ten cost hardly more than one.
type originNews struct {
	turn     chan struct{} // holds a value while somebody has the fields below
	watchers int
	last     map[string]*originNow // never changes itself; nil: there is none
	taken    time.Time
}

// originNow is how an origin stood when it was last seen to change.
type originNow struct {
	state  engine.OriginState
	forced *admin.Forced
	said   *pb.Origin // never changes
}

// WatchOrigins gives all origins, the mark, and then those that change, each at most once a second.
func (s *OriginService) WatchOrigins(req *pb.WatchOriginsRequest, stream grpc.ServerStreamingServer[pb.WatchOriginsResponse]) error {
	host, problem := hostFilter(req.GetHost())
	if err := invalid(problems(problem)); err != nil {
		return err
	}
	ctx := stream.Context()
	leave, err := s.news.join(ctx)
	if err != nil {
		return err
	}
	defer leave()
	w := &originWatch{stream: stream, host: host}
	pause := time.NewTimer(watchPause)
	defer pause.Stop()
	for oldest := time.Duration(0); ; oldest = watchPause { // at first as it stands now
		picture, err := s.picture(ctx, oldest)
		if err == nil {
			err = w.tell(picture)
		}
		if err != nil {
			return err
		}
		pause.Reset(watchPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// originWatch is what one watcher was told.
type originWatch struct {
	stream grpc.ServerStreamingServer[pb.WatchOriginsResponse]
	host   string
	told   map[string]*originNow // nil before the first time
}

// tell says what is new since the last time.
func (w *originWatch) tell(picture map[string]*originNow) error {
	changed := make([]*pb.Origin, 0, len(picture))
	for name, now := range picture {
		if now != w.told[name] && coversOrigin(w.host, name) {
			changed = append(changed, now.said)
		}
	}
	slices.SortFunc(changed, func(a, b *pb.Origin) int {
		x, y := rankOfOrigin(a), rankOfOrigin(b)
		return x.compare(&y)
	})
	for _, o := range changed {
		if err := w.stream.Send(&pb.WatchOriginsResponse{Origin: o}); err != nil {
			return err //nolint:wrapcheck // it is the status of the RPC
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.told)) {
		if picture[name] != nil || !coversOrigin(w.host, name) {
			continue
		}
		if err := w.stream.Send(&pb.WatchOriginsResponse{Origin: &pb.Origin{Origin: name}, Forgotten: true}); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	first := w.told == nil
	if w.told = picture; first {
		return w.stream.Send(&pb.WatchOriginsResponse{Synced: true}) //nolint:wrapcheck // as above
	}
	return nil
}

func rankOfOrigin(o *pb.Origin) rank {
	p := rank{name: o.GetOrigin()}
	if t := o.GetTroubleTime(); t != nil {
		p.trouble = t.AsTime().UnixNano()
	}
	return p
}

// join counts a watcher, until it leaves. Without any the picture is dropped.
func (n *originNews) join(ctx context.Context) (leave func(), err error) {
	if err := n.take(ctx); err != nil {
		return nil, err
	}
	n.watchers++
	n.giveBack()
	return func() {
		n.turn <- struct{}{}
		if n.watchers--; n.watchers == 0 {
			n.last = nil
		}
		n.giveBack()
	}, nil
}

func (n *originNews) take(ctx context.Context) error {
	select {
	case n.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (n *originNews) giveBack() { <-n.turn }

// picture gives all origins as they stand, or stood less than oldest ago.
func (s *OriginService) picture(ctx context.Context, oldest time.Duration) (map[string]*originNow, error) {
	n := &s.news
	if err := n.take(ctx); err != nil {
		return nil, err
	}
	defer n.giveBack()
	now := time.Now()
	if n.last != nil && now.Sub(n.taken) < oldest {
		return n.last, nil
	}
	n.last, n.taken = s.look(now, n.last), now
	return n.last, nil
}

// look makes a picture. What has not changed is the very same as in the last one.
func (s *OriginService) look(now time.Time, last map[string]*originNow) map[string]*originNow {
	picture := make(map[string]*originNow, len(last))
	add := func(state *engine.OriginState, forced *admin.Forced) {
		was := last[state.Name]
		if was == nil || !sameForce(was.forced, forced) || !was.state.Equal(state) {
			said := encodeOrigin(state, forced)
			if was == nil || !proto.Equal(was.said, said) { // there are differences that nobody is told
				was = &originNow{state: *state, forced: forced, said: said}
			}
		}
		picture[state.Name] = was
	}
	forced := s.forcedByOrigin()
	for _, state := range s.origins.Read(now, func(string) bool { return true }) {
		add(&state, forced[state.Name])
	}
	for name, f := range forced {
		if picture[name] == nil {
			add(&engine.OriginState{Name: name}, f)
		}
	}
	return picture
}

func sameForce(a, b *admin.Forced) bool { return a == b || a != nil && b != nil && *a == *b }
