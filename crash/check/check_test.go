package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/crash/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// answerOf is what belongs to the nth effect.
func answerOf(n string) string { return `{"effect":` + n + `}` }

// asked is an ask from one instant to another that was told this.
func asked(trace string, from, to time.Duration, told history.Told) history.Ask {
	return history.Ask{Operation: "op", Trace: trace, Start: from, End: to, Deadline: time.Second, Told: told}
}

// The things that callers are told.
var (
	done = history.Told{
		Code: history.OK, Outcome: "SUCCESS", Effect: "ANSWERED", Next: "DONE", Status: 201, Body: answerOf("1"), Sends: 1, Attempts: 1,
	}
	unknown  = history.Told{Code: history.OK, Outcome: "UNKNOWN", Effect: "UNKNOWN", Next: "RECONCILE", Sends: 1, Attempts: 1}
	nothing  = history.Told{Code: history.OK, Outcome: "BREAKER_OPEN", Effect: "NONE", Next: "RETRY"}
	refused  = history.Told{Code: history.OK, Outcome: "HTTP_ERROR", Effect: "ANSWERED", Status: 404, Sends: 1, Attempts: 1}
	clash    = history.Told{Code: history.OK, Outcome: "OPERATION_CONFLICT", Effect: "NONE", Next: "FIX_REQUEST"}
	lost     = history.Told{Code: "UNAVAILABLE"}
	draining = history.Told{Code: "UNAVAILABLE", NothingSent: true}
)

// replay is that, told again.
func replay(t history.Told) history.Told {
	t.Replayed, t.Sends = true, 0
	return t
}

// other is an ask with another payload.
func other(a history.Ask) history.Ask {
	a.Other = true
	return a
}

// arrived is a request that was answered with that status, 0: with nothing.
func arrived(trace string, at time.Duration, status int) history.Arrival {
	return history.Arrival{Operation: "op", Trace: trace, Key: "k", At: at, End: at + 2*ms, Status: status}
}

// committed is one with an effect.
func committed(trace string, at, when time.Duration, status int, effect string) history.Arrival {
	a := arrived(trace, at, status)
	a.Committed, a.Answer, a.End = when, answerOf(effect), when+ms
	return a
}

// read is a reading.
func read(at time.Duration, code, state, effect string) history.Reading {
	return history.Reading{Operation: "op", Start: at, End: at + ms, Code: code, State: state, Effect: effect, Final: true}
}

func of(asks []history.Ask, arrivals []history.Arrival, readings ...history.Reading) history.History {
	return history.History{Asks: asks, Arrivals: arrivals, Readings: readings}
}

func on(h history.History, route string) *history.History {
	h.Operations = []history.Operation{{Name: "op", Route: history.Routes()[route], Identified: true}}
	return &h
}

func killed(h *history.History, at time.Duration) *history.History {
	h.Stops = append(h.Stops, history.Stop{At: at, Back: at + 5*ms, Killed: true})
	return h
}

func nameless(h *history.History) *history.History {
	h.Operations[0].Identified = false
	return h
}

