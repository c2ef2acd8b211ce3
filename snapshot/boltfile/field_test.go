package boltfile

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

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
