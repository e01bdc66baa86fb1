package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

// mode is one of them.
func mode(name string) history.Mode {
	for _, m := range history.Modes() {
		if m.Name == name {
			return m
		}
	}
	panic("no mode " + name)
}

// kept is a deferred call that was acknowledged at 2 ms, and what became of it.
func kept(name string, step history.Step, sights []history.Sight, arrivals ...history.Arrival) *history.History {
	return &history.History{
		Deferred: []history.Deferred{{Name: "op", Mode: mode(name), Step: step}},
		Acks:     []history.Ack{{Operation: "op", Start: ms, End: 2 * ms, Code: history.OK, ID: "deferredCalls/1"}},
		Sights:   sights, Arrivals: arrivals,
	}
}

// seen is the last look at a call.
func seen(state, effect string, duplicate bool, attempts ...history.Attempt) []history.Sight {
	s := history.Sight{Operation: "op", Start: 90 * ms, End: 91 * ms, Final: true, Code: history.OK, State: state, Effect: effect, PossibleDuplicate: duplicate, Attempts: attempts}
	if state == stateCompleted {
		s.Status, s.Body = 201, answerOf("1")
	}
	return []history.Sight{s}
}

// earlier puts a look before the others.
func earlier(state string, at time.Duration, then []history.Sight, attempts ...history.Attempt) []history.Sight {
	return append([]history.Sight{{Operation: "op", Start: at, End: at + ms, Code: history.OK, State: state, Attempts: attempts}}, then...)
}

// The attempts that are told.
var (
	whole = history.Attempt{Sent: true, Status: 201}
	cut   = history.Attempt{Sent: true, Orphaned: true}
)

func listed(h *history.History, states map[string]string, counts map[string]int) *history.History {
	h.Listings = []history.Listing{{States: states, Counts: counts}}
	return h
}

