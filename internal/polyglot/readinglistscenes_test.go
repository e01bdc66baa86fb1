package polyglot

import (
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// scene is a few requests, one after the other, to a reading list of their own.
type scene struct {
	name  string
	asks  []ask
	asked asked    // what reached each service in the end
	kept  []string // what the links service has in the end
	rows  []string // what the reading list has stored: owner, key, state, preview, title or reason
}

// ask creates a bookmark, and says what must come of it.
type ask struct {
	token, key, page string
	code             int
	least            time.Duration // what it must wait for; the promise bounds the other side of every request
}

var scenes = []scene{
	{
		"all goes well",
		[]ask{{"ada", "k1", "PAGES/articles/1", 201, 0}},
		asked{1, 1, 1},
		[]string{"PAGES/articles/1"},
		[]string{"ada k1 saved available On 1"},
	},
	{
		"a repeat is the same bookmark",
		[]ask{{"ada", "k1", "PAGES/articles/1", 201, 0}, {"ada", "k1", "PAGES/articles/1", 200, 0}},
		asked{2, 1, 1},
		[]string{"PAGES/articles/1"},
		[]string{"ada k1 saved available On 1"},
	},
	{
		"with another url it is a conflict",
		[]ask{{"ada", "k1", "PAGES/articles/1", 201, 0}, {"ada", "k1", "PAGES/articles/2", 409, 0}},
		asked{2, 1, 1},
		[]string{"PAGES/articles/1"},
		[]string{"ada k1 saved available On 1"},
	},
	{
		"a key is its user's",
		[]ask{{"ada", "k1", "PAGES/articles/1", 201, 0}, {"bob", "k1", "PAGES/articles/2", 201, 0}},
		asked{2, 2, 2},
		[]string{"PAGES/articles/1", "PAGES/articles/2"},
		[]string{"ada k1 saved available On 1", "bob k1 saved available On 2"},
	},
	{
		"no token, a strange one and an unknown one",
		[]ask{{"", "k1", "PAGES/articles/1", 401, 0}, {"a b", "k1", "PAGES/articles/1", 401, 0}, {"eve", "k1", "PAGES/articles/1", 401, 0}},
		asked{1, 0, 0},
		nil, nil,
	},
	{
		"no key, no url",
		[]ask{{"ada", "", "PAGES/articles/1", 400, 0}, {"ada", "k1", "ftp://example.com/", 400, 0}, {"ada", "k1", "", 400, 0}, {"ada", "k1", "http://ada:secret@example.com/", 400, 0}, {"ada", "k1", "http://example.com/ü", 400, 0}},
		asked{0, 0, 0},
		nil, nil,
	},
	{
		"identity hangs",
		[]ask{{"ada-hang", "k1", "PAGES/articles/1", 503, 1400 * time.Millisecond}},
		asked{3, 0, 0},
		nil, nil,
	},
	{
		// It would be answered after 1.6 s. What comes after it needs that time.
		"identity is too late for the rest",
		[]ask{{"ada-late", "k1", "PAGES/articles/1", 503, 1400 * time.Millisecond}},
		asked{3, 0, 0},
		nil, nil,
	},
	{
		"the answer of links is lost",
		[]ask{{"ada", "k1", "PAGES/articles/1?links=lose-once", 201, 0}},
		asked{1, 2, 1},
		[]string{"PAGES/articles/1?links=lose-once"},
		[]string{"ada k1 saved available On 1"},
	},
	{
		"links says no",
		[]ask{{"ada", "k1", "PAGES/articles/1?links=refuse", 502, 0}, {"ada", "k1", "PAGES/articles/1?links=refuse", 502, 0}},
		asked{2, 1, 0},
		nil,
		[]string{"ada k1 refused pending"},
	},
	{
		"the page hangs",
		[]ask{{"ada", "k1", "PAGES/articles/1?page=hang", 201, time.Second}, {"ada", "k1", "PAGES/articles/1?page=hang", 200, 0}},
		asked{2, 1, 1},
		[]string{"PAGES/articles/1?page=hang"},
		[]string{"ada k1 saved unavailable the page took too long"},
	},
	{
		// 0.6 and 0.4 s for identity, the same for links, and waits: of the second that a page may take, half is left.
		"everything is slow at once",
		[]ask{{"ada-slow", "k1", "PAGES/articles/1?links=hang-once&page=hang", 201, 2500 * time.Millisecond}},
		asked{2, 2, 1},
		[]string{"PAGES/articles/1?links=hang-once&page=hang"},
		[]string{"ada k1 saved unavailable the page took too long"},
	},
	{
		"pages that are none",
		[]ask{
			{"ada", "k1", "PAGES/articles/1?page=missing", 201, 0},
			{"ada", "k2", "PAGES/articles/1?page=large", 201, 0},
			{"ada", "k3", "PAGES/articles/1?page=untitled", 201, 0},
			{"ada", "k4", "PAGES/articles/1?page=moved", 201, 0},
		},
		asked{4, 4, 5},
		[]string{
			"PAGES/articles/1?page=missing", "PAGES/articles/1?page=large", "PAGES/articles/1?page=untitled", "PAGES/articles/1?page=moved",
		},
		[]string{
			"ada k1 saved unavailable the page answered with an error",
			"ada k2 saved unavailable the page cannot be read",
			"ada k3 saved unavailable the page has no title",
			"ada k4 saved available On moving",
		},
	},
}

func TestReadingList(t *testing.T) {
	k := readingListKit(t)
	t.Parallel()
	t.Run("it runs as its README says", func(t *testing.T) { t.Parallel(); runsAsWritten(t, k) })
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			l := k.start(t)
			for _, a := range s.asks {
				got := l.create(t, a.token, a.key, a.page)
				if got.code != a.code || got.took < a.least {
					t.Errorf("%s: %d after %s, want %d after %s at least\n%s", a.page, got.code, got.took, a.code, a.least, got.text)
				}
				if (got.code == 503) != (got.retryAfter != "") {
					t.Errorf("%d with Retry-After %q", got.code, got.retryAfter)
				}
			}
			l.check(t, s.asked, s.kept, s.rows)
		})
	}
	t.Run("identity is down", func(t *testing.T) { t.Parallel(); identityIsDown(t, k) })
	t.Run("the broker is down", func(t *testing.T) { t.Parallel(); brokerIsDown(t, k) })
	t.Run("the broker hangs", func(t *testing.T) { t.Parallel(); brokerHangs(t, k) })
	t.Run("two at once make one", func(t *testing.T) { t.Parallel(); twoAtOnce(t, k) })
	t.Run("what users point at stays outside", func(t *testing.T) { t.Parallel(); insideIsClosed(t, k) })
	t.Run("what was lost is finished later", func(t *testing.T) { t.Parallel(); lostForLonger(t, k) })
	t.Run("a crash leaves nothing behind", func(t *testing.T) { t.Parallel(); crash(t, k) })
	t.Run("without a contract nothing is sent twice", func(t *testing.T) { t.Parallel(); noContract(t, k) })
	t.Run("everybody sees their own", func(t *testing.T) { t.Parallel(); everybodysOwn(t, k) })
}

