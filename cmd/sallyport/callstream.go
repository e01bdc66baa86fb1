package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// stdio names standard output, or input, where a file may be named.
const stdio = "-"

// toFile: the body of the answer goes to a file, or as it comes to standard output.
func (f *callFlags) toFile() bool { return f.output != "text" && f.output != "json" }

// bodySource is the request's body for a stream; nil: there is none, or it is small and read whole.
type bodySource struct {
	io.Reader

	file  os.FileInfo // of a regular file; else nil
	size  int64       // 0: not known
	close func()
}

// streamed gives the body of a call that has to be streamed: its answer goes to a file, or its body is too large for a message. A body that is
// not is in req afterwards. With an operation id a message is as large as any policy allows.
func (f *callFlags) streamed(req *pb.CallRequest, in io.Reader) (*bodySource, bool, error) {
	path, isFile := strings.CutPrefix(f.body, "@")
	switch {
	case f.toFile() && f.body == "":
		return nil, true, nil
	case f.toFile() && !isFile:
		return &bodySource{Reader: strings.NewReader(f.body), size: int64(len(f.body)), close: func() {}}, true, nil
	}
	body, err := openBody(path, isFile, in)
	if err != nil || body == nil {
		req.Request.Body = []byte(f.body)
		return nil, false, err
	}
	if f.toFile() {
		return body, true, nil
	}
	most := streamedAbove
	if f.operationID != "" {
		most = maxBodyBytes
	}
	begin, err := io.ReadAll(io.LimitReader(body, int64(most)+1))
	switch {
	case err != nil:
		body.close()
		return nil, false, fmt.Errorf("-d %s: %w", f.body, err)
	case len(begin) <= most:
		body.close()
		req.Request.Body = begin
		return nil, false, nil
	}
	body.Reader = io.MultiReader(bytes.NewReader(begin), body.Reader)
	return body, true, nil
}

// openBody opens the file of -d @FILE; nil for a body that is none.
func openBody(path string, isFile bool, in io.Reader) (*bodySource, error) {
	switch {
	case !isFile:
		return nil, nil //nolint:nilnil // no file, and nothing wrong
	case path == "":
		return nil, errors.New("-d @: name a file, or @- for standard input")
	case path == stdio:
		return &bodySource{Reader: in, close: func() {}}, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("-d: %w", err)
	}
	body := &bodySource{Reader: file, close: func() { _ = file.Close() }} // read only
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		body.file, body.size = info, info.Size()
	}
	return body, nil
}

// stream makes the call as a stream and prints what became of it.
func (f *callFlags) stream(ctx context.Context, cmd *cobra.Command, c *client.Client, req *pb.CallRequest, body *bodySource) (*pb.CallResponse, int64, error) {
	if req.GetOperationId() != "" {
		return nil, 0, usagef("--operation-id: a stream has none, and -o FILE and a body of more than %d bytes are streamed", maxBodyBytes)
	}
	t := &transfer{line: progressLine{to: cmd.ErrOrStderr()}}
	into := &answerFile{path: f.output, out: cmd.OutOrStdout(), keep: !f.toFile()}
	var from io.Reader
	if body != nil {
		defer body.close()
	}
	if err := into.ready(body); err != nil {
		return nil, 0, err
	}
	if body != nil {
		t.upSize, from = body.size, t.reading(body)
	}
	resp, err := c.Stream(ctx, req, from, client.Answer{Head: t.head, Body: t.writing(into)})
	t.off()
	if closeErr := into.close(err == nil && resp.GetResponse() != nil); err == nil && closeErr != nil {
		err = fmt.Errorf("%w: %w", client.ErrAnswer, closeErr)
	}
	if errors.Is(err, client.ErrBody) || errors.Is(err, client.ErrAnswer) {
		return nil, 0, failure(fmt.Errorf("%w; the call was ended, and its effect is unknown", err))
	}
	if err == nil && into.keep && resp.GetResponse() != nil {
		resp.Response.Body = into.kept.Bytes()
	}
	return resp, t.received(), err
}

// printStream tells what became of a call whose answer went to a file: on standard output, unless the answer is there.
func (f *callFlags) printStream(cmd *cobra.Command, req *pb.CallRequest, resp *pb.CallResponse, n int64) error {
	to, where := cmd.OutOrStdout(), plain(f.output)
	if f.output == stdio {
		to, where = cmd.ErrOrStderr(), "standard output"
	}
	text := timeline(req, resp) + answer(resp.GetResponse())
	if r := resp.GetResponse(); r != nil || n > 0 {
		text += fmt.Sprintf("(%d bytes, in %s)\n", n, where)
		if r == nil {
			text += "(the answer broke off: that is a part of it)\n"
		}
	}
	_, err := io.WriteString(to, text)
	return err //nolint:wrapcheck // a broken pipe needs no more words
}

// answerFile is where the body of an answer goes. The file is made when there is an answer, so that a call without one leaves an old file
// alone.
type answerFile struct {
	path string
	out  io.Writer // standard output
	keep bool      // it is kept, to be printed
	kept bytes.Buffer
	file *os.File
}

// ready finds before anything is sent what would keep the answer from its file, which is left alone.
func (a *answerFile) ready(body *bodySource) error {
	if a.keep || a.path == stdio {
		return nil
	}
	info, err := os.Stat(a.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		_, err = os.Stat(filepath.Dir(a.path))
	case err == nil && info.IsDir():
		err = fmt.Errorf("%s is a directory", a.path)
	case err == nil && body != nil && body.file != nil && os.SameFile(info, body.file):
		err = fmt.Errorf("%s is the body of the request; name another file", a.path)
	}
	if err != nil {
		return usagef("-o: %w", err)
	}
	return nil
}

// errTooLong: what is printed was in memory before.
var errTooLong = fmt.Errorf("it has more than %d bytes; give it a file with -o FILE", maxBodyBytes)

// Write takes the next bytes (io.Writer).
func (a *answerFile) Write(p []byte) (int, error) {
	switch {
	case a.keep && a.kept.Len()+len(p) > maxBodyBytes:
		return 0, errTooLong
	case a.keep:
		return a.kept.Write(p) //nolint:wrapcheck // it has none
	case a.path == stdio:
		return a.out.Write(p) //nolint:wrapcheck // of the system, and told as it is
	}
	if err := a.open(); err != nil {
		return 0, err
	}
	return a.file.Write(p) //nolint:wrapcheck // as above
}

func (a *answerFile) open() (err error) {
	if a.file == nil {
		a.file, err = os.Create(a.path)
	}
	return err //nolint:wrapcheck // as above
}

// close ends the file; one of an answer without a body is empty.
func (a *answerFile) close(answered bool) error {
	if answered && !a.keep && a.path != stdio {
		if err := a.open(); err != nil {
			return err
		}
	}
	if a.file == nil {
		return nil
	}
	return a.file.Close() //nolint:wrapcheck // as above
}
