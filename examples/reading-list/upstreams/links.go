package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
)

// links keeps the links of the team. It knows idempotency keys: the same key with the same link is one link, however often it comes.
//
//	POST /links    keeps {"id", "owner", "url"}, and answers 201; 422 when the key came with another link
//	GET /links     what it keeps
//	POST /mend     from then on no answer is lost
//
// The url says how it goes, in the query parameter links:
//
//	lose-once      keeps it, and closes the connection without an answer; a repeat is answered
//	lose           the same, also for repeats, until it is mended
//	hang-once      keeps it, and never answers; a repeat is answered 0.4 seconds late
//	hang           the same, also for repeats, until it is mended
//	slow           keeps it, and answers 0.4 seconds late
//	refuse         answers 400, and keeps nothing
type links struct {
	mu     sync.Mutex // protects the fields below
	kept   []link
	mended bool
}

// link is one that is kept.
type link struct {
	Key   string `json:"key"`
	ID    string `json:"id"`
	Owner string `json:"owner"`
	URL   string `json:"url"`
}

func newLinks() http.Handler {
	l := &links{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /links", l.keep)
	mux.HandleFunc("GET /links", l.list)
	mux.HandleFunc("POST /mend", l.mend)
	return newCounted(mux)
}

// keep keeps first and answers then, if at all: that is the order of things in any store, and why a lost answer says nothing of the link.
func (l *links) keep(w http.ResponseWriter, r *http.Request) {
	asked := link{Key: r.Header.Get("Idempotency-Key")}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&asked); err != nil || asked.Key == "" {
		answer(w, http.StatusBadRequest, map[string]string{"error": "write a link and an Idempotency-Key"})
		return
	}
	manner := ""
	if u, err := url.Parse(asked.URL); err == nil {
		manner = u.Query().Get("links")
	}
	if manner == "refuse" {
		answer(w, http.StatusBadRequest, map[string]string{"error": "no such links here"})
		return
	}
	same, repeated, mended := l.put(asked)
	if !same {
		answer(w, http.StatusUnprocessableEntity, map[string]string{"error": "the key is that of another link"})
		return
	}
	switch {
	case manner == "lose-once" && !repeated, manner == "lose" && !mended:
		lose()
	case manner == "hang-once" && !repeated, manner == "hang" && !mended:
		hang(r)
		return
	case manner == "hang-once", manner == "slow":
		delay(r)
	}
	answer(w, http.StatusCreated, asked)
}

// put keeps the link unless its key is known. same: what is kept under the key is this link. repeated: it was kept before.
func (l *links) put(asked link) (same, repeated, mended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kept := range l.kept {
		if kept.Key == asked.Key {
			return kept == asked, true, l.mended
		}
	}
	l.kept = append(l.kept, asked)
	fmt.Printf("links keeps %q\n", asked.URL)
	return true, false, l.mended
}

func (l *links) list(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answer(w, http.StatusOK, l.kept)
}

func (l *links) mend(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mended = true
	answer(w, http.StatusOK, "mended")
}
