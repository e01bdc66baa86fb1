package main

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSweeperSweepsEvery15SecondsUntilItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var swept []time.Duration
		s := newSweeper(func(now time.Time) { swept = append(swept, now.Sub(start)) })
		go s.run()
		time.Sleep(time.Minute - 1)
		s.close()
		time.Sleep(time.Hour)
		if want := []time.Duration{15 * time.Second, 30 * time.Second, 45 * time.Second}; !slices.Equal(swept, want) {
			t.Errorf("swept after %v, want %v", swept, want)
		}
	})
}
