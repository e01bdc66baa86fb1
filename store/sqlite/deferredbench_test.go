package sqlite_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/deferred"
	"github.com/sallyport/sallyport/store/sqlite"
	"github.com/sallyport/sallyport/store/storetest"
)

// aDeferred is a deferred call of ordinary size as it is submitted, due at that time.
func aDeferred(id, origin string, due time.Time) *deferred.Record {
	now := time.Now()
	return &deferred.Record{
		ID: id, Caller: "spiffe://example.com/orders", OperationID: "op-" + id, Fingerprint: [32]byte{1}, Origin: origin,
		Criticality: call.CriticalityNormal, Labels: map[string]string{"kind": "webhook"}, State: deferred.StatePending, MaxRetries: 5, Backoff: time.Second,
		NextAttempt: due, Created: now, Updated: now, Expire: now.Add(48 * time.Hour), Request: make([]byte, 600),
	}
}

func idOf(n int64) string { return fmt.Sprintf("%016x", uint64(n)*0x9e3779b97f4a7c15) }

const anOrigin = "https://a.example.com:443"

// reportTimes reports how many a second there were, and how long they took.
func reportTimes(b *testing.B, unit string, took [][]time.Duration) {
	b.Helper()
	every := slices.Concat(took...)
	slices.Sort(every)
	if len(every) == 0 {
		return
	}
	b.ReportMetric(float64(len(every))/b.Elapsed().Seconds(), unit)
	b.ReportMetric(float64(every[len(every)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(every[len(every)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkDeferredSubmit submits; each is acknowledged when it is on the disk.
func BenchmarkDeferredSubmit(b *testing.B) {
	for _, one := range []struct{ submitters, rate int }{{1, 0}, {64, 0}, {256, 0}, {64, 2000}} {
		submitters := one.submitters
		b.Run(fmt.Sprintf("submitters=%d,rate=%d", submitters, one.rate), func(b *testing.B) {
			d := ledgerAt(b, newPath(b)).Deferred()
			var (
				next atomic.Int64
				wg   sync.WaitGroup
				took = make([][]time.Duration, submitters)
			)
			b.ResetTimer()
			start := time.Now()
			for i := range submitters {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						begin := time.Now()
						if one.rate > 0 { // late is late for all that follow
							begin = start.Add(time.Duration(n) * time.Second / time.Duration(one.rate))
							<-time.NewTimer(time.Until(begin)).C
						}
						_, stored, err := d.Submit(b.Context(), aDeferred(idOf(n), anOrigin, begin))
						if err != nil || !stored {
							b.Error(stored, err)
							return
						}
						took[i] = append(took[i], time.Since(begin))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			reportTimes(b, "acks/s", took)
		})
	}
}

// BenchmarkDeferredWhole takes calls from their submission to their end: three writes each.
func BenchmarkDeferredWhole(b *testing.B) {
	const workers = 64
	d := ledgerAt(b, newPath(b)).Deferred()
	var (
		next atomic.Int64
		wg   sync.WaitGroup
		took = make([][]time.Duration, workers)
	)
	b.ResetTimer()
	for i := range workers {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				begin := time.Now()
				r, _, err := d.Submit(b.Context(), aDeferred(idOf(n), anOrigin, begin))
				if err == nil {
					err = d.Begin(b.Context(), r.Seq, 0, true, time.Now())
				}
				if err == nil {
					end, attempt := ended(r)
					err = d.End(b.Context(), &end, attempt)
				}
				if err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(begin))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	reportTimes(b, "calls/s", took)
}

// ended is r when its first attempt was answered.
func ended(r deferred.Record) (deferred.Record, []call.Attempt) {
	now := time.Now()
	r.Epoch, r.State, r.NextAttempt, r.Updated, r.Ended, r.Until = 1, deferred.StateCompleted, time.Time{}, now, now, now.Add(time.Hour)
	r.Spent, r.FirstSend, r.Outcome, r.Effect, r.Reason = 1, now, call.OutcomeSuccess, call.EffectAnswered, call.ReasonSuccess
	r.Response = &call.Response{Status: 200, Headers: []call.Header{{Name: "Content-Type", Value: "application/json"}}, Body: make([]byte, 300)}
	return r, []call.Attempt{{
		Number: 1, Kind: call.KindPrimary, Origin: r.Origin, Start: now, Duration: time.Millisecond,
		Result: call.Result{Evidence: call.EvidenceAnswered, Status: 200, RemoteAddress: "127.0.0.1:443"},
	}}
}

// manyAt is a file with as many calls, made as fast as can be: it is not waited for the disk.
func manyAt(b *testing.B, path string, groups ...group) *sqlite.Ledger {
	b.Helper()
	l, err := sqlite.OpenLedger(b.Context(), path, keysOf(b, keyA))
	if err != nil {
		b.Fatal(err)
	}
	if err := l.NoWaitForDisk(b.Context()); err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	for i, g := range groups {
		var wg sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(g.many))
		for range 256 {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					n := next.Add(1)
					r := aDeferred(fmt.Sprintf("%d-%s", i, idOf(n)), g.origin, g.due)
					r.Request = make([]byte, 200)
					if _, _, err := l.Deferred().Submit(b.Context(), r); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	return l
}

type group struct {
	many   int
	origin string
	due    time.Time
}

func rss(b *testing.B) float64 {
	b.Helper()
	content, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	var kib float64
	for line := range strings.Lines(string(content)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kib); err == nil {
			return kib / 1024
		}
	}
	return 0
}

// BenchmarkDeferredMany needs minutes to make what it measures; say how many wait in SALLYPORT_WAITING, and a tenth of it is due.
func BenchmarkDeferredMany(b *testing.B) {
	waiting := 0
	if _, err := fmt.Sscan(os.Getenv("SALLYPORT_WAITING"), &waiting); err != nil {
		b.Skip("SALLYPORT_WAITING says how many are to wait")
	}
	path := newPath(b)
	now := time.Now()
	l := manyAt(b, path, group{waiting, anOrigin, now.Add(24 * time.Hour)}, group{waiting / 10, anOrigin, now}, group{1, "https://b.example.com:443", now})
	closedLedger(b, l)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("a file of %d MiB", info.Size()>>20)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			closedLedger(b, ledgerAt(b, path))
		}
	})
	l = ledgerAt(b, path)
	d := l.Deferred()
	b.Run("due", func(b *testing.B) {
		for b.Loop() {
			due, next, err := d.Due(b.Context(), time.Now(), 128, nil, nil)
			lanes := map[string]int{}
			for _, r := range due {
				lanes[r.Origin]++
			}
			if err != nil || len(due) != 128 || lanes[anOrigin] != 127 || next.IsZero() {
				b.Fatal(len(due), lanes, next, err)
			}
		}
	})
	b.Run("nothing due", func(b *testing.B) {
		for b.Loop() {
			if due, next, err := d.Due(b.Context(), now.Add(-time.Hour), 128, nil, nil); err != nil || len(due) != 0 || next.IsZero() {
				b.Fatal(len(due), next, err)
			}
		}
	})
	b.Run("counts", func(b *testing.B) {
		for b.Loop() {
			if counts, err := d.Counts(b.Context(), aDeferred("", "", now).Caller); err != nil || len(counts) != 1 {
				b.Fatal(counts, err)
			}
		}
	})
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if all, err := d.List(b.Context(), &deferred.Filter{Caller: aDeferred("", "", now).Caller, State: deferred.StatePending}, 0, 50); err != nil || len(all) != 50 {
				b.Fatal(len(all), err)
			}
		}
	})
	b.Run("submit", func(b *testing.B) {
		var n atomic.Int64
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, _, err := d.Submit(b.Context(), aDeferred(fmt.Sprint("late", n.Add(1), b.N), anOrigin, time.Now())); err != nil {
					b.Error(err)
				}
			}
		})
	})
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.Logf("heap %d MiB, resident %.0f MiB", m.HeapAlloc>>20, rss(b))
	closedLedger(b, l)
}

var _ storetest.Deferred = sqlite.Deferred{}
