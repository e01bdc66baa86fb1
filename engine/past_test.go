package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/breaker"
)

// Calls tell of moves when no lock is held any more: they come in any order.
func TestMovesAreToldInTheOrderInWhichTheyHappened(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(second, generation int) *breaker.Transition {
		return &breaker.Transition{At: begin.Add(time.Duration(second) * time.Second), Generation: uint64(generation), To: breaker.Closed}
	}
	o := NewOrigins()
	for _, m := range []*breaker.Transition{at(2, 4), at(1, 2), at(1, 1), at(3, 5), at(2, 3)} {
		o.moved("o", m)
	}
	for i := range 14 {
		o.moved("o", at(10+i, 10+i))
	}
	o.moved("o", at(0, 0)) // older than all that are kept
	o.moved("o", at(9, 9)) // older than most
	p, _ := o.pasts.enter("o", nil, begin)
	_, moves := p.told()
	var got []uint64
	for _, m := range moves {
		got = append(got, m.Generation)
	}
	want := []uint64{23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 5}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if cap(p.moves) > movesMax {
		t.Errorf("room for %d moves", cap(p.moves))
	}
}

func TestPastsAreBounded(t *testing.T) {
	o, now := NewOrigins(), time.Now()
	for i := range 3 * pastsMax {
		o.remember(fmt.Sprint("origin", i), now, &Notice{What: WhatHold})
	}
	n := 0
	for range o.pasts.all() {
		n++
	}
	if n > pastsMax+shards*evictionLook || n < pastsMax/2 {
		t.Errorf("%d pasts, want about %d", n, pastsMax)
	}
}
