package page

import (
	"cmp"
	"slices"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
)

// stretch is a range of the repository with times at both ends.
type stretch struct {
	Timeline    repository.TimelineID
	From, To    time.Time
	Gap         bool
	Reason      string
	First, Last uint64 // raft indexes
}

// point tells that it is one full snapshot that no log follows.
func (s stretch) point() bool { return !s.Gap && s.First == s.Last }

// stretchesOf gives every range times. A gap has none of its own where nothing
// was observed in it: it is between its neighbours, or goes on until now.
func stretchesOf(st *status.Status) []stretch {
	begun := map[string]time.Time{}
	for _, b := range st.Repository.Backups {
		begun[b.Timeline.String()+"/"+b.ID] = b.Time
	}
	var all []stretch
	for _, r := range st.Repository.Ranges {
		s := stretch{r.Timeline, r.From, r.To, r.Gap, r.Reason, r.FirstIndex, r.LastIndex}
		if s.From.IsZero() {
			s.From = begun[r.Timeline.String()+"/"+r.FirstBackup]
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b stretch) int {
		return cmp.Or(cmp.Compare(a.Timeline.ClusterID, b.Timeline.ClusterID), cmp.Compare(a.Timeline.N, b.Timeline.N), cmp.Compare(a.First, b.First))
	})
	for i := range all {
		s := &all[i]
		alone := func(j int) bool { return j < 0 || j >= len(all) || all[j].Timeline != s.Timeline }
		if s.From.IsZero() && !alone(i-1) {
			s.From = all[i-1].To
		}
		if s.To.IsZero() && !alone(i+1) {
			s.To = all[i+1].From
		}
		last := alone(i+1) && s.Timeline == st.Repository.Timeline
		if last && s.Gap && s.To.IsZero() {
			s.To = st.Time
		}
		// The archive is ahead of the last listing.
		if last && !s.Gap && st.RPO.Known && st.RPO.Until.After(s.To) {
			s.To = st.RPO.Until
		}
		if s.To.Before(s.From) {
			s.To = s.From
		}
	}
	return slices.DeleteFunc(all, func(s stretch) bool { return s.From.IsZero() && s.To.IsZero() })
}
