package main

import (
	"net/http"
	"strings"
	"sync"
)

// identity knows ada and bob.
//
//	GET /whoami    200 {"user": "ada"} for the bearer tokens ada and bob, else 401
//
// Where the token goes on, the answer is different:
//
//	ada-slow       every second request is answered, 0.4 seconds late, the others never
//	ada-late       every third request is answered, 0.4 seconds late, the others never
//	ada-hang       none is
type identity struct {
	mu    sync.Mutex // protects the field below
	asked map[string]int
}

func newIdentity() http.Handler {
	i := &identity{asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /whoami", i.whoami)
	return newCounted(mux)
}

func (i *identity) whoami(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	user, manner, _ := strings.Cut(token, "-")
	switch {
	case user != "ada" && user != "bob":
		answer(w, http.StatusUnauthorized, map[string]string{"error": "unknown token"})
	case manner == "hang", manner == "slow" && i.times(token)%2 != 0, manner == "late" && i.times(token)%3 != 0:
		hang(r)
	default:
		if manner != "" {
			delay(r)
		}
		answer(w, http.StatusOK, map[string]string{"user": user})
	}
}

// times is the number of this request among those with the token.
func (i *identity) times(token string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked[token]++
	return i.asked[token]
}
