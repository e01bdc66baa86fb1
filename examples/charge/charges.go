package main

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

const (
	// pending is how long a charge is under way before it is booked.
	pending = 2 * time.Second
	// late is how long a late answer takes.
	late = 3 * time.Second
)

// charges takes every charge that it is asked for, as often as it is asked: nothing here knows that two requests may mean one order.
//
//	POST /charges              charges, and answers 201
//	POST /charges?answer=lost  charges, and closes the connection without an answer
//	POST /charges?answer=late  charges, and answers three seconds later
//	GET /charges/{order}       202 while it is pending, then 200; 404 if the order was never charged
type charges struct {
	http.Handler

	mu   sync.Mutex // protects the field below
	made map[string][]charge
}

// charge is one that was made.
type charge struct {
	amount int
	at     time.Time
}

func newCharges() *charges {
	c := &charges{made: map[string][]charge{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", c.make)
	mux.HandleFunc("GET /charges/{order}", c.show)
	c.Handler = mux
	return c
}

// make charges first and answers then, if at all. That is the order of things in any payment service, and why a lost answer says
// nothing of the charge.
func (c *charges) make(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Order  string `json:"order"`
		Amount int    `json:"amount"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&asked); err != nil || asked.Order == "" {
		http.Error(w, `write {"order": "1001", "amount": 4200}`, http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.made[asked.Order] = append(c.made[asked.Order], charge{asked.Amount, time.Now()})
	c.mu.Unlock()
	switch r.FormValue("answer") {
	case "lost":
		panic(http.ErrAbortHandler) // net/http's way to close a connection without an answer
	case "late":
		timer := time.NewTimer(late)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	c.answer(w, http.StatusCreated, asked.Order, "charged")
}

func (c *charges) show(w http.ResponseWriter, r *http.Request) {
	order := r.PathValue("order")
	c.mu.Lock()
	made := c.made[order]
	c.mu.Unlock()
	switch {
	case len(made) == 0:
		c.answer(w, http.StatusNotFound, order, "never charged")
	case time.Since(made[len(made)-1].at) < pending:
		c.answer(w, http.StatusAccepted, order, "pending")
	default:
		c.answer(w, http.StatusOK, order, "charged")
	}
}

// answer tells the order and how often it was charged.
func (c *charges) answer(w http.ResponseWriter, code int, order, status string) {
	c.mu.Lock()
	times := len(c.made[order])
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	text, err := json.Marshal(struct {
		Order  string `json:"order"`
		Status string `json:"status"`
		Times  int    `json:"times"`
	}{order, status, times})
	if err != nil {
		panic(err) // strings and a number
	}
	_, _ = w.Write(append(text, '\n')) // whoever is gone needs no answer
}