// check compares what the services counted, what links has, and what is stored.
func (l *readingList) check(t *testing.T, want asked, kept, rows []string) {
	t.Helper()
	if got := l.asked(t); got != want {
		t.Errorf("asked %+v, want %+v", got, want)
	}
	if got := l.kept(t); !slices.Equal(got, kept) {
		t.Errorf("links has %q, want %q", got, kept)
	}
	if got := l.rows(t); !slices.Equal(got, rows) {
		t.Errorf("stored is %q, want %q", got, rows)
	}
}

func identityIsDown(t *testing.T, k kit) {
	t.Helper()
	l := k.startUpstreams(t)
	up := l.identity
	nobody, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.identity = nobody.Addr().String()
	nobody.Close()
	l.startBroker(t)
	l.startApp(t)
	if got := l.create(t, "ada", "k1", "PAGES/articles/1"); got.code != 503 || got.retryAfter != "1" || got.text != "{\"error\": \"try again\"}\n" {
		t.Errorf("%d, Retry-After %q: %s", got.code, got.retryAfter, got.text)
	}
	l.identity = up
	l.check(t, asked{}, nil, nil)
}

func brokerIsDown(t *testing.T, k kit) {
	t.Helper()
	l := k.startUpstreams(t)
	l.startApp(t)
	if got := l.create(t, "ada", "k1", "PAGES/articles/1"); got.code != 503 || got.retryAfter != "1" || got.took > time.Second {
		t.Errorf("%d, Retry-After %q, after %s: %s", got.code, got.retryAfter, got.took, got.text)
	}
	l.check(t, asked{}, nil, nil)
}

