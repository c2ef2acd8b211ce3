package raftlog

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Sum is the value of the chain after an entry: it commits to that entry and to
// all before it, back to where the chain began. The zero Sum is the value before
// the first entry of a chain.
type Sum [sha256.Size]byte

// Next is the chain's value after e: SHA-256 over the value before it, then
// index, term and type as 64-bit big-endian numbers, then the data.
func (s Sum) Next(e Entry) Sum {
	var head [sha256.Size + 24]byte
	copy(head[:], s[:])
	binary.BigEndian.PutUint64(head[sha256.Size:], e.Index)
	binary.BigEndian.PutUint64(head[sha256.Size+8:], e.Term)
	binary.BigEndian.PutUint64(head[sha256.Size+16:], uint64(uint32(e.Type)))
	h := sha256.New()
	h.Write(head[:])
	h.Write(e.Data)
	h.Sum(s[:0])
	return s
}

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText writes the sum in hexadecimal.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Sum) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(s) {
		return fmt.Errorf("%q is not a chain value: want %d hexadecimal digits", text, 2*len(s))
	}
	if _, err := hex.Decode(s[:], text); err != nil {
		return fmt.Errorf("%q is not a chain value: %w", text, err)
	}
	return nil
}
