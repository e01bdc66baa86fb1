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

// lastGoodEvery bounds how often it is written.
const lastGoodEvery = time.Second

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

// run writes the file at the start, soon after every change, and at the end.
func (l *lastGood) run() {
	defer close(l.done)
	for {
		all, changed := l.policies.All()
		if err := l.write(all); err != nil {
			l.log.Warn("the copy of the policies for a start without the store was not written", "file", l.path, "error", err)
		}
		select {
		case <-changed:
		case <-l.stop:
			return
		}
		pause := time.NewTimer(lastGoodEvery)
		select {
		case <-pause.C:
		case <-l.stop: // what has changed is written at once
			pause.Stop()
		}
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
