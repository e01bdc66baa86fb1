package ballast

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// garbage leaves so many bytes behind, and gives the number of collections meanwhile.
func garbage(n int) uint32 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n / len(piece{}) {
		sink = new(piece)
	}
	sink = nil
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

type piece [4 << 10]byte

var sink *piece // else the compiler leaves the garbage out

func env(set map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := set[name]; return v, ok }
}

// resident is the resident set in bytes.
func resident(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc")
	}
	pages, err := strconv.Atoi(strings.Fields(string(raw))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// It runs in a process of its own, as fresh as a program that starts: memory that held garbage before is cleared, and so is there.
func TestGarbageIsCollectedLessOften(t *testing.T) {
	const child = "SALLYPORT_TEST_FRESH"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1", "GOGC=100", "GOMEMLIMIT=off")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	const amount = 8 * Size
	rss := resident(t)
	b := New(env(nil))
	if grown := resident(t) - rss; grown > Size/4 {
		t.Errorf("the ballast takes %d bytes of memory", grown)
	}
	runtime.GC() // knows it now
	with := garbage(amount)
	runtime.KeepAlive(b)
	runtime.GC()
	without := garbage(amount)
	if with > 2*amount/Size || with == 0 {
		t.Errorf("%d collections of %d MiB of garbage", with, amount>>20)
	}
	if without < 3*with {
		t.Errorf("%d collections without the ballast, %d with it", without, with)
	}
}

func TestOperatorDecides(t *testing.T) {
	for _, row := range []struct {
		set  map[string]string
		want int
	}{
		{nil, Size},
		{map[string]string{"GOGC": "", "GOMEMLIMIT": ""}, Size},
		{map[string]string{"GOGC": "100"}, 0},
		{map[string]string{"GOGC": "off", "GOMEMLIMIT": "1GiB"}, 0},
		{map[string]string{"GOMEMLIMIT": "64MiB"}, 0},
	} {
		if got := len(New(env(row.set))); got != row.want {
			t.Errorf("%v: %d bytes, want %d", row.set, got, row.want)
		}
	}
}
