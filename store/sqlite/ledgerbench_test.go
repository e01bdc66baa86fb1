package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

// aCall is a record as a call of ordinary size begins it.
func aCall(id string) *operation.Record {
	now := time.Now()
	return &operation.Record{
		Key: operation.Key{Caller: "spiffe://example.com/orders", ID: id}, Owner: "broker", Fingerprint: operation.Fingerprint{1},
		State: operation.StateRunning, MustNotRepeat: true, CreateTime: now, Until: now.Add(24 * time.Hour), Request: make([]byte, 200),
	}
}

// over is r when it was answered, with a body of this many bytes.
func over(r operation.Record, size int) *operation.Record {
	now := time.Now()
	r.State, r.Outcome, r.Effect, r.Reason = operation.StateFinished, call.OutcomeSuccess, call.EffectAnswered, call.ReasonSuccess
	r.Told = call.Told{Outcome: r.Outcome, Reason: r.Reason}
	r.Status, r.FirstSend, r.UpdateTime, r.BodyUntil, r.Until = 200, now, now, now.Add(10*time.Minute), now.Add(24*time.Hour)
	r.Details, r.Body, r.BodyBytes = make([]byte, 400), make([]byte, size), int64(size)
	return &r
}

// BenchmarkLedger begins operations and writes how they ended. An operation is two writes that are acknowledged.
func BenchmarkLedger(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := ledgerAt(b, newPath(b))
			var (
				next atomic.Int64
				wg   sync.WaitGroup
				took = make([][]time.Duration, callers)
			)
			b.ResetTimer()
			for i := range callers {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						begin := time.Now()
						r, led, err := l.Begin(b.Context(), aCall(fmt.Sprintf("%016x", uint64(n)*0x9e3779b97f4a7c15)))
						if err != nil || !led {
							b.Error(led, err)
							return
						}
						middle := time.Now()
						if err := l.Write(b.Context(), over(r, typical)); err != nil {
							b.Error(err)
							return
						}
						took[i] = append(took[i], middle.Sub(begin), time.Since(middle))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			every := slices.Concat(took...)
			slices.Sort(every)
			if len(every) == 0 {
				return
			}
			b.ReportMetric(float64(len(every))/b.Elapsed().Seconds(), "acks/s")
			b.ReportMetric(float64(every[len(every)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(every[len(every)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkLedgerDisk is what the disk gives without any of us: a page is written and waited for.
func BenchmarkLedgerDisk(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	n := int64(0)
	for b.Loop() {
		if _, err := f.WriteAt(page, n%1000*4096); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "fsyncs/s")
}

func BenchmarkLedgerOperation(b *testing.B) {
	l := ledgerAt(b, newPath(b))
	r, _, err := l.Begin(b.Context(), aCall("a"))
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Write(b.Context(), over(r, typical)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := l.Operation(b.Context(), r.Key); err != nil {
			b.Fatal(err)
		}
	}
}
