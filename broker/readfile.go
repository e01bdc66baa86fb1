package broker

import (
	"fmt"
	"io"
	"os"
)

// maxFileBytes bounds a configuration file: more is a mistake, such as a device or a log given in its place.
const maxFileBytes = 16 << 20

func readBounded(path string) ([]byte, error) {
	// Looked at before it is opened: a pipe in the place of a file would hang the reader.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file, and the caller what it was wanted for
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than the 16 MiB that such a file may have", path)
	}
	return data, nil
}
