package verify_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// wantDrill wants one that passed, of what it says, with these phases before
// those of the drill itself.
func wantDrill(t *testing.T, c report.Check, phases string, compared ...string) {
	t.Helper()
	if c.Status != report.Passed {
		t.Fatalf("%s %s %v", c.Status, c.Reason, c.Findings)
	}
	for _, want := range compared {
		if !strings.Contains(c.Compared, want) {
			t.Errorf("compared %q, want %q in it", c.Compared, want)
		}
	}
	var names []string
	for _, p := range c.Phases {
		if names = append(names, p.Name); p.Took <= 0 {
			t.Errorf("%s took no time", p.Name)
		}
	}
	if got, want := strings.Join(names, ","), phases+",build,expect,boot,first read,serve,remove"; got != want {
		t.Errorf("phases %s, want %s", got, want)
	}
}

// A drill of the newest backup boots what `restore --latest` gives: with the log
// behind it. Where that cannot be replayed it boots the backup alone, and says so.
// Older backups are drilled as they are.
func TestDrillOfTheNewest(t *testing.T) {
	const restored = "which is what 'requorum restore --latest' gives"
	run := func(name string, drill func(*testing.T, *logged)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLogged(t)
			l.puts(10)
			drill(t, l)
		})
	}
	run("with the log", func(t *testing.T, l *logged) {
		old := l.backup()
		l.puts(15)
		newest := l.backup()
		l.puts(12)
		l.archive()
		last := len(l.entries)
		r, drills := l.drills(verify.All)
		if r.Status() != report.Passed || len(drills) != 2 {
			t.Fatalf("%s: %+v", r.Status(), r.Checks)
		}
		wantDrill(t, drills[old], "fetch", "from the snapshot, which is what 'requorum restore "+old+"' gives", fmt.Sprintf("at revision %d", 1+10))
		wantDrill(t, drills[newest], "fetch,base,replay,prove", restored,
			fmt.Sprintf("12 entries of the log to raft index %d", last), fmt.Sprintf("at revision %d", 1+10+15+12))
		// Every level has one and the same copy.
		for _, id := range []string{old, newest} {
			if n := l.sink.opens[repository.SnapshotName(l.id, id, 1, false)]; n != 1 {
				t.Errorf("%s was fetched %d times", id, n)
			}
		}
	})
	run("latest", func(t *testing.T, l *logged) {
		id := l.backup()
		l.puts(12)
		l.archive()
		_, drills := l.drills(verify.Latest)
		wantDrill(t, drills[id], "fetch,base,replay,prove", restored, fmt.Sprintf("at revision %d", 1+10+12))
	})
	run("by its ID", func(t *testing.T, l *logged) {
		id := l.backup()
		l.puts(12)
		l.archive()
		_, drills := l.drills(id)
		wantDrill(t, drills[id], "fetch", "'requorum restore "+id+"' gives", fmt.Sprintf("at revision %d", 1+10))
	})
	run("no log after", func(t *testing.T, l *logged) {
		l.archive()
		id := l.backup()
		r, drills := l.drills(verify.Latest)
		wantDrill(t, drills[id], "fetch", restored+" of this timeline, since no log goes beyond it")
		if r.Status() != report.Passed {
			t.Errorf("%+v", r.Checks)
		}
	})
	run("the log damaged", func(t *testing.T, l *logged) {
		id := l.backup()
		l.puts(12)
		l.archive()
		l.flip(l.last())
		r, drills := l.drills(verify.Latest)
		wantDrill(t, drills[id], "fetch", "from the snapshot alone, which is not", "see the level checksum", fmt.Sprintf("at revision %d", 1+10))
		if r.Status() != report.Damaged {
			t.Errorf("%+v", r.Checks)
		}
	})
	run("the log makes no sense", func(t *testing.T, l *logged) {
		id := l.backup()
		l.entries = append(l.entries, raftlog.Entry{Index: uint64(len(l.entries) + 1), Term: 2, Type: raftpb.EntryNormal, Data: []byte("no request")})
		l.archive()
		r, drills := l.drills(verify.Latest)
		wantDrill(t, drills[id], "fetch", "from the snapshot alone, which is not", "see the level replay")
		if !slices.ContainsFunc(r.Findings(), func(f report.Finding) bool { return f.Kind == report.KindApply }) {
			t.Errorf("%+v", r.Checks)
		}
	})
}
