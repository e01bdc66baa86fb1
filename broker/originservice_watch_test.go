package broker

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/admin"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// watched is what a watcher was told, and when.
type watched struct {
	begin time.Time
	ended chan struct{} // closed when the watch is over

	mu  sync.Mutex // protects the fields below
	all []string
	err error
}

// watch notes the words of a watch until it is over.
func (o *operated) watch(ctx context.Context, t testing.TB, host string) *watched {
	t.Helper()
	stream, err := o.origins.WatchOrigins(ctx, &pb.WatchOriginsRequest{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{begin: time.Now(), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for {
			resp, err := stream.Recv()
			if err != nil {
				w.note(err, "")
				return
			}
			w.note(nil, summary(resp))
		}
	}()
	return w
}

func summary(resp *pb.WatchOriginsResponse) string {
	host := strings.TrimSuffix(strings.TrimPrefix(resp.GetOrigin().GetOrigin(), "https://"), ".example.com:443")
	switch {
	case resp.GetSynced() && resp.GetOrigin() == nil:
		return "synced"
	case resp.GetForgotten():
		return host + " forgotten"
	}
	text := host
	for _, s := range resp.GetOrigin().GetScopes() {
		text += fmt.Sprintf(" %s %d", strings.ToLower(strings.TrimPrefix(s.GetBreaker().GetState().String(), "BREAKER_STATE_")), s.GetBudget().GetFirsts())
	}
	if f := resp.GetOrigin().GetForced(); f != nil {
		text += " forced"
	}
	return text
}

func (w *watched) note(err error, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = err; err == nil {
		w.all = append(w.all, fmt.Sprintf("%s: %s", time.Since(w.begin), text))
	}
}

// heard gives what was said since the last time.
func (w *watched) heard() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

func (w *watched) end() error {
	<-w.ended
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func TestWatchGivesAllThenChangesOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operate(t, true, &breakerMemory{}, nil, strict())
		o.call(t, "b.example.com")
		o.call(t, "a.example.com")
		ctx, cancel := context.WithCancel(t.Context())
		w := o.watch(ctx, t, "")
		other := o.watch(ctx, t, "a.example.com")
		expect := func(step string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := w.heard(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", step, got, want)
			}
		}
		expect("all", "0s: a closed 1", "0s: b closed 1", "0s: synced")
		time.Sleep(300 * time.Millisecond)
		for range 3 {
			o.call(t, "b.example.com")
		}
		expect("nothing yet")
		time.Sleep(700 * time.Millisecond)
		expect("three calls at once", "1s: b closed 4")
		time.Sleep(5 * time.Second)
		expect("nothing happened")
		o.upstream.with(answered(500))
		time.Sleep(100 * time.Millisecond)
		o.call(t, "a.example.com")
		o.call(t, "a.example.com")
		o.call(t, "new.example.com")
		time.Sleep(900 * time.Millisecond)
		expect("one opened, one is new", "7s: a open 3", "7s: new closed 1")
		time.Sleep(time.Second)
		expect("its open time is over", "8s: a half_open 3")
		time.Sleep(3 * time.Second) // the window slides over the first calls
		expect("a window passed", "10s: a half_open 2", "10s: b closed 0")
		time.Sleep(20 * time.Second)
		expect("another", "17s: a half_open 0", "17s: new closed 0")
		o.set(t, "https://b.example.com", forcedOpen, time.Time{})
		o.set(t, "https://never.example.com", forcedOpen, time.Time{})
		time.Sleep(time.Second)
		expect("forced", "32s: b open 0 forced", "32s: never forced")
		o.set(t, "https://never.example.com", auto, time.Time{})
		time.Sleep(time.Second)
		expect("forgotten", "33s: never forgotten")
		if got := other.heard(); len(got) == 0 || slices.ContainsFunc(got, func(text string) bool { return !strings.Contains(text, "s: a ") && !strings.Contains(text, "synced") }) {
			t.Errorf("the watch of one host: %q", got)
		}

		o.engine.Sweep(time.Now().Add(3 * time.Hour))
		time.Sleep(time.Second)
		expect("hours later", "34s: a forgotten", "34s: new forgotten")
		cancel()
		if err := w.end(); status.Code(err) != codes.Canceled {
			t.Errorf("at the end: %v", err)
		}
		synctest.Wait()
		if n := &o.service.news; n.watchers != 0 || n.last != nil {
			t.Errorf("%d watchers are left, and a picture of %d", n.watchers, len(n.last))
		}
	})
}

func TestWatchEndsWithTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := operate(t, true, &breakerMemory{}, nil)
		w := o.watch(t.Context(), t, "")
		time.Sleep(1500 * time.Millisecond)
		begin := time.Now()
		o.server.Drain(t.Context())
		if err := w.end(); status.Code(err) != codes.Unavailable || unsent(err) != "DRAINING" {
			t.Errorf("the watch: %v", err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("the drain took %s", took)
		}
	})
}

// A watcher that takes nothing holds up nobody: not other watchers, not an operator, and a drain for seconds only.
func TestWatcherThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &breakerMemory{forced: map[string]admin.Forced{}}
		for i := range 1000 {
			name := fmt.Sprintf("https://host%d.example.com:443", i)
			store.forced[name] = admin.Forced{Origin: name, Reason: strings.Repeat("x", 1024)}
		}
		o := operate(t, true, store, nil)
		if _, err := o.origins.WatchOrigins(t.Context(), &pb.WatchOriginsRequest{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w := o.watch(t.Context(), t, "api.example.com")
		synctest.Wait()
		o.set(t, apiOrigin, forcedOpen, time.Time{})
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.heard(); !slices.Equal(got, []string{"0s: synced", "1s: api forced"}) {
			t.Errorf("another watcher: %q", got)
		}
		begin := time.Now()
		o.server.Drain(t.Context())
		// What it was to be told is not written any more; what has its place in the connection is waited for as for any reply.
		if took := time.Since(begin); took != lastReplies {
			t.Errorf("the drain took %s", took)
		}
	})
}

// Who forces a breaker is the authenticated caller, and each role does what it may.
func TestRolesOfTheOriginService(t *testing.T) {
	ids := &Identities{tokens: map[[sha256.Size]byte]identity{
		sha256.Sum256([]byte("c")): {name: "carl", roles: []Role{RoleCaller}},
		sha256.Sum256([]byte("v")): {name: "vera", roles: []Role{RoleViewer}},
		sha256.Sum256([]byte("o")): {name: "olga", roles: []Role{RoleOperator, RoleViewer}},
	}}
	synctest.Test(t, func(t *testing.T) {
		o := operate(t, true, &breakerMemory{}, ids)
		as := func(token string) context.Context {
			return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		}
		rpcs := map[string]func(ctx context.Context) error{
			"set": func(ctx context.Context) error {
				_, err := o.origins.SetBreaker(ctx, &pb.SetBreakerRequest{Origin: apiOrigin, Mode: forcedOpen, Reason: "why"})
				return err
			},
			"reset": func(ctx context.Context) error {
				_, err := o.origins.ResetOrigin(ctx, &pb.ResetOriginRequest{Origin: apiOrigin})
				return err
			},
			"list": func(ctx context.Context) error {
				_, err := o.origins.ListOrigins(ctx, &pb.ListOriginsRequest{})
				return err
			},
			"get": func(ctx context.Context) error {
				_, err := o.origins.GetOrigin(ctx, &pb.GetOriginRequest{Origin: apiOrigin})
				return err
			},
			"watch": func(ctx context.Context) error {
				w, err := o.origins.WatchOrigins(ctx, &pb.WatchOriginsRequest{})
				if err == nil {
					_, err = w.Recv()
				}
				return err
			},
		}
		for _, row := range []struct{ token, may string }{{"o", "set reset list get watch"}, {"v", "list get watch"}, {"c", ""}, {"x", ""}} {
			for _, rpc := range []string{"set", "reset", "list", "get", "watch"} {
				err := rpcs[rpc](as(row.token))
				want := codes.OK
				if !strings.Contains(" "+row.may+" ", " "+rpc+" ") {
					if want = codes.PermissionDenied; row.token == "x" {
						want = codes.Unauthenticated
					}
				}
				if status.Code(err) != want {
					t.Errorf("%s as %s: %v, want %s", rpc, row.token, err, want)
				}
			}
		}
		if all := o.store.audit(); len(all) != 2 || all[0].Principal != "olga" || all[1].Principal != "olga" {
			t.Errorf("audit %+v", all)
		}
	})
}
