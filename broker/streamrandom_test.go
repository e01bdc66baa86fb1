package broker

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// scene is how the upstream of one stream behaves, in request after request, the last for all that follow.
type scene struct {
	Read    int // bytes of the body it reads before it answers; -1: all
	Status  int // 0: it closes the connection instead
	Body    int // bytes of the answer
	Breaks  int // after so many of them the connection is closed; -1: never
	Pieces  int // in how many writes they are sent
	Pausing bool
}

// saw is what the upstream saw of one request.
type saw struct {
	body  []byte
	whole bool // to its end
}

// theatre plays the scenes of streams by their number.
type theatre struct {
	mu   sync.Mutex // protects the rest
	now  map[string][]scene
	seen map[string][]*saw
}

func (th *theatre) enter(id string) (scene, *saw) {
	th.mu.Lock()
	defer th.mu.Unlock()
	scenes, s := th.now[id], &saw{}
	th.seen[id] = append(th.seen[id], s)
	return scenes[min(len(th.seen[id]), len(scenes))-1], s
}

func (th *theatre) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sc, s := th.enter(r.Header.Get("X-Id"))
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is so by itself
	var got bytes.Buffer
	var err error
	if sc.Read < 0 {
		_, err = io.Copy(&got, r.Body)
	} else {
		_, err = io.CopyN(&got, r.Body, int64(sc.Read))
	}
	th.mu.Lock()
	s.body, s.whole = got.Bytes(), sc.Read < 0 && err == nil
	th.mu.Unlock()
	if sc.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(sc.Status)
	down, sent := pattern(sc.Body), 0
	for i := range sc.Pieces {
		piece := down[sent : sc.Body*(i+1)/sc.Pieces]
		if sc.Breaks >= 0 && sent+len(piece) > sc.Breaks {
			_, _ = w.Write(piece[:sc.Breaks-sent])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(piece)
		_ = http.NewResponseController(w).Flush()
		if sent += len(piece); sc.Pausing {
			pause(r.Context(), time.Millisecond)
		}
	}
	if sc.Breaks >= 0 {
		panic(http.ErrAbortHandler)
	}
}

// saw is what was seen of that stream so far.
func (th *theatre) saw(id string) (all []saw) {
	th.mu.Lock()
	defer th.mu.Unlock()
	for _, s := range th.seen[id] {
		all = append(all, *s)
	}
	return all
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Whatever upstream and caller do, what the stream tells is what the upstream saw: nothing else is passed on, nothing is sent again that must
// not be, and nothing is left behind.
func TestStreamTellsWhatTheUpstreamSaw(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			th := &theatre{now: make(map[string][]scene), seen: make(map[string][]*saw)}
			up := newWeb(t, protocol, th.ServeHTTP)
			up.rule.Body.ReplayBytes = new(uint64(100 << 10))
			// Nothing one stream does is to refuse another.
			up.rule.Retry.Hold = new(false)
			up.rule.Breaker.ConsecutiveFailures, up.rule.Breaker.MinRequests = new(uint32(1<<30)), new(uint32(1<<30))
			up.rule.Budget.Limit = &policy.BudgetLimitRule{Window: &policy.BudgetWindowRule{MinPerSecond: new(1e6)}}
			r := start(t, setup{rules: []policy.Rule{up.rule}})
			next := 0
			size := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(60<<10, 70<<10), rapid.IntRange(90<<10, 400<<10))
			rapid.Check(t, func(rt *rapid.T) {
				next++
				id := strconv.Itoa(next)
				scenes := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) scene {
					return scene{
						Read:    rapid.OneOf(rapid.Just(-1), size).Draw(rt, "read"),
						Status:  rapid.SampledFrom([]int{200, 200, 200, 503, 404, 0}).Draw(rt, "status"),
						Body:    size.Draw(rt, "answer"),
						Breaks:  rapid.SampledFrom([]int{-1, -1, 0, 100}).Draw(rt, "breaks"),
						Pieces:  rapid.IntRange(1, 4).Draw(rt, "pieces"),
						Pausing: rapid.Bool().Draw(rt, "pausing"),
					}
				}), 1, 3).Draw(rt, "scenes")
				for i := range scenes {
					scenes[i].Breaks = min(scenes[i].Breaks, scenes[i].Body)
				}
				method := rapid.SampledFrom([]string{"GET", "PUT", "POST"}).Draw(rt, "method")
				body := pattern(size.Draw(rt, "body"))
				leaves := time.Duration(rapid.OneOf(rapid.Just(0), rapid.Just(0), rapid.IntRange(1, 5000)).Draw(rt, "leaves after")) * time.Microsecond
				th.mu.Lock()
				th.now[id] = scenes
				th.mu.Unlock()

				req := headOf(method, up.URL)
				req.Request.Headers = []*pb.HttpHeader{{Name: "X-Id", Value: id}}
				ctx, leave := context.WithTimeout(t.Context(), 10*time.Second)
				defer leave()
				stream := r.open(ctx, t, req)
				if leaves > 0 {
					defer time.AfterFunc(leaves, leave).Stop()
				}
				h := talk(t, stream, bytes.NewReader(body))
				r.emptied(t)
				if h.err != nil && leaves == 0 {
					rt.Fatal(h.err)
				}
				judge(rt, &h, method, body, scenes, th.saw(id))
			})
		})
	}
}

