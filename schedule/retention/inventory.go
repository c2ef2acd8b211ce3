package retention

import (
	"cmp"
	"slices"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/segment"
)

// Inventory is what a repository holds, as far as retention depends on it.
type Inventory struct {
	Repository string // its URL, without secrets
	// Clock is the latest time that the place gave to any object: by its own clock
	// it is at least this late.
	Clock     time.Time
	Timelines []*Timeline
	// Pruned are the records of backups that were pruned before.
	Pruned []PrunedRecord
	// Verdicts are the oldest first; Sound says that all could be read.
	Verdicts []Verdict
	Sound    bool
	// Results (of jobs, and other records of theirs) and Scratch are objects of use for some
	// time only, each in the order of names.
	Results, Scratch []sinks.Object
}

// Timeline is one history.
type Timeline struct {
	ID repository.TimelineID
	// By is the timeline that goes on in its stead since Ended; zero for one that
	// is not superseded.
	By    repository.TimelineID
	Ended time.Time
	// Seen is when its cluster was last observed; zero where nothing shows it.
	Seen time.Time
	// Backups are ordered by index, those of which none is known first.
	Backups []Backup
	// Coverage are the runs of the log that can be read in one go, and Segments the
	// objects that hold it.
	Coverage []segment.Range
	Segments []Segment
	Marks    []repository.MarkName
	Gaps     []repository.GapName
	// Held says why nothing of it is deleted; empty if the rules decide.
	Held string
	// Unread says that it has backups that were not looked at, which may need any of
	// the log.
	Unread bool
	// Leftovers are objects without a use.
	Leftovers []Leftover
}

// Segment is one object of the log.
type Segment struct {
	Name        string
	First, Last uint64 // Last is 0 where nothing shows it
	Bytes       int64
	Damaged     bool
}

// Backup is one full snapshot that is listed: its manifest is there.
type Backup struct {
	Timeline repository.TimelineID
	ID       string
	Taken    time.Time // when it was begun; by its ID where its manifest is damaged
	Finished time.Time
	Index    uint64 // 0 where the manifest is damaged
	Revision int64
	Bytes    int64
	// Unusable says why it counts for nothing, such as what is damaged; empty where it
	// counts, as far as is known.
	Unusable string
	// InClear says that it is not encrypted though an older one is, which Unusable says:
	// one of the two may be somebody else's, so that it neither counts nor goes.
	InClear bool
	// Late was stored long after its manifest says: the repository is a copy, or somebody
	// has made up when it was taken.
	Late bool
	// Proved says that it has passed the level structure, and nothing worse was
	// found since.
	Proved bool
	// Pinned is why it is to stay; Pin says that it is.
	Pin    bool
	Pinned string
	// LockedUntil is the latest end of a retention on any of its objects.
	LockedUntil time.Time
	// Recorded says that a record says it was pruned: that was interrupted.
	Recorded bool
}

func (b Backup) good() bool   { return b.Unusable == "" }
func (b Backup) known() bool  { return b.Index > 0 }
func (b Backup) timely() bool { return b.good() && !b.Late }

// LeftoverKind is why an object is of no use.
type LeftoverKind string

// The kinds of leftovers.
const (
	// Interrupted: there is no manifest, and there never was one.
	Interrupted LeftoverKind = "interrupted upload"
	// Unnamed: the manifest beside it does not name it.
	Unnamed LeftoverKind = "not named by the manifest"
	// OfPruned: its backup was pruned.
	OfPruned LeftoverKind = "of a backup that was pruned"
	// Suspect: its manifest is gone, a verdict names the backup, and no record says
	// that it was pruned. It stays: somebody may need it.
	Suspect LeftoverKind = "manifest gone without a record"
)

// Leftover is what is left in the folder of a backup.
type Leftover struct {
	Timeline repository.TimelineID `json:"timeline"`
	Backup   string                `json:"backup"`
	Kind     LeftoverKind          `json:"kind"`
	Objects  []string              `json:"objects"`
	Bytes    int64                 `json:"bytes"`
	// Since is when the youngest of them was stored, or, of a pruned
	// backup, when that was recorded: by the place's clock.
	Since       time.Time `json:"since"`
	LockedUntil time.Time `json:"locked_until,omitzero"`
}

