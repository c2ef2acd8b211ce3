package segment

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// FuzzHeaderBlock reads header blocks with arbitrary content and a sum that
// fits it, and the same content as a block without. What is read is within
// bounds, has a name, and is read again once written anew.
func FuzzHeaderBlock(f *testing.F) {
	h, _ := piece{"a", 1, 11, 40, 0, []raftlog.Mark{markOf(15, 1, start)}, 0}.encode(f)
	body, err := json.Marshal(h)
	require.NoError(f, err)
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		_, err := parseBlock(body, nil, "")
		require.Error(t, err, "a block without a sum was read")
		block := append(binary.LittleEndian.AppendUint32(nil, blockMagic), byte((HeaderSize-blockFrameHead)&0xff), (HeaderSize-blockFrameHead)>>8, 0, 0)
		block = append(block, sealBytes(body)...)
		block = append(block, bytes.Repeat([]byte{' '}, max(0, HeaderSize-len(block)))...)
		h, err := parseBlock(block, nil, "")
		if err != nil {
			return
		}
		if h.Object.RawSize > rawLimit || h.Object.FrameSize > codec.MaxFrameSize || !h.Holds(h.FirstIndex) || !h.Holds(h.LastIndex) {
			t.Fatalf("out of bounds: %+v", h)
		}
		_, err = repository.ParseSegmentName(h.Name())
		require.NoError(t, err)
		again, err := h.block()
		if err != nil {
			return // it takes more room as we write it
		}
		if back, err := parseBlock(again, nil, ""); err != nil || back.Name() != h.Name() {
			t.Fatalf("written anew it is %+v, %v", back, err)
		}
	})
}

// FuzzRecords parses arbitrary raw bytes. What is read is written as the same
// bytes, but for the spelling of marks.
func FuzzRecords(f *testing.F) {
	for _, b := range []Batch{
		{Entries: entriesOf("a", 1, 3)},
		{entriesOf("a", 1, 9), []raftlog.Mark{markOf(5, 1, start), markOf(6, 1, start)}},
	} {
		raw, err := records(b)
		require.NoError(f, err)
		f.Add(raw, len(b.Entries))
	}
	f.Fuzz(func(t *testing.T, raw []byte, entries int) {
		b, err := parseRecords(raw, max(0, entries), len(raw))
		if err != nil {
			return
		}
		marks := b.Marks
		b.Marks = nil
		again, err := records(b)
		if err != nil || !bytes.HasPrefix(raw, again) || len(marks) == 0 && len(again) != len(raw) {
			t.Fatalf("%d bytes are written as %d, %v", len(raw), len(again), err)
		}
		if cap(b.Entries) > len(raw)/minRecord+len(b.Entries) {
			t.Fatalf("%d entries were allocated for %d bytes", cap(b.Entries), len(raw))
		}
		if len(b.Entries) == 0 {
			return
		}
		h := Header{FirstIndex: b.Entries[0].Index, FirstTerm: b.Entries[0].Term, Entries: len(b.Entries), Marks: len(marks)}
		last := b.Entries[len(b.Entries)-1]
		h.LastIndex, h.LastTerm = last.Index, last.Term
		_, _ = chain(h, Batch{b.Entries, marks}) // any error will do
	})
}

// FuzzSegment reads arbitrary bodies behind a header whose sums and sizes fit
// them where they can be made to.
func FuzzSegment(f *testing.F) {
	h, data := piece{"a", 1, 11, 40, 0, nil, 0}.encode(f)
	f.Add(data[HeaderSize:])
	f.Fuzz(func(t *testing.T, body []byte) {
		h := h
		h.Object.StoredSize, h.Object.StoredSHA256 = int64(len(body)), sha256Hex(body)
		block, err := h.block()
		require.NoError(t, err)
		_, b, err := Read(t.Context(), newRepo(t, memory(t, h.Name(), append(block, body...))), h.Name())
		if err == nil && len(b.Entries) != h.Entries {
			t.Fatalf("%d entries were read", len(b.Entries))
		}
	})
}