func TestCheck(t *testing.T) {
	type asks = []history.Ask
	type arrivals = []history.Arrival
	once := arrivals{committed("a", 12*ms, 13*ms, 201, "1")}
	lostOnce := arrivals{committed("a", 12*ms, 13*ms, 0, "1")}
	for _, tt := range []struct {
		name    string
		history *history.History
		want    []string // rules
	}{
		{"a success, replayed", on(of(asks{asked("a", 10*ms, 20*ms, done), asked("b", 30*ms, 40*ms, replay(done))}, once,
			read(50*ms, history.OK, "FINISHED", "ANSWERED")), "plain"), nil},
		{"an unknown stays one", on(of(asks{asked("a", 10*ms, 20*ms, unknown), asked("b", 30*ms, 40*ms, replay(unknown))}, lostOnce,
			read(50*ms, history.OK, "UNKNOWN", "UNKNOWN")), "plain"), nil},
		{"an unknown settles", on(of(asks{asked("a", 10*ms, 20*ms, unknown), asked("b", 30*ms, 40*ms, replay(done))},
			arrivals{committed("a", 12*ms, 25*ms, 201, "1")}), "plain"), nil},
		{"a killed lead is unknown", killed(on(of(asks{asked("a", 10*ms, 20*ms, lost), asked("b", 30*ms, 40*ms, replay(unknown))}, lostOnce), "plain"), 20*ms), nil},
		{"a success falls back to unknown by a kill", killed(on(of(asks{asked("a", 10*ms, 20*ms, done), asked("b", 30*ms, 40*ms, replay(unknown))},
			once), "plain"), 20*ms), nil},
		{"nothing happened, then it did", on(of(asks{asked("a", 10*ms, 11*ms, nothing), asked("b", 11*ms, 20*ms, done)},
			arrivals{committed("b", 12*ms, 13*ms, 201, "1")}), "plain"), nil},
		{"refused for its token, then sent again", on(of(asks{asked("a", 10*ms, 20*ms, history.Told{
			Code: history.OK, Outcome: "HTTP_ERROR", Effect: "ANSWERED", Status: 401, Sends: 1,
		}), asked("b", 30*ms, 40*ms, done)}, arrivals{arrived("a", 12*ms, 401), committed("b", 32*ms, 33*ms, 201, "1")}), "plain"), nil},
		{"refused for its token, then sent again after its key", on(of(asks{asked("a", 10*ms, 20*ms, history.Told{
			Code: history.OK, Outcome: "HTTP_ERROR", Effect: "ANSWERED", Status: 401, Sends: 1,
		}), asked("b", 3000*ms, 3010*ms, done)}, arrivals{arrived("a", 12*ms, 401), committed("b", 3002*ms, 3003*ms, 201, "1")}), "short"), nil},
		{"a proved rejection, then sent again", on(of(asks{asked("a", 10*ms, 40*ms, history.Told{
			Code: history.OK, Outcome: "SUCCESS", Effect: "ANSWERED", Status: 201, Body: answerOf("1"), Sends: 2,
		})}, arrivals{arrived("a", 12*ms, 503), committed("a", 32*ms, 33*ms, 201, "1")}), "rejecting"), nil},
		{"a PUT is made again after a kill", killed(on(of(asks{asked("a", 10*ms, 20*ms, done), asked("b", 30*ms, 40*ms, history.Told{
			Code: history.OK, Outcome: "SUCCESS", Effect: "ANSWERED", Status: 201, Body: answerOf("2"), Sends: 1,
		})}, append(slices.Clone(once), committed("b", 32*ms, 33*ms, 201, "2"))), "put"), 22*ms), nil},
		{"another payload is a conflict", on(of(asks{asked("a", 10*ms, 20*ms, done), other(asked("b", 30*ms, 40*ms, clash))}, once), "plain"), nil},
		{"the key outlives the body", on(of(asks{asked("a", 10*ms, 20*ms, done), asked("b", 3000*ms, 3010*ms, history.Told{
			Code: history.OK, Outcome: "SUCCESS", Effect: "ANSWERED", Status: 201, Replayed: true,
		})}, once), "short"), nil},
		{"a concurrent lead is another's", on(of(asks{asked("a", 10*ms, 30*ms, nothing), asked("b", 11*ms, 40*ms, done)},
			arrivals{committed("b", 20*ms, 21*ms, 201, "1")}), "plain"), nil},

		{"not known before it was ever sent", on(of(asks{asked("a", 10*ms, 11*ms, lost), asked("b", 32*ms, 40*ms, done)},
			arrivals{committed("b", 33*ms, 34*ms, 201, "1")}, read(30*ms, history.NotFound, "", "")), "plain"), nil},

		{"two effects", on(of(asks{asked("a", 10*ms, 20*ms, unknown), asked("b", 30*ms, 40*ms, unknown)},
			append(slices.Clone(lostOnce), committed("b", 32*ms, 33*ms, 0, "2"))), "plain"), []string{OneEffect, NoProof}},
		{"two effects under a kill", killed(on(of(asks{asked("a", 10*ms, 20*ms, lost), asked("b", 30*ms, 40*ms, unknown)},
			append(slices.Clone(lostOnce), committed("b", 32*ms, 33*ms, 0, "2"))), "probed"), 20*ms), []string{OneEffect}},
		{"two effects without an id", nameless(on(of(asks{asked("a", 10*ms, 20*ms, unknown)},
			append(slices.Clone(lostOnce), committed("a", 14*ms, 15*ms, 0, "2"))), "plain")), []string{OneEffect, NoProof, Counted}},
		{"sent again, by luck without an effect", on(of(asks{asked("a", 10*ms, 20*ms, unknown), asked("b", 30*ms, 40*ms, unknown)},
			arrivals{arrived("a", 12*ms, 0), arrived("b", 32*ms, 0)}), "plain"), []string{NoProof}},
		{"a keyed one twice", on(of(asks{asked("a", 10*ms, 20*ms, done)},
			append(slices.Clone(once), committed("a", 14*ms, 15*ms, 201, "2"))), "keyed"), []string{OneEffect, Counted}},
		{"sent after its key", on(of(asks{asked("a", 10*ms, 20*ms, unknown), asked("b", 3000*ms, 3020*ms, unknown)},
			arrivals{arrived("a", 12*ms, 0), arrived("b", 3002*ms, 0)}), "short"), []string{KeyLife}},
		{
			"no key", on(of(asks{asked("a", 10*ms, 20*ms, unknown)}, arrivals{{Operation: "op", Trace: "a", At: 12 * ms, End: 13 * ms}}), "keyed"),
			[]string{KeyLife},
		},
		{"another key", on(of(asks{asked("a", 10*ms, 20*ms, history.Told{Code: history.OK, Outcome: "UNKNOWN", Effect: "UNKNOWN", Sends: 2})},
			arrivals{arrived("a", 12*ms, 0), {Operation: "op", Trace: "a", Key: "other", At: 14 * ms, End: 15 * ms}}), "keyed"), []string{KeyLife}},
		{"told NONE of its own", on(of(asks{asked("a", 10*ms, 20*ms, history.Told{Code: history.OK, Outcome: "UNREACHABLE", Effect: "NONE", Sends: 1})},
			arrivals{committed("a", 12*ms, 90*ms, 0, "1")}), "plain"), []string{NotNone}},
		{
			"told NONE of what was before", killed(on(of(asks{asked("a", 10*ms, 20*ms, lost), asked("b", 30*ms, 40*ms, nothing)}, lostOnce), "keyed"), 20*ms),
			[]string{NotNone},
		},
		{"told NONE of what will be", on(of(asks{asked("a", 10*ms, 20*ms, lost), asked("b", 30*ms, 40*ms, nothing)},
			arrivals{committed("a", 12*ms, 90*ms, 0, "1")}), "put"), []string{NotNone}},
		{"read NONE", on(of(asks{asked("a", 10*ms, 20*ms, unknown)}, lostOnce, read(30*ms, history.OK, "FINISHED", "NONE")), "plain"), []string{NotNone}},
		{"told a refusal after a loss", on(of(asks{asked("a", 10*ms, 20*ms, history.Told{
			Code: history.OK, Outcome: "HTTP_ERROR", Effect: "ANSWERED", Status: 404, Sends: 2,
		})}, append(slices.Clone(lostOnce), arrived("a", 15*ms, 404))), "put"), []string{NotRefused}},
		{"read a refusal after a loss", on(of(asks{asked("a", 10*ms, 20*ms, unknown)}, lostOnce, history.Reading{
			Operation: "op", Start: 30 * ms, End: 31 * ms, Code: history.OK, State: "FINISHED", Effect: "ANSWERED", Status: 404,
		}), "plain"), []string{NotRefused}},
		{"a success that never was", on(of(asks{asked("a", 10*ms, 20*ms, done)}, arrivals{arrived("a", 12*ms, 0)}), "plain"), []string{TrueSuccess}},
		{
			"a success before it was", on(of(asks{asked("a", 10*ms, 20*ms, done)}, arrivals{committed("a", 12*ms, 25*ms, 0, "1")}), "plain"),
			[]string{TrueSuccess},
		},
		{
			"a success of somebody else", on(of(asks{asked("a", 10*ms, 20*ms, done)}, arrivals{committed("a", 12*ms, 13*ms, 201, "7")}), "plain"),
			[]string{TrueSuccess},
		},
		{"another answer later", on(of(asks{asked("a", 10*ms, 20*ms, done), asked("b", 30*ms, 40*ms, replay(history.Told{
			Code: history.OK, Outcome: "SUCCESS", Effect: "ANSWERED", Status: 201, Body: answerOf("2"),
		}))}, append(slices.Clone(once), committed("a", 14*ms, 15*ms, 201, "2"))), "put"), []string{SameAnswer, Counted}},
		{"another status later", on(of(asks{asked("a", 10*ms, 20*ms, done), asked("b", 30*ms, 40*ms, replay(history.Told{
			Code: history.OK, Outcome: "SUCCESS", Effect: "ANSWERED", Status: 200, Body: answerOf("1"),
		}))}, once), "plain"), []string{SameAnswer}},
		{
			"a success forgotten without a kill", on(of(asks{asked("a", 10*ms, 20*ms, done), asked("b", 30*ms, 40*ms, replay(unknown))}, once), "plain"),
			[]string{SameAnswer},
		},
		{"the body is gone before its time", on(of(asks{asked("a", 10*ms, 20*ms, done), asked("b", 30*ms, 40*ms, history.Told{
			Code: history.OK, Outcome: "SUCCESS", Effect: "ANSWERED", Status: 201, Replayed: true,
		})}, once), "short"), []string{TrueSuccess, SameAnswer}},
		{"more arrived than was told", on(of(asks{asked("a", 10*ms, 20*ms, refused)}, arrivals{arrived("a", 12*ms, 503), arrived("a", 14*ms, 404)}),
			"rejecting"), []string{Counted}},
		{"a replay that was sent", on(of(asks{asked("a", 10*ms, 20*ms, refused), asked("b", 30*ms, 40*ms, replay(refused))},
			arrivals{arrived("a", 12*ms, 404), arrived("b", 32*ms, 404)}), "put"), []string{Counted}},
		{
			"sent by whoever says that it was not", on(of(asks{asked("a", 10*ms, 20*ms, draining)}, arrivals{arrived("a", 12*ms, 0)}), "plain"),
			[]string{Counted},
		},
		{"a killed lead sent without end", on(of(asks{asked("a", 10*ms, 20*ms, lost)}, arrivals{
			arrived("a", 11*ms, 0), arrived("a", 12*ms, 0), arrived("a", 13*ms, 0), arrived("a", 14*ms, 0), arrived("a", 15*ms, 0), arrived("a", 16*ms, 0),
		}), "put"), []string{Counted}},
		{"sent for nobody", on(of(asks{asked("a", 10*ms, 20*ms, nothing)}, arrivals{arrived("z", 12*ms, 0)}), "plain"), []string{Counted}},
		{"another payload is sent", on(of(asks{asked("a", 10*ms, 20*ms, done), other(asked("b", 30*ms, 40*ms, refused))},
			append(slices.Clone(once), arrived("b", 32*ms, 404))), "put"), []string{Conflict}},
		{
			"another payload is told the answer", on(of(asks{asked("a", 10*ms, 20*ms, done), other(asked("b", 30*ms, 40*ms, replay(done)))}, once), "plain"),
			[]string{Conflict},
		},
		{"another payload after an unknown", killed(on(of(asks{asked("a", 10*ms, 20*ms, unknown), other(asked("b", 30*ms, 40*ms, refused))},
			arrivals{arrived("a", 12*ms, 0), arrived("b", 32*ms, 404)}), "plain"), 22*ms), []string{NoProof, Conflict}},
		{"a conflict that was sent", on(of(asks{other(asked("b", 30*ms, 40*ms, clash))}, arrivals{arrived("b", 32*ms, 404)}), "plain"), []string{Counted}},
		{
			"running for ever", on(of(asks{asked("a", 10*ms, 20*ms, unknown)}, lostOnce, read(9000*ms, history.OK, "RUNNING", "UNKNOWN")), "plain"),
			[]string{Settles},
		},
		{"forgotten", on(of(asks{asked("a", 10*ms, 20*ms, lost)}, lostOnce, read(30*ms, history.NotFound, "", "")), "plain"), []string{Settles}},
		{"cannot be read", on(of(asks{asked("a", 10*ms, 20*ms, nothing)}, nil, read(30*ms, history.Unimplemented, "", "")), "plain"), []string{Settles}},
		{"the last ask fails", on(of(asks{{Operation: "op", Trace: "a", Final: true, Told: lost}}, nil), "plain"), []string{Settles}},
		{"a panic", &history.History{Stops: []history.Stop{{Wrong: "panic: oh"}}}, []string{Lives}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			violations := History(tt.history).Violations
			for _, v := range violations {
				if !slices.Contains(got, v.Rule) {
					got = append(got, v.Rule)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q: %v", got, tt.want, violations)
			}
		})
	}
}

