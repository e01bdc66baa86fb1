package broker

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/engine"
)

const (
	// receiveTime is how long a message may take to arrive, from the moment the broker waits for it.
	receiveTime = 30 * time.Second
	// receivePatience is how long a message that needs a slot may wait for it.
	receivePatience = 5 * time.Second
	// inWindow is the largest message that comes without a word of ours: with its head it fills the window of its stream.
	inWindow = streamWindow - len(messageHead{})
	// minPlaces is how many messages may be on their way at a broker of few calls: a burst is many, for a moment.
	minPlaces = 1000
	minSlots  = 16
	// maxOpenMessage is for health and reflection, which need no token and ask for a name.
	maxOpenMessage = 4 << 10
)

// reception bounds the messages that are being received.
//
// Each has a place, from when it is waited for. Until it is read it holds no more than the window of its stream, so there may be many
// places, and nobody waits for one: where all are taken, the oldest message of whoever has the most is given up. That is one that does
// not come, for those that are there already are read at once.
//
// A message larger than the window needs a slot before it is read: gRPC gives its stream the window for all of it then. It waits for
// that, for it costs its caller more to send it again.
type reception struct {
	places int
	most   int       // bytes of a message
	spare  sync.Pool // of *arrival, see [reception.arrival]

	mu     sync.Mutex // protects the fields below
	here   *list.List // of *arrival, from the oldest
	of     map[string]int
	slots  *slots
	closed bool
}

// errGivenUp is the cause of a context whose reading was ended.
var errGivenUp = errors.New("the message was given up")

// arrival is a message that is waited for, or on its way.
type arrival struct {
	whose  string
	head   messageHead
	within time.Duration
	timer  *time.Timer             // gives it up then
	hangUp context.CancelCauseFunc // ends its reading

	// The fields below are under the lock of the reception.
	place   *list.Element // nil once it has left
	slot    slotState
	granted chan struct{} // closed by [slots.handOn]; nil unless it waits
	refused refusedFor
}

// refusedFor is why a message is given up.
type refusedFor int

const (
	notRefused refusedFor = iota
	tooLate
	tooMany
	atDrain
)

func newReception(places, slots, most int) *reception {
	return &reception{places: places, most: most, here: list.New(), of: make(map[string]int), slots: newSlots(slots)}
}

// receptionOfCalls lets messages on their way hold as much again as the bodies of calls.
func receptionOfCalls(l Limits) *reception {
	const plenty = 1 << 30
	slots := min(max(minSlots, l.MaxBytes/maxMessage), l.MaxCalls+minSlots, plenty)
	return newReception(int(min(max(minPlaces, l.MaxCalls), plenty)), int(slots), maxMessage)
}

// receptionOfStrangers is for services that are open to all; their messages need no slot.
func receptionOfStrangers() *reception { return newReception(minPlaces, 0, maxOpenMessage) }

// receive reads a message; only: the RPC has no other.
func (r *reception) receive(ctx context.Context, whose string, into any, only bool) (err error) {
	w, hangUp, ok := wireOf(ctx)
	if !ok {
		return untapped()
	}
	a := r.arrival(whose, hangUp)
	if !r.begin(a) {
		return draining()
	}
	r.expect(a, timeToReceive(ctx))
	defer func() { err = cmp.Or(r.end(a), err) }()
	return r.read(ctx, w, a, into, only)
}

// arrival gives one that has left and that nobody knows any more, with its timer, or a new one.
func (r *reception) arrival(whose string, hangUp context.CancelCauseFunc) *arrival {
	a, ok := r.spare.Get().(*arrival)
	if !ok {
		a = &arrival{}
	}
	a.whose, a.hangUp = whose, hangUp
	return a
}

// expect gives the arrival up after that time.
func (r *reception) expect(a *arrival, within time.Duration) {
	a.within = within
	if a.timer == nil {
		a.timer = time.AfterFunc(within, func() { r.giveUp(a, tooLate) })
		return
	}
	a.timer.Reset(within)
}

// timeToReceive ends before the deadline of the RPC, so that its caller hears of it from here and not from its own library, which
// cannot tell that nothing was sent. The margin is that of a call; of little time it is half.
func timeToReceive(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return receiveTime
	}
	left := time.Until(deadline)
	return min(receiveTime, left-min(engine.Margin(left), left/2))
}

func (r *reception) read(ctx context.Context, w wire, a *arrival, into any, only bool) error {
	err := readHead(w, &a.head)
	if only && errors.Is(err, io.EOF) {
		return noMessage()
	}
	if err != nil {
		return err
	}
	if err := r.readRest(ctx, w, a, into); err != nil || !only {
		return err
	}
	return readEnd(w, &a.head)
}

