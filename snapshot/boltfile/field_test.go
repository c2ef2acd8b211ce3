package boltfile

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestConsume: each kind of field, and the same message cut off anywhere.
func TestConsumeField(t *testing.T) {
	var b []byte
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), 300)
	b = protowire.AppendFixed64(protowire.AppendTag(b, 2, protowire.Fixed64Type), 7)
	b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), []byte("abc"))
	b = protowire.AppendFixed32(protowire.AppendTag(b, 4, protowire.Fixed32Type), 7)
	b = protowire.AppendTag(protowire.AppendTag(b, 5, protowire.StartGroupType), 5, protowire.EndGroupType)
	b = protowire.AppendBytes(protowire.AppendTag(b, 100, protowire.BytesType), nil)
	want := []Field{
		{Number: 1, Kind: protowire.VarintType, Varint: 300},
		{Number: 2, Kind: protowire.Fixed64Type},
		{Number: 3, Kind: protowire.BytesType, Bytes: []byte("abc")},
		{Number: 4, Kind: protowire.Fixed32Type},
		{Number: 5, Kind: protowire.StartGroupType},
		{Number: 100, Kind: protowire.BytesType, Bytes: []byte{}},
	}
	ends := map[int]bool{0: true}
	for rest, i := b, 0; len(rest) > 0; i++ {
		f, n := ConsumeField(rest)
		if n < 0 || i == len(want) {
			t.Fatalf("field %d: %v", i, protowire.ParseError(n))
		}
		if w := want[i]; f.Number != w.Number || f.Kind != w.Kind || f.Varint != w.Varint || !bytes.Equal(f.Bytes, w.Bytes) {
			t.Errorf("field %d is %v, want %v", i, f, w)
		}
		rest = rest[n:]
		ends[len(b)-len(rest)] = true
	}
	for cut := range len(b) {
		rest, n := b[:cut], 0
		for len(rest) > 0 && n >= 0 {
			if _, n = ConsumeField(rest); n >= 0 {
				rest = rest[n:]
			}
		}
		if (n >= 0) != ends[cut] {
			t.Errorf("cut after %d bytes: length %d", cut, n)
		}
	}
}
