package segment

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// record makes one as docs/format.md says.
func record(kind byte, content []byte) []byte {
	b := binary.AppendUvarint([]byte{kind}, uint64(len(content)))
	return append(b, content...)
}

// The records are those of docs/format.md, written here by hand.
func TestRecords(t *testing.T) {
	e := raftlog.Entry{Index: 5, Term: 2, Data: bytes.Repeat([]byte("x"), 200)}
	m := raftlog.Mark{Index: 5, Term: 2, Time: start, Member: 1<<64 - 1, Revision: 4}
	want := append(record('e', e.Append(nil)), record('m', []byte(`{"index":5,"term":2,"time":"2026-01-02T03:04:05Z","member":18446744073709551615,"revision":4}`))...)
	got, err := records(Batch{[]raftlog.Entry{e}, []raftlog.Mark{m}})
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestRecordsRefused(t *testing.T) {
	entry := record('e', raftlog.Entry{Index: 5, Term: 2}.Append(nil))
	mark := record('m', []byte(`{"index":5}`))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, b := range map[string][]byte{
		"an entry after a mark": join(entry, mark, entry),
		"an unknown kind":       join(entry, record('x', nil)),
		"a long varint":         join([]byte{'e', entry[1] | 0x80, 0}, entry[2:]),
		"a varint without end":  {'e', 0x80},
		"a kind alone":          {'e'},
		"too long":              entry[:len(entry)-1],
		"a huge length":         {'e', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"no entry":              record('e', []byte("x")),
		"no JSON":               record('m', []byte("{")),
	} {
		if got, err := parseRecords(b, 1, 1); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}