// readRest reads the message whose head is there.
func (r *reception) readRest(ctx context.Context, w wire, a *arrival, into any) error {
	c, err := accept(w, &a.head, r.most)
	if err != nil {
		return err
	}
	becomes := int(a.head.size())
	if c != nil {
		becomes = r.most // it may, once it is unpacked
	}
	if becomes > inWindow {
		if err := r.waitForSlot(ctx, a); err != nil {
			return err
		}
	}
	return readBody(w, &a.head, c, r.most, into)
}

func (r *reception) waitForSlot(ctx context.Context, a *arrival) error {
	if r.takeSlot(a) {
		return nil
	}
	patience := time.NewTimer(receivePatience)
	defer patience.Stop()
	select {
	case <-a.granted:
		return nil
	case <-patience.C:
		r.giveUp(a, tooMany)
	case <-ctx.Done(): // its caller went away; or it was given up, and [reception.end] knows why
		return status.FromContextError(ctx.Err()).Err()
	}
	return crowded()
}

// takeSlot reports whether the arrival has a slot; if not, it is in the queue.
func (r *reception) takeSlot(a *arrival) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slots.take(a)
}

// begin gives the arrival its place; false when nothing is received any more.
func (r *reception) begin(a *arrival) bool {
	displaced, ok := r.takePlace(a)
	if displaced != nil {
		displaced.hangUp(errGivenUp)
	}
	return ok
}

func (r *reception) takePlace(a *arrival) (displaced *arrival, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false
	}
	a.place = r.here.PushBack(a)
	r.of[a.whose]++
	if r.here.Len() <= r.places {
		return nil, true
	}
	displaced = r.oldestOfTheMostLocked()
	r.refuseLocked(displaced, tooMany)
	return displaced, true
}

// oldestOfTheMostLocked finds whom to give up, as fq_codel does when it is full (RFC 8290 §4.1): an identity that has fewer messages on
// their way than another loses none.
func (r *reception) oldestOfTheMostLocked() *arrival {
	most := 0
	for _, n := range r.of {
		most = max(most, n)
	}
	at := r.here.Front()
	for r.of[of(at).whose] < most {
		at = at.Next()
	}
	return of(at)
}

// giveUp ends the reading of a message that has not been received.
func (r *reception) giveUp(a *arrival, why refusedFor) {
	if r.refuse(a, why) {
		a.hangUp(errGivenUp)
	}
}

func (r *reception) refuse(a *arrival, why refusedFor) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.place == nil {
		return false
	}
	r.refuseLocked(a, why)
	return true
}

func (r *reception) refuseLocked(a *arrival, why refusedFor) {
	if why == tooLate && a.slot == slotWaits {
		why = tooMany
	}
	a.refused = why
	r.leaveLocked(a)
}

func (r *reception) leaveLocked(a *arrival) {
	r.here.Remove(a.place)
	a.place = nil
	if r.of[a.whose]--; r.of[a.whose] == 0 {
		delete(r.of, a.whose)
	}
}

// end gives back what the arrival took. The error is that of a message that was given up, even where it came whole in that moment:
// its context has ended, and a call under it would look cancelled by its caller.
func (r *reception) end(a *arrival) error {
	stopped := a.timer.Stop()
	switch r.leave(a) {
	case notRefused:
		if stopped && a.granted == nil { // else somebody may be about to give it up, or has it from the queue
			a.whose, a.hangUp = "", nil
			r.spare.Put(a)
		}
		return nil
	case tooLate:
		return refusal(codes.DeadlineExceeded, reasonInvalidRequest, fmt.Sprintf("the message did not arrive whole within %s", a.within.Round(time.Millisecond)))
	case atDrain:
		return draining()
	default:
		return crowded()
	}
}

func (r *reception) leave(a *arrival) refusedFor {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots.leave(a)
	if a.place != nil {
		r.leaveLocked(a)
	}
	return a.refused
}

// close gives up what has not been received, and refuses what would begin.
func (r *reception) close() {
	for _, hangUp := range r.refuseAll() {
		hangUp(errGivenUp)
	}
}

func (r *reception) refuseAll() (hangUps []context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for r.here.Len() > 0 {
		a := of(r.here.Front())
		r.refuseLocked(a, atDrain)
		hangUps = append(hangUps, a.hangUp)
	}
	return hangUps
}

func of(e *list.Element) *arrival {
	return e.Value.(*arrival) //nolint:forcetypeassert // nothing else is put in
}

func crowded() error {
	return refusal(codes.ResourceExhausted, reasonBrokerFull, "the broker is full: too many messages are being received; ask again later, or another broker",
		&errdetails.RetryInfo{RetryDelay: durationpb.New(fullRetryDelay)})
}
