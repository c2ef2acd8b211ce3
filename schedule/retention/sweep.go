package retention

import (
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

const (
	// recordsAfter is how long verdicts, and the records that a backup or a log was
	// let go, stay to be looked at after they are of no use.
	recordsAfter = 30 * 24 * time.Hour
	// staleAfter is how long a record stays whose backup stays after all: whoever
	// wrote it may still be at it.
	staleAfter = 24 * time.Hour
)

// Sweep is how many objects go that were of use for some time only.
type Sweep struct {
	Verdicts int `json:"verdicts"` // the oldest ones
	Records  int `json:"records"`  // of what was let go
	Claims   int `json:"claims"`
	Scratch  int `json:"scratch"`

	verdicts, others []string
}

func (s Sweep) count() int { return s.Verdicts + s.Records + s.Claims + s.Scratch }

func (d *decision) sweep() {
	s := &d.plan.Sweep
	named := map[string]bool{} // backups that verdicts name which stay
	going := d.inv.Sound
	for i, v := range d.inv.Verdicts {
		// Only the beginning of the chain may go, and never its end.
		going = going && i < len(d.inv.Verdicts)-1 && d.old(v.Stored, recordsAfter) && d.spare(v)
		if going {
			s.verdicts = append(s.verdicts, repository.VerdictName(v.Sequence))
			continue
		}
		for _, one := range v.Subjects {
			named[repository.PrunedName(one.Timeline, one.Backup)] = true
		}
	}
	s.Verdicts = len(s.verdicts)
	for _, r := range d.inv.Pruned {
		if name := repository.PrunedName(r.Timeline, r.Backup); d.uselessRecord(r, named[name]) {
			s.others = append(s.others, name)
		}
	}
	for _, t := range d.inv.Timelines {
		var highest uint64
		for _, index := range t.LetGo {
			highest = max(highest, index)
		}
		for _, index := range t.LetGo {
			if index < highest {
				s.others = append(s.others, repository.PrunedLogName(t.ID, index))
			}
		}
	}
	s.Records = len(s.others)
	s.Claims = s.old(d, d.inv.Claims, recordsAfter)
	s.Scratch = s.old(d, d.inv.Scratch, staleAfter)
}

// old adds the objects that are older.
func (s *Sweep) old(d *decision, objects []sinks.Object, than time.Duration) (n int) {
	for _, o := range objects {
		if d.old(o.ModTime, than) {
			s.others = append(s.others, o.Name)
			n++
		}
	}
	return n
}

// old tells whether the place has kept something for longer than that.
func (d *decision) old(stored time.Time, than time.Duration) bool {
	return d.inv.Clock.Sub(stored) > than
}

// spare tells that nothing depends on a verdict: its backups were let go, or
// newer verdicts say the same of them.
func (d *decision) spare(v Verdict) bool {
	for _, s := range v.Subjects {
		switch {
		case s.Spare:
		case s.Backup != "":
			if d.inv.backup(s.Timeline, s.Backup) != nil || !d.recorded(s.Timeline, s.Backup) {
				return false
			}
		case s.Log > 0:
			if t := d.inv.timeline(s.Timeline); t == nil || !t.wasLetGo(s.Log) {
				return false
			}
		}
	}
	return true
}

// recorded tells that a record says that a backup was let go.
func (d *decision) recorded(t repository.TimelineID, backup string) bool {
	for _, r := range d.inv.Pruned {
		if r.Timeline == t && r.Backup == backup {
			return true
		}
	}
	return false
}

func (t *Timeline) wasLetGo(index uint64) bool {
	for _, letGo := range t.LetGo {
		if index <= letGo {
			return true
		}
	}
	return false
}

// uselessRecord tells that no verdict misses the backup of a record, and nothing
// of it is left; or that the backup is listed and stays.
func (d *decision) uselessRecord(r PrunedRecord, named bool) bool {
	if b := d.inv.backup(r.Timeline, r.Backup); b != nil {
		return d.stays(b) && d.old(r.Written, staleAfter)
	}
	if t := d.inv.timeline(r.Timeline); t != nil {
		for _, l := range t.Leftovers {
			if l.Backup == r.Backup {
				return false
			}
		}
	}
	return !named && d.old(r.Written, recordsAfter)
}
