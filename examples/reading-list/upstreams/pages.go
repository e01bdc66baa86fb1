package main

import (
	"fmt"
	"html"
	"net/http"
	"strings"
)

// pages is a web site.
//
//	GET /articles/{name}    a page with the title "On {name}"
//
// The query parameter page says how it goes:
//
//	hang        it is never answered
//	missing     404
//	untitled    a page without a title
//	large       a page of 2 MiB
//	moved       a redirect to another article
func newPages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /articles/{name}", func(w http.ResponseWriter, r *http.Request) {
		title, filling := fmt.Sprintf("<title>On %s</title>", html.EscapeString(r.PathValue("name"))), ""
		switch r.FormValue("page") {
		case "hang":
			hang(r)
			return
		case "missing":
			http.NotFound(w, r)
			return
		case "moved":
			http.Redirect(w, r, "/articles/moving", http.StatusFound)
			return
		case "untitled":
			title = ""
		case "large":
			filling = strings.Repeat("x", 2<<20)
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, "<!doctype html>\n<html><head>%s</head><body>%s</body></html>\n", title, filling)
	})
	return newCounted(mux)
}
