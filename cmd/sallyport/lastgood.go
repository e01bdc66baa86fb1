package main

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/sallyport/sallyport/admin"
	"github.com/sallyport/sallyport/broker"
)

// lastGoodName is a policy file in the data directory with the policies of the store as they were last in force: what a broker can be
// started with when its store cannot be opened.
const lastGoodName = "policies-last-good.json"

const (
	// lastGoodEvery bounds how often it is written.
	lastGoodEvery = time.Second
	// lastGoodRetry is how long a file that could not be written waits.
	lastGoodRetry = 10 * time.Second
)

// lastGood keeps that file.
type lastGood struct {
	path     string
	policies *admin.Policies
	log      *slog.Logger
	stop     chan struct{} // closed by close
	done     chan struct{} // closed by run
}

func newLastGood(dir string, policies *admin.Policies, log *slog.Logger) *lastGood {
	return &lastGood{
		path: filepath.Join(dir, lastGoodName), policies: policies, log: log, stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// run writes the file at the start, soon after every change, and at the end. What could not be written is tried again: the disk was full, and
// nobody may write a policy before it is the one that would be needed.
func (l *lastGood) run() {
	defer close(l.done)
	for failed, again := false, true; again; {
		all, changed := l.policies.All()
		err := l.write(all)
		if err != nil && !failed {
			l.log.Warn("the copy of the policies for a start without the store was not written", "file", l.path, "error", err)
		}
		failed = err != nil
		again = l.wait(changed, failed)
	}
}

// wait returns when the file is to be written again; false: never.
func (l *lastGood) wait(changed <-chan struct{}, failed bool) bool {
	if !failed {
		select {
		case <-changed:
		case <-l.stop:
			return isClosed(changed) // what has changed at the last moment too
		}
	}
	pause := lastGoodEvery
	if failed {
		pause = lastGoodRetry
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.stop: // what has changed is written at once
		return !failed || isClosed(changed)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (l *lastGood) write(all []admin.Policy) error {
	content, err := broker.PolicyFile(all)
	if err != nil {
		return err
	}
	return writeWhole(l.path, content)
}

func (l *lastGood) close() {
	close(l.stop)
	<-l.done
}
