package archive

import (
	"context"
	"testing"
	"time"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// slowLog is a log that is read a few entries at a time.
type slowLog struct{ *fakeLog }

func (l slowLog) Poll(ctx context.Context) error {
	err := l.fakeLog.Poll(ctx)
	l.pending = l.pending[:min(len(l.pending), 5)]
	return err
}

// marks are those of the archived log.
func (r *rig) marks() (all []raftlog.Mark) {
	r.Helper()
	for m, err := range r.openLog(1).Marks(context.Background(), time.Time{}, time.Time{}) {
		if err != nil {
			r.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// An archiver that reads the log later than it was written writes no marks for
// what it catches up with: each mark tells when its entry was the last one
// applied, and never when it was read.
func TestNoMarksForEntriesReadLate(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		r.cluster.commit(300, "old")
		applied := map[uint64]time.Time{300: time.Now()}
		m.recorded = 300
		a := r.start(0, func(c *Config) {
			c.open = func(from uint64) (Log, error) {
				l, err := m.open(from)
				if err != nil {
					return l, err
				}
				return slowLog{l.(*fakeLog)}, nil
			}
		})
		for range 30 { // while it catches up
			time.Sleep(700 * time.Millisecond)
			r.cluster.mu.Lock()
			m.recorded = m.last()
			r.cluster.mu.Unlock()
			r.cluster.commit(1, "live")
			applied[m.last()] = time.Now()
		}
		r.waitArchived(a, m.last(), time.Minute)
		marks := r.marks()
		if len(marks) == 0 {
			t.Fatal("no marks at all")
		}
		for _, mark := range marks {
			at, ok := applied[mark.Index]
			if !ok {
				t.Errorf("entry %d was read while catching up, and has a mark of %s", mark.Index, mark.Time)
				continue
			}
			if next, ok := applied[mark.Index+1]; mark.Time.Before(at) || ok && mark.Time.After(next) {
				t.Errorf("entry %d was the last one applied from %s to %s, its mark says %s", mark.Index, at, next, mark.Time)
			}
		}
	})
}

// A member that itself catches up, far behind what is committed, does not tell
// when its entries were: it gives no marks.
func TestNoMarksOfAMemberThatCatchesUp(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		m := r.cluster.members[0]
		const committed, step = 10_000, 200
		r.cluster.commit(1, "old")
		a := r.start(0)
		r.waitArchived(a, 1, 10*time.Second)
		caughtUp := time.Now()
		r.cluster.mu.Lock()
		m.ahead = committed
		r.cluster.mu.Unlock()
		for m.last() < committed-1 {
			r.cluster.commit(min(step, int(committed-m.last())), "old")
			if m.last() < committed-lateEntries {
				caughtUp = time.Now()
			}
			time.Sleep(time.Second)
		}
		for range 10 {
			r.cluster.commit(2, "live")
			time.Sleep(time.Second)
		}
		r.waitArchived(a, m.last(), 10*time.Second)
		live := 0
		for _, mark := range r.marks() {
			switch {
			case mark.Index > committed:
				live++
			case mark.Index > 1 && mark.Time.Before(caughtUp):
				t.Errorf("entry %d has a mark of %s, while the member caught up", mark.Index, mark.Time)
			}
		}
		if live < 5 {
			t.Errorf("%d marks of live entries", live)
		}
	})
}
