package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/journal"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/snapshot"
)

// TestPoint5Superseded: a member of a cluster that was rebuilt as another one is not
// started, whatever became of the process meanwhile, until the rebuild is undone;
// and what is asked of others is known to have been undone.
func TestPoint5Superseded(t *testing.T) {
	m := idle(t)
	wal := filepath.Join(m.DataDir, "member", "wal")
	logOf(t, wal, 0x5bd6)
	r := newRig(t, m)
	var asked []snapshot.ID
	r.hooks = control.Hooks{
		MayStart: func(_ context.Context, cluster snapshot.ID, takenBack []snapshot.ID) ([]string, error) {
			asked = append([]snapshot.ID{cluster}, takenBack...)
			return []string{"nobody answered"}, nil
		},
		Rebuild: func(_ context.Context, b control.Rebuild) (any, error) {
			if b.Aside(run1) == nil || b.Aside(run2) != nil {
				t.Errorf("set aside: %+v, %+v", b.Aside(run1), b.Aside(run2))
			}
			logOf(t, wal, 0x7ac0)
			return b.Built, b.Superseded(journal.Built{Plan: "p", Old: 0x5bd6, New: 0x7ac0, Result: json.RawMessage("{}")})
		},
	}
	r.restart(t)
	c := r.client(t, run1)
	if _, err := c.SetAside(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Rebuild(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	again, err := c.Rebuild(t.Context(), nil, nil)
	if err != nil || !strings.Contains(string(again.Result), `"plan": "p"`) && !strings.Contains(string(again.Result), `"plan":"p"`) {
		t.Errorf("what was built before: %+v %v", again, err)
	}
	// Somebody puts the old log back.
	logOf(t, wal, 0x5bd6)
	r.restart(t)
	startable(t, m.DataDir)
	if _, err := r.client(t, run1).Start(t.Context()); codeOf(err) != protocol.Unstartable || !strings.Contains(err.Error(), "superseded by cluster 0000000000007ac0") && !strings.Contains(err.Error(), "superseded by cluster 7ac0") {
		t.Errorf("%v", err)
	}
	if asked != nil {
		t.Errorf("others were asked: %v", asked)
	}
	if _, err := r.client(t, run1).Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.restart(t)
	if _, err := r.client(t, run1).Start(t.Context()); codeOf(err) == protocol.Unstartable {
		t.Errorf("after the undo: %v", err)
	}
	if len(asked) != 2 || asked[0] != 0x5bd6 || asked[1] != 0x7ac0 {
		t.Errorf("asked of others: %v", asked)
	}
}

// startable puts a database beside the log.
func startable(t *testing.T, dataDir string) {
	t.Helper()
	path := filepath.Join(dataDir, "member", "snap", "db")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("database"), 0o600)); err != nil {
		t.Fatal(err)
	}
}
