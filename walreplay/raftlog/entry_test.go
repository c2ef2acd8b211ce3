package raftlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

var samples = []Entry{
	{Index: 1, Term: 1},
	{Index: math.MaxUint64, Term: math.MaxUint64, Type: raftpb.EntryConfChangeV2, Data: []byte{0}},
	{Index: 300, Term: 2, Type: raftpb.EntryConfChange, Data: bytes.Repeat([]byte("x"), 1000)},
}

// The canonical form is an ordinary raftpb.Entry, and the one that Parse takes.
func TestCanonicalForm(t *testing.T) {
	for _, e := range samples {
		b := e.Append(nil)
		if len(b) != e.Size() {
			t.Errorf("%s: Size is %d, Append wrote %d", e, e.Size(), len(b))
		}
		var r raftpb.Entry
		require.NoError(t, proto.Unmarshal(b, &r))
		if got := fromRaft(&r); !got.Equal(e) {
			t.Errorf("raft reads %s as %s", e, got)
		}
		got, err := Parse(b)
		if err != nil || !got.Equal(e) {
			t.Errorf("Parse(%s) = %s, %v", e, got, err)
		}
		back, err := proto.Marshal(e.Raft())
		require.NoError(t, err)
		if err := proto.Unmarshal(back, &r); err != nil || !fromRaft(&r).Equal(e) {
			t.Errorf("Raft() of %s is another entry", e)
		}
	}
}

// A second spelling of an entry would give it a second chain value.
func TestParseRefusesOtherSpellings(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty":             {},
		"no index":          {8, 0, 16, 1},
		"another order":     {16, 1, 8, 0, 24, 1},
		"long varint":       {8, 0, 16, 0x81, 0x00, 24, 1},
		"empty data":        {8, 0, 16, 1, 24, 1, 34, 0},
		"data cut short":    {8, 0, 16, 1, 24, 1, 34, 2, 1},
		"trailing bytes":    {8, 0, 16, 1, 24, 1, 34, 1, 1, 0},
		"negative type":     {8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 16, 1, 24, 1},
		"type out of int32": {8, 0xff, 0xff, 0xff, 0xff, 0x0f, 16, 1, 24, 1},
	} {
		if e, err := Parse(b); err == nil {
			t.Errorf("%s: read as %s", name, e)
		}
	}
}

// The chain is what docs/format.md says, computed here by hand.
func TestChain(t *testing.T) {
	want := make([]byte, sha256.Size)
	var s Sum
	for i, e := range samples {
		var b bytes.Buffer
		b.Write(want)
		for _, n := range []uint64{e.Index, e.Term, uint64(e.Type)} {
			for shift := 56; shift >= 0; shift -= 8 {
				b.WriteByte(byte(n >> shift))
			}
		}
		b.Write(e.Data)
		sum := sha256.Sum256(b.Bytes())
		want = sum[:]
		s = s.Next(e)
		if !bytes.Equal(s[:], want) {
			t.Errorf("value %d is %s, want %x", i, s, want)
		}
	}
	text, _ := s.MarshalText()
	var back Sum
	if err := back.UnmarshalText(text); err != nil || back != s || string(text) != hex.EncodeToString(want) {
		t.Errorf("text %s reads as %s, %v", text, back, err)
	}
	require.Error(t, back.UnmarshalText(text[1:]), "a short sum was read")
}

func FuzzParse(f *testing.F) {
	for _, e := range samples {
		f.Add(e.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b)
		if err == nil && !bytes.Equal(e.Append(nil), b) {
			t.Fatalf("%x was read and is written as %x", b, e.Append(nil))
		}
	})
}

// fromRaft takes an entry as raft has it. Data is shared, not copied.
func fromRaft(e *raftpb.Entry) Entry {
	c := Entry{Index: e.GetIndex(), Term: e.GetTerm(), Type: e.GetType(), Data: e.Data}
	if len(c.Data) == 0 {
		c.Data = nil
	}
	return c
}
