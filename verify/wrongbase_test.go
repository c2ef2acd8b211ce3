package verify_test

import (
	"strings"
	"testing"

	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// A snapshot that is proved wrong by the one behind it is damage, also where only
// the newest one was asked about: somebody will restore from it. It is named once.
func TestWrongBaseIsDamage(t *testing.T) {
	l := newLogged(t)
	l.puts(10)
	l.backup()
	l.puts(4)
	l.put("/key/x", "wrong")
	wrong := l.backup()
	l.entries = l.entries[:len(l.entries)-1]
	l.put("/key/x", "right")
	l.puts(5)
	newest := l.backup()
	l.archive()
	for _, backup := range []string{verify.Latest, verify.All} {
		r, err := verify.Repository(t.Context(), l.repo, verify.Request{Backup: backup, Level: report.Replay, ScratchDir: t.TempDir()})
		l.must(err)
		damaged := 0
		for _, c := range r.Checks {
			switch {
			case c.Status == report.Damaged && c.Level == report.Replay && strings.HasSuffix(c.Object, wrong):
				damaged++
			case c.Status != report.Passed:
				t.Errorf("%s: %s %s %s: %s %v", backup, c.Level, c.Object, c.Status, c.Reason, c.Findings)
			case c.Level == report.Replay && strings.HasSuffix(c.Object, newest) && !strings.Contains(c.Compared, "so it is backup "+wrong+" that is wrong"):
				t.Errorf("%s: compared %q", backup, c.Compared)
			}
		}
		if damaged != 1 || r.Status() != report.Damaged {
			t.Errorf("%s: %s, %d checks say that %s is damaged", backup, r.Status(), damaged, wrong)
		}
	}
}
