package boltfile

import "google.golang.org/protobuf/encoding/protowire"

// Field is a field of a protobuf message, which is taken apart without copying and
// without knowing its type: rows and log entries are too many to decode each in full.
type Field struct {
	Number protowire.Number
	Kind   protowire.Type
	Varint uint64 // of a VarintType, else 0
	Bytes  []byte // of a BytesType, else nil; it points into the message
}

// ConsumeField reads the field that a message begins with, and returns its length. Below
// 0 it is none, and protowire.ParseError says why. Fields of other kinds than
// VarintType and BytesType are passed over, with their length only.
func ConsumeField(message []byte) (f Field, length int) {
	// Nearly all have a tag of one byte, and a number, or a length, of less than 64 bits.
	if len(message) < 2 || message[0] < 1<<3 || message[0] >= 1<<7 {
		return consumeAnyField(message)
	}
	v, n := uint64(message[1]&0x7f), 2
	for more, shift := message[1] >= 1<<7, 7; more; shift += 7 {
		if n == len(message) || shift > 56 {
			return consumeAnyField(message)
		}
		v |= uint64(message[n]&0x7f) << shift
		more = message[n] >= 1<<7
		n++
	}
	f.Number, f.Kind = protowire.Number(message[0]>>3), protowire.Type(message[0]&7)
	switch {
	case f.Kind == protowire.VarintType:
		f.Varint = v
		return f, n
	case f.Kind == protowire.BytesType && v <= uint64(len(message)-n):
		end := n + int(v)
		f.Bytes = message[n:end]
		return f, end
	}
	return consumeAnyField(message)
}

func consumeAnyField(message []byte) (f Field, length int) {
	var n, m int
	if f.Number, f.Kind, n = protowire.ConsumeTag(message); n < 0 {
		return f, n
	}
	switch f.Kind {
	case protowire.VarintType:
		f.Varint, m = protowire.ConsumeVarint(message[n:])
	case protowire.BytesType:
		f.Bytes, m = protowire.ConsumeBytes(message[n:])
	default:
		m = protowire.ConsumeFieldValue(f.Number, f.Kind, message[n:])
	}
	if m < 0 {
		return f, m
	}
	return f, n + m
}