// Of an answer that broke off the caller has a part: the result has no older one beside it.
func TestStreamThatBrokeOffHasNoOlderAnswer(t *testing.T) {
	for _, protocol := range protocols {
		th := &theatre{seen: make(map[string][]*saw), now: map[string][]scene{"a": {
			{Read: -1, Status: 503, Body: 10, Breaks: -1, Pieces: 1},
			{Read: -1, Status: 200, Body: 1000, Breaks: 100, Pieces: 2},
		}}}
		up := newWeb(t, protocol, th.ServeHTTP)
		r := start(t, setup{rules: []policy.Rule{up.rule}})
		req := headOf("GET", up.URL)
		req.Request.Headers = []*pb.HttpHeader{{Name: "X-Id", Value: "a"}}
		h := r.stream(within(t), t, req, nil)
		h.wants(t, "UNKNOWN/BODY_NOT_REPLAYABLE/ANSWERED: ANSWERED,PARTIAL_RESPONSE", 200, string(pattern(100)))
		if h.result.GetResponse() != nil {
			t.Errorf("%s: the result has an answer: %v", protocol, h.result.GetResponse())
		}
	}
}

// judge holds what a stream told its caller to what the upstream saw.
func judge(t *rapid.T, h *heard, method string, body []byte, scenes []scene, seen []saw) {
	for i, s := range seen {
		if !bytes.HasPrefix(body, s.body) || s.whole && len(s.body) != len(body) {
			t.Errorf("request %d has %d bytes that are not the caller's (%d, whole: %t)", i, len(s.body), len(body), s.whole)
		}
	}
	if method == "POST" && len(seen) > 1 {
		t.Errorf("a POST was sent %d times", len(seen))
	}
	if h.err != nil { // its caller left
		return
	}
	res := h.result
	if res == nil {
		t.Fatal("a stream without a result")
	}
	if departed := len(res.GetAttempts()) - count(res, pb.Evidence_EVIDENCE_NOT_SENT); departed < len(seen) {
		t.Errorf("%d requests came, and of %d attempts a byte left: %s", len(seen), departed, h.says())
	}
	if res.GetEffect() == pb.Effect_EFFECT_NONE && len(seen) > 0 {
		t.Errorf("%d requests came, and the effect is %s", len(seen), res.GetEffect())
	}
	if h.head == nil {
		if len(h.body) > 0 || res.GetOutcome() == pb.Outcome_OUTCOME_SUCCESS {
			t.Errorf("%d bytes and %s without a head", len(h.body), h.says())
		}
		return
	}
	if len(seen) == 0 {
		t.Fatalf("an answer, and the upstream saw nothing: %s", h.says())
	}
	last := said(h, scenes[:min(len(seen), len(scenes))])
	if last == nil {
		t.Fatalf("status %d and %d bytes, which the upstream did not say", h.head.GetStatus(), len(h.body))
	}
	whole := len(h.body) == last.Body
	answered := count(res, pb.Evidence_EVIDENCE_ANSWERED) > 0 && res.GetAttempts()[len(res.GetAttempts())-1].GetEvidence() == pb.Evidence_EVIDENCE_ANSWERED
	if answered && (!whole || last.Breaks >= 0) {
		t.Errorf("ANSWERED with %d bytes of %+v", len(h.body), last)
	}
	if res.GetOutcome() == pb.Outcome_OUTCOME_SUCCESS && (!answered || last.Status != http.StatusOK) {
		t.Errorf("%s of %+v", h.says(), last)
	}
	if r := res.GetResponse(); r != nil && r.GetStatus() != h.head.GetStatus() {
		t.Errorf("the head has status %d, the result %d", h.head.GetStatus(), res.GetResponse().GetStatus())
	}
}

// said is a scene whose answer this can be, one that said all of it if there is one.
func said(h *heard, played []scene) (found *scene) {
	for _, sc := range played {
		if int(h.head.GetStatus()) != sc.Status || !bytes.HasPrefix(pattern(sc.Body), h.body) {
			continue
		}
		if found = &sc; sc.Body == len(h.body) && sc.Breaks < 0 {
			return found
		}
	}
	return found
}

func count(r *pb.CallResponse, of pb.Evidence) (n int) {
	for _, a := range r.GetAttempts() {
		if a.GetEvidence() == of {
			n++
		}
	}
	return n
}
