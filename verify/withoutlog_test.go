package verify_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
	"github.com/requorum/requorum/walreplay/segment"
)

// Where no log was ever archived the level replay does not apply: the drill is
// reached without it. Where there is any sign of a log that does not do, it is
// unchecked, and keeps the drill from being the level that was reached.
func TestReplayWithoutALog(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(l *logged)
		left    bool
	}{
		{"none", func(*logged) {}, true},
		{"a gap", func(l *logged) {
			l.must(segment.WriteGap(l.Context(), l.repo, segment.GapRecord{Timeline: l.id, First: 1, Last: 5, Reason: "purged"}))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLogged(t)
			l.puts(10)
			id := l.backup()
			c.prepare(l)
			r, err := verify.Repository(t.Context(), l.repo, verify.Request{Level: report.Drill, ScratchDir: t.TempDir()})
			l.must(err)
			noted := strings.Contains(strings.Join(r.Notes, "\n"), "the replay level needs an archived log")
			replayed := slices.ContainsFunc(r.Checks, func(c report.Check) bool { return c.Level == report.Replay })
			if noted != c.left || replayed == c.left || (r.Status() == report.Passed) != c.left {
				t.Errorf("%s, notes %q: %+v", r.Status(), r.Notes, r.Checks)
			}
			want := report.Structure
			if c.left {
				want = report.Drill
			}
			subjects := verdict.FromReport(r)
			i := slices.IndexFunc(subjects, func(s verdict.Verdict) bool { return s.Backup == id })
			if i < 0 || subjects[i].Reached != want {
				t.Errorf("reached %+v, want %s", subjects, want)
			}
		})
	}
}
