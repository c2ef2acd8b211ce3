package page

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
)

// life and end are where a timeline begins, and where it was last heard of.
func (s scale) life(st *status.Status, all []stretch, id repository.TimelineID) string {
	first := st.Time
	see := func(t time.Time) {
		if !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	for _, t := range st.Repository.Timelines {
		if t.ID == id {
			see(t.Created)
		}
	}
	for _, b := range st.Repository.Backups {
		if b.Timeline == id {
			see(b.Time)
		}
	}
	for _, r := range all {
		if r.Timeline == id {
			see(r.From)
		}
	}
	return s.x(first)
}

func (s scale) end(st *status.Status, all []stretch, id repository.TimelineID) string {
	if id == st.Repository.Timeline {
		return s.x(st.Time)
	}
	last := s.from
	see := func(t time.Time) {
		if t.After(last) {
			last = t
		}
	}
	for _, b := range st.Repository.Backups {
		if b.Timeline == id {
			see(b.Time)
		}
	}
	for _, r := range all {
		if r.Timeline == id {
			see(r.To)
		}
	}
	// It went on at least until another one branched off.
	for _, t := range st.Repository.Timelines {
		if t.Parent != nil && t.Parent.Timeline == id {
			see(t.Created)
		}
	}
	return s.x(last)
}

// links join timelines to those that they branch off.
func (s scale) links(st *status.Status, rows map[repository.TimelineID]int) []link {
	var all []link
	for _, t := range st.Repository.Timelines {
		if t.Parent == nil || !s.shows(t.Created) {
			continue
		}
		parent, ok1 := rows[t.Parent.Timeline]
		child, ok2 := rows[t.ID]
		if !ok1 || !ok2 {
			continue
		}
		// Where the backup that it was restored from is known, it branches off
		// there; what followed in the parent is not in it.
		at := t.Created
		for _, b := range st.Repository.Backups {
			if b.Timeline == t.Parent.Timeline && b.ID == t.Parent.Backup {
				at = b.Time
			}
		}
		middle := rowBar + barHeight/2
		all = append(all, link{s.x(at), s.x(t.Created), strconv.Itoa(parent + middle), strconv.Itoa(child + middle)})
	}
	return all
}

// timelinesOf are all that anything is known of: the present one first, then
// the newest.
func timelinesOf(st *status.Status) []repository.TimelineID {
	begun := map[repository.TimelineID]time.Time{}
	see := func(t repository.TimelineID, at time.Time) {
		if old, ok := begun[t]; !ok || at.After(old) {
			begun[t] = at
		}
	}
	for _, t := range st.Repository.Timelines {
		see(t.ID, t.Created)
	}
	for _, b := range st.Repository.Backups {
		see(b.Timeline, b.Time)
	}
	for _, r := range st.Repository.Ranges {
		see(r.Timeline, r.From)
	}
	all := make([]repository.TimelineID, 0, len(begun))
	for t := range begun {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b repository.TimelineID) int {
		if a == st.Repository.Timeline || b == st.Repository.Timeline {
			return boolean(b == st.Repository.Timeline) - boolean(a == st.Repository.Timeline)
		}
		return cmp.Or(begun[b].Compare(begun[a]), cmp.Compare(b.N, a.N), cmp.Compare(b.ClusterID, a.ClusterID))
	})
	return all
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// label names a timeline, with where it branches off, in at most so many
// letters.
func label(st *status.Status, id repository.TimelineID, letters int) string {
	s := id.String()
	if id == st.Repository.Timeline {
		s += ", now"
	}
	for _, t := range st.Repository.Timelines {
		if t.ID == id && t.Parent != nil {
			s += ", branched off " + t.Parent.Timeline.String()
			if t.Parent.RaftIndex > 0 {
				s += " behind index " + strconv.FormatUint(t.Parent.RaftIndex, 10)
			}
			if t.Reason != "" {
				s += ": " + t.Reason
			}
		}
	}
	if r := []rune(s); len(r) > letters {
		s = string(r[:letters-1]) + "…"
	}
	return s
}