func TestDeferred(t *testing.T) {
	first := committed("a", 10*ms, 11*ms, 201, "1")
	lostFirst := committed("a", 10*ms, 11*ms, 0, "2")
	second := committed("b", 40*ms, 41*ms, 201, "1")
	otherKey := second
	otherKey.Key = "other"
	notFound := history.Sight{Operation: "op", Start: 50 * ms, End: 51 * ms, Code: history.NotFound}
	twoNames := kept("get", "", seen(stateCompleted, "ANSWERED", false, whole), first)
	twoNames.Acks = append(twoNames.Acks, history.Ack{Operation: "op", Start: 3 * ms, End: 4 * ms, Code: history.OK, ID: "deferredCalls/2"})
	silent := kept("get", "", nil)
	silent.Acks[0].Code = "UNAVAILABLE"
	broken := kept("get", "", seen(stateCompleted, "ANSWERED", false, whole), first)
	broken.Stops = []history.Stop{{At: 5 * ms, Back: 6 * ms, Wrong: "panic"}}
	done := seen(stateCompleted, "ANSWERED", false, whole)
	again := seen(stateCompleted, "ANSWERED", true, cut, whole)
	for _, tt := range []struct {
		name    string
		history *history.History
		want    []string // rules
	}{
		{"made once", listed(kept("plain", history.Committed, done, first), map[string]string{"op": stateCompleted}, map[string]int{stateCompleted: 1}), nil},
		{"repeated after a kill, and flagged", killed(kept("least", history.Headers, again, lostFirst, second), 20*ms), nil},
		{"parked after a kill", killed(kept("plain", history.Halfway, seen(stateUnknown, "UNKNOWN", false, cut), lostFirst), 20*ms), nil},
		{"refused for its token, then sent again", kept("plain", "", seen(stateCompleted, "ANSWERED", false, history.Attempt{Sent: true, Status: 401}, whole),
			arrived("a", 10*ms, 401), second), nil},
		{"never sent when it was killed before", killed(kept("plain", history.Intended, seen(stateUnknown, "UNKNOWN", false, cut)), 20*ms), nil},
		{"a GET may be made again", killed(kept("get", history.Halfway, again, lostFirst, second), 20*ms), nil},

		{"accepted, and not there", kept("get", "", append([]history.Sight{notFound}, done...), first), []string{Kept}},
		{"accepted, and never finished", kept("get", "", seen("RETRYING", "", false)), []string{Kept}},
		{"stays sending", kept("plain", "", seen("SENDING", "", false)), []string{Kept}},
		{"accepted, and never told of", kept("get", "", nil), []string{Kept}},
		{"two names", twoNames, []string{Kept}},
		{"never acknowledged", silent, []string{Kept}},
		{"nobody submitted it", &history.History{Arrivals: []history.Arrival{first}}, []string{Kept}},
		{"sent twice", killed(kept("plain", "", again, lostFirst, second), 20*ms), []string{SentTwice}},
		{"sent twice at most once, by luck under a key", killed(kept("most", "", again, lostFirst, second), 20*ms), []string{SentTwice}},
		{"not flagged", killed(kept("least", "", seen(stateCompleted, "ANSWERED", false, cut, whole), lostFirst, second), 20*ms), []string{Flagged}},
		{"not flagged, though it may never have come", killed(kept("keyed", "", seen(stateCompleted, "ANSWERED", false, cut, whole), second), 20*ms), []string{Flagged}},
		{
			"more attempts cut than ends of the broker", killed(kept("put", "", seen(stateCompleted, "ANSWERED", true, cut, cut, whole), lostFirst, second), 20*ms),
			[]string{OneACrash},
		},
		{"arrived, and not told of", kept("put", "", seen(stateCompleted, "ANSWERED", true, whole), lostFirst, second), []string{OneACrash}},
		{"two keys", killed(kept("least", "", again, lostFirst, otherKey), 20*ms), []string{KeyLife}},
		{"told of no effect", kept("plain", "", seen(stateCancelled, "NONE", false, cut), lostFirst), []string{NotNone, OneACrash, Parked}},
		{"failed, and it happened", kept("plain", "", seen(stateFailed, "ANSWERED", false, whole), committed("a", 10*ms, 11*ms, 201, "1")), []string{TrueEnd, Parked}},
		{"completed, and nothing happened", kept("get", "", done, arrived("a", 10*ms, 201)), []string{TrueEnd}},
		{"completed with another answer", kept("get", "", done, committed("a", 10*ms, 11*ms, 201, "7")), []string{TrueEnd}},
		{"completed before it happened", kept("get", "", done, committed("a", 10*ms, 200*ms, 201, "1")), []string{TrueEnd}},
		{"parked although it may be repeated", killed(kept("get", "", seen(stateUnknown, "UNKNOWN", false, cut), lostFirst), 20*ms), []string{Parked}},
		{"failed where it is unknown", killed(kept("plain", "", seen(stateFailed, "UNKNOWN", false, cut), arrived("a", 10*ms, 0)), 20*ms), []string{Parked}},
		{"completed, then sent again", kept("get", "", earlier(stateFailed, 30*ms, done, whole), first), []string{StaysEnded}},
		{"its log shrinks", kept("get", "", earlier("RETRYING", 30*ms, done, cut, cut), first), []string{StaysEnded}},
		{"killed after it was accepted, and flagged", killed(kept("put", history.Accepted, again, second), 20*ms), []string{Cell}},
		{"killed after it was claimed, and unknown", killed(kept("plain", history.Claimed, seen(stateUnknown, "UNKNOWN", false, cut)), 20*ms), []string{Cell}},
		{"killed after the intent, and no trace of it", killed(kept("plain", history.Intended, done, first), 20*ms), []string{Cell}},
		{"killed after the headers, and once only", killed(kept("put", history.Headers, done, first), 20*ms), []string{Cell}},
		{"killed before the commit, and completed", killed(kept("plain", history.Uncommitted, done, first), 20*ms), []string{Cell}},
		{"listed as another", listed(kept("get", "", done, first), map[string]string{"op": "SENDING"}, map[string]int{stateCompleted: 1}), []string{Listed}},
		{"counted wrong", listed(kept("get", "", done, first), map[string]string{"op": stateCompleted}, map[string]int{stateCompleted: 2}), []string{Listed}},
		{
			"listed, and never submitted", listed(kept("get", "", done, first), map[string]string{"op": stateCompleted, "x": "PENDING"}, map[string]int{stateCompleted: 1}),
			[]string{Listed},
		},
		{"the broker panics", broken, []string{Lives}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			violations, _ := Deferred(tt.history)
			var got []string
			for _, v := range violations {
				if !slices.Contains(got, v.Rule) {
					got = append(got, v.Rule)
				}
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q: %v", got, tt.want, violations)
			}
		})
	}
}

func TestDeferredCountsByCell(t *testing.T) {
	h := killed(kept("least", history.Headers, seen(stateCompleted, "ANSWERED", true, cut, whole), committed("a", 10*ms, 11*ms, 0, "2"), committed("b", 40*ms, 41*ms, 201, "1")), 20*ms)
	lost := kept("plain", history.Accepted, nil)
	var all DeferredCounts
	for _, h := range []*history.History{h, lost, h} {
		_, n := Deferred(h)
		all.Add(&n)
	}
	if got, want := all.Cells[CellOf(history.Headers, true)], (CellCounts{Calls: 2, Arrivals: 4, Again: 2, Flags: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := all.Cells[CellOf(history.Accepted, false)], (CellCounts{Calls: 1, Lost: 1, Violations: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if all.Kills != 2 || all.Orphans != 2 || all.Duplicates != 2 || all.Acks != 3 || all.ByState[stateCompleted] != 2 {
		t.Errorf("%+v", all)
	}
	text := DeferredStory(h, "op")
	for _, part := range []string{"submit, least", "COMMITTED", "kill -9", "serves again", "looked at: OK COMPLETED"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}
