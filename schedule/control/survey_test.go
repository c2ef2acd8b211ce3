package control_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// TestSurvey: a digest is of the stopped member's directories, or of what a run set
// aside, and whatever cuts it off is told.
func TestSurvey(t *testing.T) {
	r := newRig(t, idle(t))
	survey := func(run string) (string, error) {
		var out bytes.Buffer
		err := r.client(t, run1, protocol.Observe).Survey(t.Context(), &out, run)
		return out.String(), err
	}
	if _, err := survey(""); codeOf(err) != protocol.NotOffered {
		t.Errorf("without a hook: %v", err)
	}
	var begun int
	var ends error
	r.hooks.Digest = func(_ context.Context, w io.Writer, s recovery.Survivor) error {
		data, err := os.ReadFile(filepath.Join(s.DataDir, "member", "snap", "db"))
		if err == nil && begun > 0 {
			_, err = w.Write(bytes.Repeat(append(data, s.Name...), begun))
		}
		return errors.Join(err, ends)
	}
	r.restart(t)
	begun = 1
	if got, err := survey(""); err != nil || got != "databasem1" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := r.client(t, run1).SetAside(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := survey(""); err == nil {
		t.Error("what was set aside was surveyed as what is there")
	}
	if got, err := survey(run1); err != nil || got != "databasem1" {
		t.Errorf("set aside: %q %v", got, err)
	}
	if _, err := survey(run2); codeOf(err) != protocol.NotFound {
		t.Errorf("another run: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(r.cfg.StateDir, "survey-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	for _, query := range []string{"?run=", "?run=../../etc", "?run=" + run1 + "&run=" + run2, "?dir=/etc"} {
		var out bytes.Buffer
		if err := r.client(t, run1).Survey(t.Context(), &out, strings.TrimPrefix(query, "?run=")); query != "?run=" && codeOf(err) != protocol.BadRequest {
			t.Errorf("%s: %v", query, err)
		}
	}

	ends, begun = errors.New("the disk is gone"), 0
	if _, err := survey(run1); codeOf(err) != protocol.Failed || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("before its first byte: %v", err)
	}
	if l := r.last(t, control.Failed, protocol.Failed); l.Run != run1 || l.Verb != protocol.Observe {
		t.Errorf("the audit ends with %+v", l)
	}
	begun = 100_000 // more than is held back
	if got, err := survey(run1); err == nil || codeOf(err) != "" {
		t.Errorf("in the middle: %d bytes, %v", len(got), err)
	}
}
