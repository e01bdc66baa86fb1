package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/store/memory"
)

// openPolicies gives policies without a broker, and a way to write one.
func openPolicies(t *testing.T) (policies *admin.Policies, write func(id string)) {
	t.Helper()
	policies, _, err := admin.OpenPolicies(t.Context(), admin.PoliciesConfig{
		Store: memory.New(), Parse: broker.ParsePolicyDocument, Generations: new(atomic.Uint64),
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return policies, func(id string) {
		t.Helper()
		document := fmt.Appendf(nil, `{"name": "policies/%s"}`, id)
		rule, err := broker.ParsePolicyDocument(document)
		if err == nil {
			_, err = policies.Create(t.Context(), &admin.Write{Name: "policies/" + id}, admin.Draft{Rule: rule, Document: document})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLastGoodPoliciesAreWrittenOnceTheyCanBe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	synctest.Test(t, func(t *testing.T) {
		policies, write := openPolicies(t)
		write("a")
		var log lockedText
		l := newLastGood(dir, policies, slog.New(slog.NewTextHandler(&log, nil)))
		go l.run()
		defer l.close()
		time.Sleep(3*lastGoodRetry - time.Nanosecond)
		if strings.Count(log.String(), "was not written") != 1 {
			t.Errorf("after three attempts the log is %s", log.String())
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if text := readFile(t, l.path); !strings.Contains(text, "policies/a") {
			t.Errorf("written is %s", text)
		}
	})
}

// A write that was answered just before the end is in the file, although two things wake who writes it.
func TestLastGoodPoliciesAreThoseOfTheEnd(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			policies, write := openPolicies(t)
			l := newLastGood(t.TempDir(), policies, newLogForNobody())
			write("a")
			close(l.stop) // both are there when it first waits
			_, changed := policies.All()
			write("b")
			if l.wait(changed, false) != true || l.wait(changed, true) != true {
				t.Fatal("the last change is not written")
			}
			if _, changed = policies.All(); l.wait(changed, false) || l.wait(changed, true) {
				t.Fatal("it does not end")
			}
		})
	}
}
