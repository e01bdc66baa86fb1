package sqlite

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// sumOf is the SHA-256 of fields, each behind its length in eight bytes, so that no two rows give the same bytes. The first names
// the table, so that a row of one is none of another.
func sumOf(fields ...[]byte) []byte {
	h := sha256.New()
	var length [8]byte
	for _, f := range fields {
		binary.BigEndian.PutUint64(length[:], uint64(len(f)))
		_, _ = h.Write(length[:]) // never fails (hash.Hash)
		_, _ = h.Write(f)
	}
	return h.Sum(nil)
}

// number is n as a field of a sum.
func number(n int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(n)) //nolint:gosec // every number has bytes of its own
}

// flag is b as SQLite stores it.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// same is an error unless the sum that was stored is the one of what was read.
func same(stored, sum []byte, what string) error {
	if !bytes.Equal(stored, sum) {
		return fmt.Errorf("%w: %s is not what was written", ErrDamaged, what)
	}
	return nil
}
