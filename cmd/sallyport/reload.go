package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// pollEvery is how often the files are looked at. Looking was chosen over notifications of the file system: it sees the switch of a
// link that mounted secrets are made of, works on every file system, and outlives editors that replace a file.
const pollEvery = time.Second

const (
	// retryEvery is how often files that could not be read are tried again: for want of a permission or of a free descriptor, which
	// may come without the files changing.
	retryEvery = 10 * time.Second
	// steadyLook and steadyMost bound how long a demand to read waits for files that are being written.
	steadyLook = 50 * time.Millisecond
	steadyMost = time.Second
	// closeTime bounds the wait for a read that hangs, on a file system that is gone.
	closeTime = 2 * time.Second
)

// reloader puts changed files into force while the broker runs: all that a file says, or nothing of it.
type reloader struct {
	sources []*source
	asked   chan chan<- struct{} // asks to read all files now; what it is given is closed after that, nil when nobody waits
	stop    chan struct{}        // closed by close
	done    chan struct{}        // closed by run
}

// source is a set of files that are read together.
type source struct {
	paths        []string
	reload       func()
	loaded, seen stamp
	retryAt      time.Time // of files that could not be read; zero when they could
}

// sources are all files that are read again.
type sources struct{ rules, tokens, certificate, authorities *source }

// newSources looks at every file before any is read, so that no change between the two is missed.
func newSources(s *settings) sources {
	return sources{newSource(s.Policies, s.Secrets), newSource(s.Tokens), newSource(s.TLSCert, s.TLSKey), newSource(s.ClientCA)}
}

func (s sources) all() []*source { return []*source{s.rules, s.tokens, s.certificate, s.authorities} }

func newSource(paths ...string) *source {
	s := &source{}
	for _, p := range paths {
		if p != "" {
			s.paths = append(s.paths, p)
		}
	}
	s.loaded = look(s.paths)
	s.seen = s.loaded
	return s
}

func newReloader(sources ...*source) *reloader {
	return &reloader{
		sources: sources,
		asked:   make(chan chan<- struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// run reads what changed until the reloader is closed.
func (r *reloader) run() {
	defer close(r.done)
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-r.stop:
			return
		case told := <-r.asked:
			for _, s := range r.sources {
				s.again()
			}
			if told != nil {
				close(told)
			}
		case <-ticker.C:
			for _, s := range r.sources {
				s.againIfChanged()
			}
		}
	}
}

// ask has all files read again, soon. An earlier demand that still waits covers this one.
func (r *reloader) ask() {
	select {
	case r.asked <- nil:
	default:
	}
}

// close waits for a reload under way, for a while: one that hangs in the file system must not keep the broker from ending.
func (r *reloader) close() {
	close(r.stop)
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	}
}

// again reads the files because somebody asked, once they are still: whoever writes them may have asked too early.
func (s *source) again() {
	if len(s.paths) == 0 {
		return
	}
	s.seen = look(s.paths)
	for waited := time.Duration(0); waited < steadyMost; waited += steadyLook {
		timer := time.NewTimer(steadyLook)
		<-timer.C
		now := look(s.paths)
		still := now.equal(s.seen)
		s.seen = now
		if still {
			break
		}
	}
	s.read()
}

func (s *source) read() {
	s.loaded, s.retryAt = s.seen, time.Time{}
	s.reload()
	if !readable(s.loaded) {
		s.retryAt = time.Now().Add(retryEvery)
	}
}

// readable tells whether the files could be read just now; one that is not there will be noticed when it comes.
func readable(files stamp) bool {
	for path, info := range files {
		if info == nil || !info.Mode().IsRegular() {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return false
		}
		_ = f.Close() // only opened
	}
	return true
}

// againIfChanged reads files that changed and have been still since the last look: half a policy file may be sound by itself.
func (s *source) againIfChanged() {
	now := look(s.paths)
	still := now.equal(s.seen)
	s.seen = now
	due := !s.retryAt.IsZero() && !time.Now().Before(s.retryAt)
	if still && (due || !now.equal(s.loaded)) {
		s.read()
	}
}

// stamp is what tells without reading that a file is another one now: which file it is, its size and its time. A file that is not
// there has nil.
type stamp map[string]fs.FileInfo

// look takes the stamps of files, and of the files in a directory. Links are followed.
func look(paths []string) stamp {
	s := make(stamp)
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			s[path] = nil
			continue
		}
		s[path] = info
		if !info.IsDir() {
			continue
		}
		entries, _ := os.ReadDir(path) // reading them as secrets will tell what is wrong
		for _, e := range entries {
			inside := filepath.Join(path, e.Name())
			if s[inside], err = os.Stat(inside); err != nil {
				s[inside] = nil
			}
		}
	}
	return s
}

func (s stamp) equal(other stamp) bool {
	if len(s) != len(other) {
		return false
	}
	for path, a := range s {
		b, ok := other[path]
		switch {
		case !ok, (a == nil) != (b == nil):
			return false
		case a == nil:
		case !os.SameFile(a, b), a.Size() != b.Size(), !a.ModTime().Equal(b.ModTime()):
			return false
		}
	}
	return true
}