// A broker that takes the connection and says nothing uses all the time there is, and no more.
func brokerHangs(t *testing.T, k kit) {
	t.Helper()
	l := k.startUpstreams(t)
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", strings.TrimPrefix(l.socket(), "unix:"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l.startApp(t)
	if got := l.create(t, "ada", "k1", "PAGES/articles/1"); got.code != 503 || got.retryAfter != "1" {
		t.Errorf("%d, Retry-After %q: %s", got.code, got.retryAfter, got.text)
	}
	l.check(t, asked{}, nil, nil)
}

func twoAtOnce(t *testing.T, k kit) {
	t.Helper()
	l := k.start(t)
	var both [2]reply
	var wait sync.WaitGroup
	for i := range both {
		wait.Go(func() { both[i] = l.create(t, "ada", "k1", "PAGES/articles/1?links=slow") })
	}
	wait.Wait()
	codes := []int{both[0].code, both[1].code}
	slices.Sort(codes)
	if !slices.Equal(codes, []int{200, 201}) || both[0].text != both[1].text || both[0].took < 400*time.Millisecond || both[1].took < 400*time.Millisecond {
		t.Errorf("they got\n%+v\n%+v", both[0], both[1])
	}
	l.check(t, asked{2, 1, 1}, []string{"PAGES/articles/1?links=slow"}, []string{"ada k1 saved available On 1"})
}

// Private addresses, and the services that the reading list itself may call, are closed to what users point at. They learn no more
// than that the page cannot be reached.
func insideIsClosed(t *testing.T, k kit) {
	t.Helper()
	l := k.start(t)
	inside := []string{
		"http://10.0.0.1/", "http://169.254.169.254/latest/meta-data", "http://localhost:" + port(l.pages) + "/articles/1",
		"http://" + l.identity + "/whoami", "http://" + l.links + "/links", "http://127.1:" + port(l.pages) + "/articles/1",
	}
	for i, page := range inside {
		got := l.create(t, "ada", page, page)
		want := bookmark{ID: got.ID, URL: page, State: "saved", PreviewStatus: "unavailable", PreviewReason: "the page cannot be reached"}
		if got.code != 201 || got.bookmark != want {
			t.Errorf("%s: %d %s", page, got.code, got.text)
		}
		if n := l.asked(t); n != (asked{i + 1, i + 1, 0}) {
			t.Errorf("%s: asked %+v", page, n)
		}
	}
	if n := l.seen(t, l.links)["GET /links"]; n != 0 {
		t.Errorf("links was read %d times", n)
	}
}

// An answer that stays lost is no reason to wait for: the bookmark is accepted, and finished without anybody's help.
func lostForLonger(t *testing.T, k kit) {
	t.Helper()
	l := k.start(t)
	page := "PAGES/articles/1?links=hang"
	first := l.create(t, "ada-slow", "k1", page)
	if first.code != 202 || first.State != "saving" || first.retryAfter != "2" {
		t.Errorf("%d %s", first.code, first.text)
	}
	if got := l.rows(t); !slices.Equal(got, []string{"ada k1 saving pending"}) {
		t.Errorf("stored is %q", got)
	}
	l.mend(t)
	l.app.Await(t, `finishing Bookmark\(.*state='saved'`)
	again := l.create(t, "ada", "k1", page)
	if again.code != 200 || again.ID != first.ID || again.State != "saved" {
		t.Errorf("%d %s", again.code, again.text)
	}
	if kept := l.kept(t); !slices.Equal(kept, []string{page}) {
		t.Errorf("links has %q", kept)
	}
	if rows := l.rows(t); !slices.Equal(rows, []string{"ada k1 saved available On 1"}) {
		t.Errorf("stored is %q", rows)
	}
}

