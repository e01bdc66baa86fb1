package operation

import "github.com/sallyport/sallyport/call"

// mayGoOn: the call ended, and its id would be free again. What must not be repeated and may have been done is never made again.
func (l *lead) mayGoOn(f *call.Final) bool {
	return l.ask.HandOver != nil && f.Late == nil && f.Told == (call.Told{}) && !(l.record.MustNotRepeat && f.Effect == call.EffectUnknown)
}

// goesOn ends the lead of a call that goes on as a deferred one: the ledger tells of that already, and has nothing to be written.
func (l *lead) goesOn(f *call.Final, id string) Answer {
	answer := Answer{Final: *f, Policy: l.ask.Policy, Deferred: id}
	l.entry.answer = answer
	close(l.entry.answered)
	close(l.entry.tried)
	l.leave(l.entry)
	return answer
}
