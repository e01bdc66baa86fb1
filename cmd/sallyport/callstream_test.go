package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The command streams what no message could carry, and what is to go to a file.
func TestCallStreams(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			w.Header().Set("X-Chunked", strings.Join(r.TransferEncoding, ","))
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.Copy(w, r.Body)
		case "/count":
			n, _ := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprintln(w, sizeText(float64(n)), r.TransferEncoding)
		case "/half":
			_, _ = w.Write([]byte("half"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/long":
			_, _ = io.CopyN(w, endless{}, maxBodyBytes+1)
		case "/missing":
			http.Error(w, "no such thing", http.StatusNotFound)
		case "/lost":
			panic(http.ErrAbortHandler)
		}
	}))
	defer up.Close()
	broker := startProcess(t)
	dir := t.TempDir()
	big := bytes.Repeat([]byte("0123456789abcdef"), (maxBodyBytes>>4)+1) // 16 bytes more than a message takes
	bigFile, file := filepath.Join(dir, "big"), filepath.Join(dir, "answer")
	fits, tooBig := filepath.Join(dir, "fits"), filepath.Join(dir, "too-big") // into a message
	for name, size := range map[string]int{bigFile: len(big), fits: streamedAbove, tooBig: streamedAbove + 1} {
		if err := os.WriteFile(name, big[:size], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	call := func(in io.Reader, args ...string) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		args = append([]string{"call", "--broker", broker.address}, args...)
		code = run(args, in, &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	content := func() string {
		raw, err := os.ReadFile(file)
		if err != nil {
			return "none: " + filepath.Base(err.Error())
		}
		return string(raw)
	}
	for _, tt := range []struct {
		name     string
		in       io.Reader
		args     []string
		code     int
		out, err string // of which something is printed
		file     string // what it then holds; "none: …" when there is none
	}{
		{"an answer that breaks off before its head makes no file", nil, []string{"POST", up.URL + "/lost", "-o", file}, 13, "UNKNOWN  effect UNKNOWN", "", "none: answer: no such file or directory"},
		{"both ways through a file", nil, []string{"POST", up.URL + "/echo", "-d", "@" + bigFile, "-o", file}, 0, "(16777232 bytes, in " + file + ")", "", string(big)},
		{"an empty answer empties it", nil, []string{"GET", up.URL + "/empty", "-o", file}, 0, "(0 bytes, in " + file + ")", "", ""},
		{"a body on the command line", nil, []string{"POST", up.URL + "/echo", "-d", "word", "-o", file}, 0, "(4 bytes", "", "word"},
		{"an error's body goes there too", nil, []string{"GET", up.URL + "/missing", "-o", file}, 12, "HTTP_ERROR", "", "no such thing\n"},
		{"no answer leaves it alone", nil, []string{"POST", up.URL + "/lost", "-o", file}, 13, "UNKNOWN  effect UNKNOWN", "", "no such thing\n"},
		{"a part is said to be one", nil, []string{"GET", up.URL + "/half", "-o", file}, 13, "that is a part of it", "", "half"},
		{"standard input to standard output", strings.NewReader("piped"), []string{"POST", up.URL + "/echo", "-d", "@-", "-o", "-"}, 0, "piped", "(5 bytes, in standard output)", "half"},
		{"a body that fits into a message", nil, []string{"PUT", up.URL + "/count", "-d", "@" + fits}, 0, "3.0 MiB []", "", "half"},
		{"one byte more is streamed", nil, []string{"PUT", up.URL + "/count", "-d", "@" + tooBig}, 0, "3.0 MiB [chunked]", "", "half"},
		{"but not with an operation id", nil, []string{"PUT", up.URL + "/echo", "-d", "@" + tooBig, "--operation-id", "large"}, 3, "", "max_request_bytes", "half"},
		{"a large body without a file", nil, []string{"PUT", up.URL + "/count", "-d", "@" + bigFile}, 0, "16.0 MiB", "", "half"},
		{"a large body from standard input", bytes.NewReader(big), []string{"PUT", up.URL + "/count", "-d", "@-"}, 0, "16.0 MiB", "", "half"},
		{"an answer too long to print", bytes.NewReader(big), []string{"PUT", up.URL + "/long", "-d", "@-"}, 1, "", "give it a file with -o FILE", "half"},
		{"a stream has no operation id", nil, []string{"GET", up.URL + "/empty", "-o", file, "--operation-id", "a"}, 2, "", "--operation-id", "half"},
		{"a file that cannot be made", nil, []string{"POST", up.URL + "/echo", "-d", "x", "-o", filepath.Join(dir, "no", "such")}, 2, "", "-o: ", "half"},
		{"a directory", nil, []string{"POST", up.URL + "/echo", "-d", "x", "-o", dir}, 2, "", "is a directory", "half"},
		{"the body's own file", nil, []string{"POST", up.URL + "/echo", "-d", "@" + file, "-o", file}, 2, "", "name another file", "half"},
		{"a file that cannot be written", nil, []string{"POST", up.URL + "/echo", "-d", "x", "-o", "/dev/full"}, 1, "", "its effect is unknown", "half"},
	} {
		code, out, errs := call(tt.in, tt.args...)
		if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.err) {
			t.Errorf("%s: exit code %d, want %d\n%.2000s\n%s", tt.name, code, tt.code, out, errs)
		}
		if got := content(); got != tt.file {
			t.Errorf("%s: the file holds %d bytes %.60q", tt.name, len(got), got)
		}
		if tt.args[len(tt.args)-1] == "-" && out != "piped" {
			t.Errorf("%s: %q beside the answer", tt.name, out)
		}
	}
	broker.signal(t, syscall.SIGINT)
	if code := broker.end(t); code != 0 {
		t.Errorf("the broker ends with %d", code)
	}
}

func TestTransferTellsHowFarItIs(t *testing.T) {
	began := time.Unix(1, 0)
	for _, tt := range []struct {
		t    *transfer
		want string
	}{
		{&transfer{up: 512, began: began}, "sent 512 B, 256 B/s"},
		{&transfer{up: 3 << 20, upSize: 4 << 20, began: began}, "sent 3.0 MiB of 4.0 MiB [###############.....], 1.5 MiB/s"},
		{&transfer{up: 9, upSize: 4, down: 5 << 30, began: began}, "sent 9 B of 4 B [####################], 4 B/s; received 5.0 GiB, 2.5 GiB/s"},
		{&transfer{down: 3 << 40, downSize: 4 << 40, began: began}, "received 3.0 TiB of 4.0 TiB [###############.....], 1.5 TiB/s"},
	} {
		if got := tt.t.textLocked(began.Add(2 * time.Second)); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
