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
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/snapshot"
)

// TestHooks: a survey is of a stopped member, a rebuild comes after the set-aside
// by the same run, and a member of a superseded timeline is not started.
func TestHooks(t *testing.T) {
	m := idle(t)
	logOf(t, filepath.Join(m.DataDir, "member", "wal"), 0x5bd6)
	r := newRig(t, m)
	if _, err := r.client(t, run1).Rebuild(t.Context(), json.RawMessage("{}"), nil); codeOf(err) != protocol.NotOffered {
		t.Errorf("without a hook: %v", err)
	}
	var rebuilt []control.Rebuild
	r.hooks = control.Hooks{
		Survey: func(_ context.Context, dataDir, _ string) (any, error) {
			return map[string]string{"looked_at": dataDir}, nil
		},
		MayStart: func(context.Context, snapshot.ID, []snapshot.ID) ([]string, error) {
			return nil, errors.New("timeline 5bd6-1 was superseded by 7ac0-1")
		},
		Rebuild: func(_ context.Context, b control.Rebuild) (any, error) {
			rebuilt = append(rebuilt, b)
			if string(b.Plan) == `{"bad":true}` {
				return nil, errors.New("no such plan")
			}
			return "built", nil
		},
	}
	r.restart(t)
	c := r.client(t, run1)
	if _, err := c.Start(t.Context()); codeOf(err) != protocol.Unstartable || !strings.Contains(err.Error(), "superseded by 7ac0-1") {
		t.Errorf("start: %v", err)
	}
	if l := r.last(t, control.Failed, protocol.Unstartable); !strings.Contains(l.Why, "7ac0-1") {
		t.Errorf("the audit says %+v", l)
	}
	state, err := c.Member(t.Context(), true)
	if err != nil || !strings.Contains(string(state.Survey), r.cfg.Member.DataDir) {
		t.Errorf("%s %v", state.Survey, err)
	}
	if _, err := c.Rebuild(t.Context(), json.RawMessage("{}"), nil); codeOf(err) != protocol.BadRequest || len(rebuilt) > 0 {
		t.Errorf("before the set-aside: %v, %v", err, rebuilt)
	}
	if _, err := c.SetAside(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Rebuild(t.Context(), json.RawMessage(`{"bad":true}`), nil); codeOf(err) != protocol.Failed || !strings.Contains(err.Error(), "no such plan") {
		t.Errorf("a failure: %v", err)
	}
	done, err := c.Rebuild(t.Context(), json.RawMessage(`{"a":1}`), json.RawMessage(`{"from":"m2"}`))
	if err != nil || string(done.Result) != `"built"` {
		t.Fatalf("%+v %v", done, err)
	}
	if b := rebuilt[1]; b.Run != run1 || b.Member != "m1" || b.DataDir != r.cfg.Member.DataDir || string(b.Plan) != `{"a":1}` || string(b.Source) != `{"from":"m2"}` {
		t.Errorf("%+v", b)
	}
}

// TestDirectoriesThatChanged: the word of an old journal moves nothing outside the
// directories that are configured now.
func TestDirectoriesThatChanged(t *testing.T) {
	m := idle(t)
	r := newRig(t, m)
	if _, err := r.client(t, run1).SetAside(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.end()
	r.cfg.Member.DataDir = idle(t).DataDir
	r.start(t)
	if _, err := r.client(t, run1).Undo(t.Context()); codeOf(err) != protocol.BadRequest || !strings.Contains(err.Error(), m.DataDir) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(m.DataDir, "member", "snap", "db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was moved: %v", err)
	}
	if _, err := r.client(t, run1).Files(t.Context(), protocol.Aside); codeOf(err) != protocol.BadRequest {
		t.Errorf("its files: %v", err)
	}
}
