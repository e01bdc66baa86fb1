package polyglot

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // reads what the reading list stored

	"github.com/sallyport/sallyport/internal/process"
)

// promise is what examples/reading-list answers within, whatever happens behind it.
const promise = 3 * time.Second

// kit is what every reading list of the test is made of.
type kit struct {
	broker, upstreams, python string
	environment               []string // of Python
}

// readingListKit builds it.
func readingListKit(t *testing.T) kit {
	t.Helper()
	process.DependOnSources(t)
	dir := t.TempDir()
	k := kit{broker: filepath.Join(dir, "sallyport"), upstreams: filepath.Join(dir, "upstreams")}
	k.python, k.environment = pythonPackage(t)
	k.environment = append(k.environment, "READING_LIST_TOKEN=demo-token", "READING_LIST_PAGES_TOKEN=demo-pages-token")
	if err := process.Build(t.Context(), k.broker); err != nil {
		t.Fatal(err)
	}
	build := command(t, buildTime, "go", "build", "-o", k.upstreams, "./examples/reading-list/upstreams")
	build.Dir = root
	must(t, build)
	return k
}

// readingList is one that runs: the service, and what it depends on.
type readingList struct {
	kit
	dir                    string
	identity, links, pages string // host:port each
	up, app                *process.Process
	url                    string
}

// start runs the upstreams, a broker under the policies of the example, and the service.
func (k kit) start(t *testing.T) *readingList {
	t.Helper()
	l := k.startUpstreams(t)
	l.startBroker(t)
	l.startApp(t)
	return l
}

// startBroker runs a broker under the policies of the example, with the ports of this one. What is to be replaced in them beside those comes
// in pairs.
func (l *readingList) startBroker(t *testing.T, replace ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "examples", "reading-list", "policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ports := strings.NewReplacer(append(replace, "9001", port(l.identity), "9002", port(l.links), "9003", port(l.pages))...)
	tokens := filepath.Join(root, "examples", "reading-list", "tokens.yaml")
	broker, _ := process.Serve(t, process.Environment(), l.broker, ports.Replace(string(text)), "--grpc", l.socket(), "--tokens", tokens)
	t.Cleanup(func() { broker.Terminate(t) })
}

// startUpstreams is the part of it that does not need a broker.
func (k kit) startUpstreams(t *testing.T) *readingList {
	t.Helper()
	dir, err := os.MkdirTemp("", "list") //nolint:usetesting // the path of a socket has 100 bytes, and the name of a test is long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l := &readingList{kit: k, dir: dir}
	const free = "127.0.0.1:0"
	l.up = process.Start(t, process.Environment(), k.upstreams, "-identity", free, "-links", free, "-pages", free)
	l.identity = l.up.Await(t, `identity at http://(\S+)`)[1]
	l.links = l.up.Await(t, `links at http://(\S+)`)[1]
	l.pages = l.up.Await(t, `pages at http://(\S+)`)[1]
	return l
}

func (l *readingList) socket() string { return "unix:" + filepath.Join(l.dir, "broker.sock") }

// startApp runs the service, for the first time or again.
func (l *readingList) startApp(t *testing.T) {
	t.Helper()
	l.app = process.Start(
		t, l.environment, l.python, filepath.Join(root, "examples", "reading-list", "app.py"), "--listen", "127.0.0.1:0", "--broker", l.socket(),
		"--db", filepath.Join(l.dir, "bookmarks.db"), "--identity", "http://"+l.identity, "--links", "http://"+l.links, "--finish-every", "0.2",
	)
	l.url = l.app.Await(t, `the reading list is at (\S+)`)[1]
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// reply is what a user got.
type reply struct {
	code       int
	took       time.Duration
	retryAfter string
	text       string
	bookmark
}

type bookmark struct {
	ID            string `json:"id"`
	URL           string `json:"url"`
	State         string `json:"state"`
	Title         string `json:"title"`
	PreviewStatus string `json:"preview_status"`
	PreviewReason string `json:"preview_reason"`
}

// create saves a bookmark. What it says of the page stands in the query of an article.
func (l *readingList) create(t *testing.T, token, key, page string) reply {
	t.Helper()
	body, err := json.Marshal(map[string]string{"url": strings.ReplaceAll(page, "PAGES", "http://"+l.pages)})
	if err != nil {
		t.Fatal(err)
	}
	return l.ask(t, http.MethodPost, "", token, key, body)
}

// ask makes a request, and wants the answer that was promised: in time, and without a word that is not for users.
func (l *readingList) ask(t *testing.T, method, path, token, key string, body []byte) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, l.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + token}, "Idempotency-Key": {key}}
	began := time.Now()
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatalf("%v\n%s", err, l.app.Log())
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	got := reply{code: answer.StatusCode, took: time.Since(began), retryAfter: answer.Header.Get("Retry-After"), text: string(text)}
	if err != nil {
		t.Fatal(err)
	}
	if got.took >= promise {
		t.Errorf("%s %s took %s, want less than %s", method, path, got.took, promise)
	}
	for _, inside := range []string{l.identity, l.links, "broker", "allyport", "OUTCOME", "denied", "grpc"} {
		if strings.Contains(string(text), inside) && !strings.Contains(string(body), inside) {
			t.Errorf("users are told of %s: %s", inside, text)
		}
	}
	if bytes.HasPrefix(text, []byte("{")) {
		if err := json.Unmarshal(text, &got.bookmark); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	}
	return got
}

// asked is how often the three were asked for what they are there for, as they counted.
type asked struct{ identity, links, pages int }

func (l *readingList) asked(t *testing.T) (n asked) {
	t.Helper()
	for request, times := range l.seen(t, l.pages) {
		if strings.HasPrefix(request, "GET /articles/") {
			n.pages += times
		}
	}
	n.identity, n.links = l.seen(t, l.identity)["GET /whoami"], l.seen(t, l.links)["POST /links"]
	return n
}

func (l *readingList) seen(t *testing.T, service string) map[string]int {
	t.Helper()
	var seen map[string]int
	fetch(t, http.MethodGet, "http://"+service+"/seen", &seen)
	return seen
}

// kept are the links that the links service has.
func (l *readingList) kept(t *testing.T) (urls []string) {
	t.Helper()
	var links []struct{ URL string }
	fetch(t, http.MethodGet, "http://"+l.links+"/links", &links)
	for _, link := range links {
		urls = append(urls, strings.ReplaceAll(link.URL, "http://"+l.pages, "PAGES"))
	}
	return urls
}

// mend has the links service lose nothing any more.
func (l *readingList) mend(t *testing.T) {
	t.Helper()
	var said string
	fetch(t, http.MethodPost, "http://"+l.links+"/mend", &said)
}

// rows are what the reading list has stored.
func (l *readingList) rows(t *testing.T) (rows []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(l.dir, "bookmarks.db")+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	found, err := db.QueryContext(t.Context(), "SELECT owner, key, state, preview_status, preview_reason || title FROM bookmarks ORDER BY created")
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var columns [5]string
		if err := found.Scan(&columns[0], &columns[1], &columns[2], &columns[3], &columns[4]); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, strings.TrimSpace(strings.Join(columns[:], " ")))
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

func fetch(t *testing.T, method, url string, into any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}
