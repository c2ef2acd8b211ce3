package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// stopAt carries a plan out up to its n-th step, and ends there as a killed process
// would: without rolling anything back. It tells whether there was such a step.
func stopAt(t *testing.T, p *Plan, req Request, n int) (stopped bool) {
	t.Helper()
	defer func() { stopped = recover() != nil }()
	steps := 0
	_, err := Execute(t.Context(), p, req.Image, ExecOptions{step: func(name string) {
		if steps++; steps == n {
			panic(name)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// Promise 3, for one who needs the user's data to go on: wherever an earlier run of
// the plan was killed, Displaced tells where the data lies. Built knows a run that
// was complete, and no other.
func TestDisplacedAndBuilt(t *testing.T) {
	path := makeDB(t, dbOptions{keys: 5})
	for _, l := range []layout{{name: "existing", existing: true}, {name: "existing with WAL directories", existing: true, wal: true}} {
		t.Run(l.name, func(t *testing.T) {
			stops, incomplete := 0, 0
			for n := 1; ; n++ {
				dir := fastDir(t)
				req := l.prepare(t, dir, path)
				p := plan(t, req)
				stopped := stopAt(t, p, req, n)
				for _, m := range p.Members {
					expectDisplaced(t, p, m, fmt.Sprintf("stopped at step %d", n))
					incomplete += expectIncomplete(t, p, m, stopped)
				}
				r, err := p.Built("")
				if err != nil {
					t.Fatal(err)
				}
				if !stopped {
					if r == nil || !r.CompletedEarlier || len(r.Members) != 3 {
						t.Errorf("complete, and built is %+v", r)
					}
					if other, err := plan(t, req).Built(""); err != nil || other != nil {
						t.Errorf("of another plan: %+v, %v", other, err)
					}
					break
				}
				stops++
				if r != nil {
					t.Errorf("stopped at step %d, and it is built: %+v", n, r)
				}
			}
			if incomplete == 0 {
				t.Error("no member was ever incomplete: the test shows little")
			}
			if stops < 8 {
				t.Errorf("it was stopped %d times: the test shows little", stops)
			}
		})
	}
}

// expectIncomplete wants a plan to have begun wherever something was set aside, and
// counts the member where it is not complete.
func expectIncomplete(t *testing.T, p *Plan, m Member, stopped bool) int {
	t.Helper()
	d, err := p.Displaced(m)
	begun, err2 := p.Begun(m)
	found, before, err3 := Incomplete(m.DataDir, m.WALDir)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	if d != (Displaced{}) && !begun {
		t.Errorf("%s: %+v was set aside, and nothing was begun", m.Name, d)
	}
	if found == nil {
		return 0
	}
	if !stopped || found.ID != p.ID || before != d {
		t.Errorf("%s: incomplete by plan %s with %+v, stopped %t; the plan is %s with %+v", m.Name, found.ID, before, stopped, p.ID, d)
	}
	return 1
}

// expectDisplaced wants each of the user's files of a member where Displaced says.
func expectDisplaced(t *testing.T, p *Plan, m Member, when string) {
	t.Helper()
	d, err := p.Displaced(m)
	if err != nil {
		t.Fatal(err)
	}
	member := filepath.Join(m.DataDir, "member")
	if d.Member != "" {
		member = d.Member
	}
	logs := []string{filepath.Join(member, "wal")}
	if m.WALDir != "" {
		logs = []string{d.Log, m.WALDir}
	}
	holds := func(path string) bool {
		data, err := os.ReadFile(path)
		return err == nil && string(data) == oldContent+m.Name
	}
	if !holds(filepath.Join(member, "snap", "db")) {
		t.Errorf("%s: the database of %s is not in %s", when, m.Name, member)
	}
	for _, name := range []string{"0000000000000003-0000000000000100.wal", "0000000000000004-0000000000000200.wal"} {
		if !holds(filepath.Join(logs[0], name)) && (len(logs) == 1 || !holds(filepath.Join(logs[1], name))) {
			t.Errorf("%s: %s of %s is in none of %q", when, name, m.Name, logs)
		}
	}
}
