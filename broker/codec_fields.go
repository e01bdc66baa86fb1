package broker

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The two ways in which the messages of the codec write a value.
const (
	varint    = uint64(protowire.VarintType)
	delimited = uint64(protowire.BytesType)
)

// fields walks over the fields of one message. It stops at the end, and at whatever a plain serializer does not write: broken or
// unknown encodings, a field given twice, repeated ones that do not stand in a row.
type fields struct {
	all      []byte
	rest     []byte
	repeated uint64 // field numbers, as bits
	seen     uint64 // likewise
	odd      bool   // it stopped before the end

	// The field stopped at: its tag, where in all it begins and ends, its number or its bytes.
	tag        uint64
	start, end int
	number     uint64
	data       []byte
}

func walk(all []byte, repeated uint64) fields { return fields{all: all, rest: all, repeated: repeated} }

func (f *fields) next() bool {
	if len(f.rest) == 0 {
		return false
	}
	tag, n := protowire.ConsumeVarint(f.rest)
	if n < 0 || tag>>3 > 63 {
		return f.stop()
	}
	bit := uint64(1) << (tag >> 3)
	if f.seen&bit != 0 && (f.repeated&bit == 0 || f.tag != tag) {
		return f.stop()
	}
	f.seen |= bit
	f.start = f.end
	f.tag = tag
	value := f.rest[n:]
	switch tag & 7 {
	case varint:
		f.number, n = protowire.ConsumeVarint(value)
	case delimited:
		f.data, n = protowire.ConsumeBytes(value)
	default:
		n = -1
	}
	if n < 0 {
		return f.stop()
	}
	f.rest = value[n:]
	f.end = len(f.all) - len(f.rest)
	return true
}

func (f *fields) stop() bool {
	f.odd = true
	return false
}

// text is the field as a string of its own.
func (f *fields) text(to *string) {
	if !utf8.Valid(f.data) {
		f.odd = true
		return
	}
	*to = string(f.data)
}

// textIn is the field as a part of whole, which is f.all with offset bytes before it.
func (f *fields) textIn(whole string, offset int, to *string) {
	end := offset + f.end
	s := whole[end-len(f.data) : end]
	if !utf8.ValidString(s) {
		f.odd = true
	}
	*to = s
}

// run is where the occurrences of a repeated field stand, one after the other.
type run struct {
	start, end, count int
}

func (r *run) add(f *fields) {
	if r.count == 0 {
		r.start = f.start
	}
	r.end = f.end
	r.count++
}