// Where links promises nothing of keys, an answer that is lost is for a person: nobody asks again, neither the broker nor the finisher nor
// the user.
func noContract(t *testing.T, k kit) {
	t.Helper()
	l := k.startUpstreams(t)
	l.startBroker(t, "    idempotency: { header: Idempotency-Key }\n", "    headers: { set: { Idempotency-Key: k } }\n")
	l.startApp(t)
	page := "PAGES/articles/1?links=lose-once"
	for range 2 {
		if got := l.create(t, "ada", "k1", page); got.code != 502 || got.State != "unclear" || got.PreviewStatus != "" {
			t.Errorf("%d %s", got.code, got.text)
		}
	}
	l.check(t, asked{2, 1, 0}, []string{page}, []string{"ada k1 unclear pending"})
}

// The service dies when the link is kept and the answer is not here.
func crash(t *testing.T, k kit) {
	t.Helper()
	l := k.start(t)
	page := "PAGES/articles/1?links=hang"
	cut := make(chan struct{}) // closed when the request has ended
	go func() {
		defer close(cut)
		body := strings.NewReader(`{"url": "` + strings.ReplaceAll(page, "PAGES", "http://"+l.pages) + `"}`)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.url, body)
		if err != nil {
			t.Error(err)
			return
		}
		r.Header = http.Header{"Authorization": {"Bearer ada"}, "Idempotency-Key": {"k1"}}
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err == nil {
			answer.Body.Close()
			t.Errorf("it was answered, %d: it should have been killed before", answer.StatusCode)
		}
	}()
	l.up.Await(t, `links keeps`)
	l.app.Kill()
	<-cut
	if rows := l.rows(t); !slices.Equal(rows, []string{"ada k1 saving pending"}) {
		t.Errorf("stored is %q", rows)
	}
	l.mend(t)
	l.startApp(t)
	l.app.Await(t, `finishing Bookmark\(.*state='saved'`)
	if got := l.create(t, "ada", "k1", page); got.code != 200 || got.Title != "On 1" {
		t.Errorf("%d %s", got.code, got.text)
	}
	if kept := l.kept(t); !slices.Equal(kept, []string{page}) {
		t.Errorf("links has %q", kept)
	}
}

func everybodysOwn(t *testing.T, k kit) {
	t.Helper()
	l := k.start(t)
	ada := l.create(t, "ada", "k1", "PAGES/articles/1")
	bob := l.create(t, "bob", "k1", "PAGES/articles/2")
	for _, tt := range []struct {
		token, path string
		code        int
		text        string
	}{
		{"ada", "", 200, "[" + strings.TrimSpace(ada.text) + "]\n"},
		{"bob", "", 200, "[" + strings.TrimSpace(bob.text) + "]\n"},
		{"ada", "/" + ada.ID, 200, ada.text},
		{"ada", "/" + bob.ID, 404, "{\"error\": \"no such bookmark\"}\n"},
		{"eve", "", 401, "{\"error\": \"send the bearer token of a user\"}\n"},
		{"ada-hang", "", 503, "{\"error\": \"try again\"}\n"},
		{"ada", "/../x", 404, "{\"error\": \"no such bookmark\"}\n"},
	} {
		if got := l.ask(t, http.MethodGet, tt.path, tt.token, "", nil); got.code != tt.code || got.text != tt.text {
			t.Errorf("%s GET %s: %d %s", tt.token, filepath.Base(tt.path), got.code, got.text)
		}
	}
	if got := l.app.Log(); strings.Contains(got, "Traceback") {
		t.Error(got)
	}
	l.app.Terminate(t)
}
