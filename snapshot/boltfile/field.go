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

// ConsumeField reads the field that a message begins with, and tells its length. Below
// 0 it is none, and protowire.ParseError says why. Fields of other kinds than
// VarintType and BytesType are passed over, with their length only.
func ConsumeField(message []byte) (f Field, length int) {
	if f, n := shortField(message); n > 0 {
		return f, n
	}
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

// shortField reads, as ConsumeField does, the fields that nearly all are: with a tag of one byte, and a
// number, or a length, of up to five. Of any other its length is 0.
func shortField(message []byte) (f Field, length int) {
	if len(message) < 2 || message[0] < 1<<3 || message[0] >= 1<<7 {
		return f, 0
	}
	var v uint64
	n := 1
	for ; ; n++ {
		if n == len(message) || n == 6 {
			return f, 0
		}
		v |= uint64(message[n]&0x7f) << (7 * (n - 1))
		if message[n] < 1<<7 {
			break
		}
	}
	n++
	f.Number, f.Kind = protowire.Number(message[0]>>3), protowire.Type(message[0]&7)
	switch f.Kind {
	case protowire.VarintType:
		f.Varint = v
	case protowire.BytesType:
		if v > uint64(len(message)-n) {
			return f, 0
		}
		end := n + int(v)
		f.Bytes, n = message[n:end:end], end
	default:
		return f, 0
	}
	return f, n
}
