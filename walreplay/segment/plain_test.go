package segment

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// Where a full snapshot is encrypted, what the log holds in the clear after it is damage,
// however the log was opened, and whatever level it is of; until somebody takes it.
func TestRefusePlain(t *testing.T) {
	identity := newIdentity(t)
	first := &snapshot.Manifest{ID: "20260102T150405Z-3f9a2c", Facts: snapshot.Facts{RaftIndex: 15}}
	for name, planted := range map[string]struct {
		clear []piece
		end   uint64 // of the log without them
	}{
		"at the end":        {run("a", 0, 1, 11, 21, 31, 41)[2:], 20},
		"in the middle":     {run("a", 0, 1, 11, 21, 31, 41)[2:3], 20},
		"merged over all":   {[]piece{{"a", 1, 1, 60, 3, nil, 0}}, 40},
		"another beginning": {[]piece{{"b", 12, 12, 70, 0, nil, 0}}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			place := sinktest.NewMemory()
			repo := newRepo(t, place)
			isClear := map[string]bool{}
			for _, p := range planted.clear {
				isClear[p.store(t, place).Name()] = true
			}
			for i, p := range run("a", 0, 1, 11, 21, 31, 41) {
				h, data := p.encode(t, identity.Recipient())
				if i == 0 { // of before there was encryption
					h, data = p.encode(t)
				}
				if !isClear[h.Name()] {
					require.NoError(t, Put(t.Context(), newRepo(t, place), h, data))
				}
			}
			byNames, err := OpenNames(t.Context(), repo, testTimeline, nil, identity)
			require.NoError(t, err)
			for _, l := range []*Log{byNames, openLog(t, repo, identity)} {
				require.NoError(t, l.RefusePlain(t.Context(), first))
				wantEntries(t, l, "a", 1, planted.end)
				_, err := collect(t, l, 1, planted.end+1)
				require.Error(t, err)
				var plain *snapshot.PlainError
				found := 0
				for _, d := range l.Damaged() {
					require.True(t, isClear[d.Name], d.Name)
					require.True(t, errors.As(d.Err, &plain) && snapshot.IsDamaged(d.Err))
					require.True(t, strings.HasPrefix(d.Err.Error(), "segment "+d.Name+" is not encrypted"), d.Err.Error())
					found++
				}
				require.Equal(t, len(isClear), found)
				require.NoError(t, l.Refresh(t.Context()))
				wantEntries(t, l, "a", 1, planted.end)

				require.NoError(t, l.RefusePlain(t.Context(), nil))
				require.Empty(t, l.Damaged())
				if name != "another beginning" { // that is a fork
					wantEntries(t, l, "a", 1, 40)
				}
			}
		})
	}
}

// One that is known by names alone is refused when it is read, or probed.
func TestRefusePlainUnread(t *testing.T) {
	identity := newIdentity(t)
	place := sinktest.NewMemory()
	repo := newRepo(t, place)
	var bounds []uint64
	for i := range uint64(5 * endsRead) {
		bounds = append(bounds, 1+10*i)
	}
	pieces := run("a", 0, bounds...)
	last := &pieces[len(pieces)-1]
	last.marks = []raftlog.Mark{markOf(last.last, 1, start)} // so that no others are read for the time
	for i, p := range pieces {
		if i == 5 {
			p.store(t, place)
			continue
		}
		p.store(t, place, identity.Recipient())
	}
	open := func() *Log {
		l, err := OpenNames(t.Context(), repo, testTimeline, nil, identity)
		require.NoError(t, err)
		require.NoError(t, l.RefusePlain(t.Context(), &snapshot.Manifest{Facts: snapshot.Facts{RaftIndex: 10}}))
		require.True(t, l.current().byNames)
		return l
	}
	for what, read := range map[string]func(*Log) error{
		"read":  func(l *Log) error { _, err := collect(t, l, 1, last.last); return err },
		"probe": func(l *Log) error { return l.Probe(t.Context(), pieces[5].first, last.last) },
	} {
		if err := read(open()); !errors.As(err, new(*snapshot.PlainError)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if h, is, err := open().Holding(t.Context(), pieces[5].first); is || err != nil {
		t.Errorf("%+v holds it: %v", h, err)
	}
}
