package h2

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// What is taken out is what was put in, in blocks of which all but the last are full.
func TestBacklogKeepsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b backlog
		var want, got []byte
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 3*blockBytes), 0, 6).Draw(t, "sizes") {
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(len(want) + i*7)
			}
			b.add(data)
			want = append(want, data...)
			clear(data) // the frame it came in is read into again
		}
		for i, one := range b {
			if one.n == 0 || i < len(b)-1 && one.n < blockBytes {
				t.Fatalf("block %d of %d has %d bytes", i, len(b), one.n)
			}
			got = append(got, one.bytes[:one.n]...)
			blocks.Put(one) // for the next round
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d, or others", len(got), len(want))
		}
	})
}

// Buffers that a body made large stay while there may be more of one, and go when no stream is left.
func TestLargeBuffersGoWithTheLastStream(t *testing.T) {
	c := &Conn{streams: map[uint32]*stream{1: {id: 1}, 3: {id: 3}}}
	c.out, c.spare = make(buffer, 0, keptBytes+1), make(buffer, 0, keptBytes+1)
	c.finishLocked(c.streams[1], nil)
	if c.out == nil || c.spare == nil {
		t.Error("gone while a stream is open")
	}
	c.writing, c.out = true, append(c.out, 1)
	c.finishLocked(c.streams[3], nil)
	if c.out == nil || c.spare == nil {
		t.Error("gone while they are in use")
	}
	c.writing = false
	c.dropLargeLocked()
	if len(c.out) != 1 || c.spare != nil {
		t.Error("what waits to be written is gone, or the other one is not")
	}
	c.out = c.out[:0]
	c.dropLargeLocked()
	if c.out != nil {
		t.Error("kept")
	}
}
