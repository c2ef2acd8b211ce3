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
	// Nearly all have a tag of one byte, and a number, or a length, of up to three.
	if len(message) > 3 && message[0] >= 1<<3 && message[0] < 1<<7 {
		v, n := uint64(message[1]), 2
		if v >= 1<<7 {
			v, n = v&0x7f|uint64(message[2])<<7, 3
			if v >= 1<<14 {
				v, n = v&0x3fff|uint64(message[3])<<14, 4
			}
		}
		if v < 1<<21 {
			f.Number, f.Kind = protowire.Number(message[0]>>3), protowire.Type(message[0]&7)
			if f.Kind == protowire.VarintType {
				f.Varint = v
				return f, n
			}
			if end := n + int(v); f.Kind == protowire.BytesType && end <= len(message) {
				f.Bytes = message[n:end]
				return f, end
			}
		}
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
