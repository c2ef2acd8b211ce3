package snapshot

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
)

// Promise 6: a cluster that began again under its cluster ID, below what is archived, is
// never the newest state until somebody has answered; restores, recoveries and revision
// bumps are no such thing.
func TestPromise6StartedOver(t *testing.T) {
	old, emptied, again := repository.TimelineID{ClusterID: 7, N: 1}, repository.TimelineID{ClusterID: 7, N: 2}, repository.TimelineID{ClusterID: 7, N: 3}
	restored := repository.TimelineID{ClusterID: 8, N: 1}
	at := func(hours int) time.Time { return time.Date(2026, 1, 1, hours, 0, 0, 0, time.UTC) }
	line := func(id, parent repository.TimelineID, hours int) repository.Timeline {
		t := repository.Timeline{ID: id, Created: at(hours)}
		if parent.N > 0 {
			t.Parent = &repository.Branch{Timeline: parent}
		}
		return t
	}
	full := func(t repository.TimelineID, hours int, revision int64, index uint64) *Manifest {
		return &Manifest{ID: at(hours).Format("20060102T150405Z") + "-aaaaaa", Timeline: t, Started: at(hours), Facts: Facts{Revision: revision, RaftIndex: index, RaftTerm: 2}}
	}
	type archived = map[repository.TimelineID]Archived
	none := repository.TimelineID{}
	lines := []repository.Timeline{line(old, none, 1), line(emptied, old, 5)}
	withRestored := []repository.Timeline{lines[0], lines[1], line(restored, old, 7)}
	first, second := full(old, 2, 125, 130), full(emptied, 6, 21, 24)
	for name, c := range map[string]struct {
		timelines []repository.Timeline
		fulls     []*Manifest
		archived  archived
		damaged   []Unusable
		newest    repository.TimelineID // that has started over, without an answer
		found     repository.TimelineID // otherwise
	}{
		"emptied":                               {lines, []*Manifest{first, second}, nil, nil, emptied, none},
		"without a full snapshot yet":           {lines, []*Manifest{first}, nil, nil, emptied, none},
		"written past the older one since":      {lines, []*Manifest{first, full(emptied, 6, 500, 510)}, nil, nil, emptied, none},
		"only the log reached further":          {lines, []*Manifest{full(old, 2, 20, 30), full(emptied, 6, 60, 20)}, archived{old: {Revision: 125}}, nil, emptied, none},
		"twice":                                 {append(lines[:2:2], line(again, emptied, 8)), []*Manifest{first, second, full(again, 9, 3, 7)}, nil, nil, again, none},
		"its descriptor is damaged":             {[]repository.Timeline{lines[0], {ID: emptied}}, []*Manifest{first, second}, nil, []Unusable{{Timeline: emptied}}, emptied, none},
		"restored for a test before":            {append(lines[:2:2], line(restored, old, 3)), []*Manifest{first, full(restored, 4, 100, 9), second}, archived{old: {Seen: at(4)}}, nil, emptied, none},
		"accepted":                              {lines, []*Manifest{first, second}, archived{old: {Superseded: true, By: emptied}}, nil, none, emptied},
		"accepted after the second time":        {append(lines[:2:2], line(again, emptied, 8)), []*Manifest{first, second, full(again, 9, 3, 7)}, archived{old: {Superseded: true, By: again}, emptied: {Superseded: true, By: again}}, nil, none, again},
		"the old disks are back":                {lines, []*Manifest{first, second}, archived{emptied: {Superseded: true, By: old}}, nil, none, old},
		"the older one was restored":            {withRestored, []*Manifest{first, second, full(restored, 8, 200, 9)}, archived{old: {Seen: at(4)}, emptied: {Seen: at(7)}}, nil, none, restored},
		"restored, and not backed up yet":       {withRestored, []*Manifest{first, second}, nil, nil, emptied, none},
		"recovered":                             {withRestored, []*Manifest{first, second, full(restored, 8, 200, 9)}, archived{old: {Superseded: true, By: restored}, emptied: {Superseded: true, By: restored}}, nil, none, restored},
		"restored by hand with a revision bump": {lines, []*Manifest{first, full(emptied, 6, 1_000_000_121, 24)}, nil, nil, none, emptied},
		"the older one holds nothing":           {lines, []*Manifest{second}, nil, nil, none, emptied},
		"restored, another cluster ID":          {[]repository.Timeline{lines[0], line(restored, old, 5)}, []*Manifest{first, full(restored, 6, 21, 24)}, nil, nil, none, restored},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := &Catalog{Timelines: c.timelines, Manifests: c.fulls, Archived: c.archived, DamagedTimelines: c.damaged, repository: "file:///x"}
			m, err := catalog.Find(Latest, "")
			if c.newest == none {
				require.NoError(t, err)
				require.Equal(t, c.found, m.Timeline)
				return
			}
			var over *StartedOverError
			require.True(t, errors.As(err, &over), "%v, %v", m, err)
			require.Equal(t, []repository.TimelineID{c.newest, old}, []repository.TimelineID{over.Newest, over.From})
			for _, part := range []string{"revision 1", "'requorum accept " + c.newest.String() + " --repo file:///x'", "--timeline " + old.String()} {
				require.ErrorContains(t, err, part)
			}
			_, err = catalog.Find(Latest, old.String())
			require.NoError(t, err, "it is chosen")
		})
	}
}