// PrunedRecord is the record that a backup was pruned.
type PrunedRecord struct {
	Timeline  repository.TimelineID
	Backup    string
	RaftIndex uint64
	Written   time.Time // by the place's clock
}

// Verdict is what a verdict is of use for.
type Verdict struct {
	Name     string
	Stored   time.Time // by the place's clock
	Timeline repository.TimelineID
	Backup   string
	// Spare says that a newer verdict that stands says the same or more.
	Spare bool
}

func (i *Inventory) timeline(id repository.TimelineID) *Timeline {
	for _, t := range i.Timelines {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// backup finds a listed one, or nil.
func (i *Inventory) backup(t repository.TimelineID, id string) *Backup {
	if line := i.timeline(t); line != nil {
		if n := slices.IndexFunc(line.Backups, func(b Backup) bool { return b.ID == id }); n >= 0 {
			return &line.Backups[n]
		}
	}
	return nil
}

// line is a timeline and those that go on in its stead, one after the other.
func (i *Inventory) line(t *Timeline) []*Timeline {
	var all []*Timeline
	for t != nil && !slices.Contains(all, t) {
		all = append(all, t)
		if t.By.N == 0 {
			break
		}
		t = i.timeline(t.By)
	}
	return all
}

// end is the log's last index, or that of the last backup.
func (t *Timeline) end() uint64 {
	var end uint64
	for _, s := range t.Segments {
		end = max(end, s.Last)
	}
	for _, b := range t.Backups {
		end = max(end, b.Index)
	}
	return end
}

// every passes all backups.
func every(Backup) bool { return true }

// held is what a timeline holds at one moment: which full snapshots, and which
// part of the log. It answers what can be restored.
type held struct {
	bases []uint64        // indexes of full snapshots, ascending
	runs  []segment.Range // of the log, ascending, apart
}

// holding is what a timeline holds with those of its backups that pass, and
// without the log up to and with cut. Segments that end behind cut stay whole.
func (t *Timeline) holding(pass func(Backup) bool, cut uint64) held {
	var h held
	for _, b := range t.Backups {
		if b.known() && pass(b) {
			h.bases = append(h.bases, b.Index)
		}
	}
	slices.Sort(h.bases)
	h.bases = slices.Compact(h.bases)
	for _, s := range t.Coverage {
		if s.Last <= cut {
			continue
		}
		if cut >= s.First {
			s.First = t.beginsAfter(cut, s)
		}
		h.runs = append(h.runs, s)
	}
	slices.SortFunc(h.runs, func(a, b segment.Range) int { return cmp.Compare(a.First, b.First) })
	return h
}

// beginsAfter is where a span begins of which all segments that end at or before
// cut are gone.
func (t *Timeline) beginsAfter(cut uint64, span segment.Range) uint64 {
	first := cut + 1
	for _, s := range t.Segments {
		if !s.Damaged && s.Last > cut && s.First >= span.First && s.First < first {
			first = s.First
		}
	}
	return first
}

// reach is the last index that can be replayed to from a full snapshot.
func (h held) reach(base uint64) uint64 {
	for _, r := range h.runs {
		if r.First <= base+1 && base+1 <= r.Last {
			return r.Last
		}
	}
	return base
}

// ranges are the points that can be restored, in runs that do not touch.
func (h held) ranges() []segment.Range {
	var all []segment.Range
	for _, b := range h.bases {
		r := segment.Range{First: b, Last: h.reach(b)}
		if n := len(all); n > 0 && r.First <= all[n-1].Last {
			all[n-1].Last = max(all[n-1].Last, r.Last)
			continue
		}
		all = append(all, r)
	}
	return all
}

// missing is the first point at or behind from that is in before and not in
// after; 0 where there is none. Both are ranges.
func missing(before, after []segment.Range, from uint64) uint64 {
	for _, r := range before {
		next := max(r.First, from)
		for _, a := range after {
			if a.First <= next && next <= a.Last {
				next = a.Last + 1
			}
		}
		if next <= r.Last {
			return next
		}
	}
	return 0
}
