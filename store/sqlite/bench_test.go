package sqlite_test

import (
	"fmt"
	"sync/atomic"
	"testing"
)

const typical = 2 << 10 // bytes of a document

func BenchmarkWritePolicy(b *testing.B) {
	s := at(b, newPath(b))
	r := uint64(0)
	for b.Loop() {
		r++
		if err := put(b.Context(), s, "policies/a", r, typical); err != nil {
			b.Fatal(err)
		}
	}
}

// Eight operators, each with a policy of his own.
func BenchmarkWritePolicyByEight(b *testing.B) {
	s := at(b, newPath(b))
	const writers = 8
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error)
	b.ResetTimer()
	for i := range writers {
		go func() {
			var err error
			for r := uint64(1); err == nil && left.Add(-1) >= 0; r++ {
				err = put(b.Context(), s, fmt.Sprintf("policies/%d", i), r, typical)
			}
			done <- err
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

func BenchmarkPoliciesOf1000(b *testing.B) {
	path := newPath(b)
	s := at(b, path)
	for i := range 1000 {
		if err := put(b.Context(), s, fmt.Sprintf("policies/%d", i), 1, typical); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if all, err := s.Policies(b.Context()); err != nil || len(all) != 1000 {
				b.Fatal(len(all), err)
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if broken, err := s.Verify(b.Context()); err != nil || broken != 0 {
				b.Fatal(broken, err)
			}
		}
	})
	closed(b, s)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			closed(b, at(b, path))
		}
	})
}
