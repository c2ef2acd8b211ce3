package journal

import (
	"path/filepath"
	"testing"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// TestQuiesce: what ran before the first touch stays known whatever comes after, also
// to another process; the run that has the member has the clients, and the other way
// round; after a resume nobody has any.
func TestQuiesce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j := open(t, dir)
	again := func() {
		t.Helper()
		j.Close()
		j = open(t, dir)
	}
	add(t, j, Entry{Run: "run-1", Step: Quiescing, Clients: []Client{{Name: "a", Ran: true}, {Name: "b"}}})
	if j.Run() != "run-1" || j.Holds("run-1") {
		t.Errorf("the clients are run %q's, and the member is nobody's", j.Run())
	}
	add(t, j, Entry{Run: "run-1", Step: ClientAt, Clients: []Client{{Name: "a", Phase: protocol.ClientStopped}}})
	add(t, j, Entry{Run: "run-1", Step: Quiescing, Clients: []Client{{Name: "c", Ran: true}}})
	again()
	q := j.Quiesce()
	if a, b, c := q.Client("a"), q.Client("b"), q.Client("c"); !a.Ran || a.Phase != protocol.ClientStopped || b.Ran || b.Phase != "" || !c.Ran || q.Client("d") != nil {
		t.Errorf("%+v", q)
	}
	add(t, j, Entry{Run: "run-1", Step: Held})
	add(t, j, Entry{Run: "run-2", Step: Quiescing}) // takes over
	again()
	if j.Run() != "run-2" || !j.Holds("run-2") || j.Quiesce().Run != "run-2" {
		t.Errorf("run %q, %+v", j.Run(), j.Quiesce())
	}
	add(t, j, Entry{Run: "run-3", Step: Held}) // takes over as well
	add(t, j, Entry{Run: "run-3", Step: Released})
	again()
	if j.Run() != "run-3" || j.Holds("run-3") {
		t.Errorf("the member was started, and the clients are not: run %q", j.Run())
	}
	add(t, j, Entry{Run: "run-3", Step: Resumed})
	again()
	if j.Run() != "" || j.Quiesce() != nil {
		t.Errorf("run %q, %+v", j.Run(), j.Quiesce())
	}
}
