package boltfile

import (
	"bytes"
	"math/rand/v2"
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

// Short fields are read without protowire, to the same end: numbers around the sizes that make
// the difference, in more bytes than they need too, lengths that are too long, and any bytes.
func TestConsumeFieldAsProtowire(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	short := 0
	for range 300_000 {
		b := []byte{byte(random.Uint32())}
		switch random.IntN(4) {
		case 0:
			b = protowire.AppendTag(nil, protowire.Number(1+random.IntN(40)), protowire.VarintType)
		case 1, 2:
			b = protowire.AppendTag(nil, protowire.Number(1+random.IntN(40)), protowire.BytesType)
		}
		v := random.Uint64() >> random.IntN(64)
		if random.IntN(2) == 0 {
			v = uint64(max(0, 1<<(7*random.IntN(4))+random.IntN(3)-1))
		}
		b = protowire.AppendVarint(b, v)
		if random.IntN(4) == 0 {
			b = append(b[:len(b)-1], b[len(b)-1]|1<<7, byte(random.IntN(2)))
		}
		for n := random.IntN(200); n > 0; n-- {
			b = append(b, byte(random.Uint32()))
		}
		f, n := ConsumeField(b)
		want, length := consumeAnyField(b)
		if n != length || n >= 0 && (f.Number != want.Number || f.Kind != want.Kind || f.Varint != want.Varint || !bytes.Equal(f.Bytes, want.Bytes) || (f.Bytes == nil) != (want.Bytes == nil)) {
			t.Fatalf("%x: %v of %d bytes, by protowire %v of %d", b, f, n, want, length)
		}
		if n > 0 {
			short++
		}
		key, err := KeyOf(b)
		if wantKey, wantErr := keyOf(b); !bytes.Equal(key, wantKey) || (err == nil) != (wantErr == nil) {
			t.Fatalf("%x: key %x, %v, by protowire %x, %v", b, key, err, wantKey, wantErr)
		}
	}
	if short < 100_000 {
		t.Errorf("only %d were fields", short)
	}
}

// keyOf is KeyOf, by protowire alone.
func keyOf(value []byte) ([]byte, error) {
	for len(value) > 0 {
		f, n := consumeAnyField(value)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if f.Number == 1 {
			return f.Bytes, nil
		}
		value = value[n:]
	}
	return nil, nil
}