func TestCountsTellWhatBecameOfUnknowns(t *testing.T) {
	settled := on(of([]history.Ask{asked("a", 10*ms, 20*ms, unknown), asked("b", 30*ms, 40*ms, replay(done))},
		[]history.Arrival{committed("a", 12*ms, 25*ms, 201, "1")}), "plain")
	cut := killed(on(of([]history.Ask{asked("a", 10*ms, 20*ms, unknown)}, []history.Arrival{committed("a", 12*ms, 25*ms, 0, "1")}), "plain"), 22*ms)
	never := on(of([]history.Ask{asked("a", 10*ms, 20*ms, unknown)}, []history.Arrival{committed("a", 12*ms, 13*ms, 0, "1")}), "plain")
	var all Counts
	for _, h := range []*history.History{settled, cut, never} {
		all.Add(History(h).Counts)
	}
	want := Counts{
		Operations: 3, Asks: 4, Arrivals: 3, Kills: 1, Effects: 3, Replays: 1, Unknown: 3, Settled: 1, Late: 2, LateSettled: 1, Cut: 1,
	}
	if all != want {
		t.Errorf("got %+v, want %+v", all, want)
	}
}

func TestStoryTellsAllOfAnOperationInOrder(t *testing.T) {
	h := killed(on(of([]history.Ask{asked("aaaa", 10*ms, 20*ms, lost)}, []history.Arrival{committed("aaaa", 12*ms, 13*ms, 0, "1")},
		read(30*ms, history.OK, "UNKNOWN", "UNKNOWN")), "plain"), 19*ms)
	text := Story(h, "op")
	at := 0
	for _, part := range []string{"deadline 1s", "arrives", "COMMITTED", "answered with 0", "kill -9", "error UNAVAILABLE", "serves again", "GetOperation"} {
		i := strings.Index(text[at:], part)
		if i < 0 {
			t.Fatalf("no %q behind the %d bytes before in\n%s", part, at, text)
		}
		at += i
	}
}
