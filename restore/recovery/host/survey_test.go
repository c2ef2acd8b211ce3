package host

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSurvey: a summary is of the stopped member's directories, or of what a run set
// aside, and what cannot be read is reported.
func TestSurvey(t *testing.T) {
	t.Parallel()
	cfg, etcd := etcdHost(t, "3.6")
	line := lineTo(t, cfg, "test")
	c := line.As(run1)
	var out bytes.Buffer
	survey := func(run string) (int, error) {
		out.Reset()
		err := c.Survey(t.Context(), &out, run)
		return out.Len(), err
	}
	there, err := survey("")
	if err != nil || there == 0 {
		t.Fatalf("%d bytes, %v", there, err)
	}
	_, err = c.Start(t.Context(), nil)
	require.NoError(t, err)
	servesKey(t, etcd)
	if n, err := survey(""); codeOf(err) != Running || n > 0 {
		t.Errorf("while it runs: %d bytes, %v", n, err)
	}
	_, err = c.Stop(t.Context())
	require.NoError(t, err)
	if _, err := survey(run1); codeOf(err) != NotFound {
		t.Errorf("before the set-aside: %v", err)
	}
	_, err = c.SetAside(t.Context())
	require.NoError(t, err)
	if _, err := survey(""); err != nil || !strings.Contains(out.String(), `"kind":"no-database"`) {
		t.Errorf("what was set aside was surveyed as what is there: %v", err)
	}
	if n, err := survey(run1); err != nil || n == 0 {
		t.Errorf("set aside: %d bytes, %v", n, err)
	}
	for _, run := range []string{run2, "../../etc"} {
		if n, err := survey(run); codeOf(err) != NotFound || n > 0 {
			t.Errorf("run %s: %d bytes, %v", run, n, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(cfg.StateDir, "survey-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	state, err := c.Member(t.Context())
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(state.Aside[0].Folder, "snap", "db")); errors.Is(err, os.ErrNotExist) {
		t.Errorf("the survey removed what it read: %v", err)
	}
}
