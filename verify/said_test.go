package verify

import (
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/verify/report"
)

// An identity that opens nothing is reported, also where the level needs none.
func TestIdentityThatOpensNothing(t *testing.T) {
	key, _ := age.GenerateX25519Identity()
	wrong, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	sealed, plain := newWorld(t, onMemory(), key.Recipient()), newWorld(t, onMemory())
	for _, c := range []struct {
		w    *world
		key  age.Identity
		want string
	}{
		{sealed, wrong, "opened none of 8 encrypted objects"},
		{sealed, key, ""},
		{sealed, nil, ""},
		{plain, key, "nothing that was read is encrypted"},
		{plain, nil, ""},
	} {
		c.w.keys = nil
		if c.key != nil {
			c.w.keys = []age.Identity{c.key}
		}
		r := c.w.verify(Request{})
		wantKinds(t, r)
		if c.want != "" {
			wantNote(t, r, c.want)
		} else if notes := strings.Join(r.Notes, "\n"); strings.Contains(notes, "identity") {
			t.Errorf("%q", notes)
		}
	}
	sealed.keys = []age.Identity{wrong}
	for _, c := range sealed.verify(Request{Level: report.Structure}).Checks {
		if strings.Count(c.Reason, "identity")+strings.Count(c.Reason, "--identity") > 3 || strings.Contains(c.Reason, "): give") {
			t.Errorf("the hint is there twice: %q", c.Reason)
		}
	}
}

// A finding names its object once, and one thing is not many.
func TestFindingsInPlainWords(t *testing.T) {
	w := newWorld(t, onMemory())
	w.flip(manifestObject(oldBackup), 40)
	r := w.verify(Request{})
	for _, f := range r.Findings() {
		if strings.Contains(f.Text, manifestObject(oldBackup)) || !strings.Contains(f.String(), "SHA-256") {
			t.Errorf("%q", f.String())
		}
	}
	if len(r.Findings()) != 1 {
		t.Errorf("%v", r.Findings())
	}
	for text, want := range map[string]string{
		"a/b in file:///x: bad: worse": "bad: worse",
		"a/b: bad":                     "bad",
		"a/bc: bad":                    "a/bc: bad",
		"bad":                          "bad",
	} {
		if got := withoutObject(text, "a/b"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Damage ends with what can still be relied on.
func TestNextStep(t *testing.T) {
	w := newWorld(t, onMemory())
	r := w.proves()
	if strings.Contains(strings.Join(r.Notes, "\n"), "next step") {
		t.Errorf("%q", r.Notes)
	}
	w.flip(snapshotObject(newBackup), -1)
	wantNote(t, w.verify(Request{}), "next step: backup "+oldBackup+", which passed this run")
	r = w.verify(Request{Backup: Latest})
	if n := r.Notes[len(r.Notes)-1]; !strings.HasPrefix(n, "next step: backup "+oldBackup+", which the verdict of ") || !strings.Contains(n, "up to the level checksum") || !strings.HasSuffix(n, "take a new full backup (requorum backup)") {
		t.Errorf("%q", r.Notes)
	}
	w.flip(snapshotObject(oldBackup), -1)
	wantNote(t, w.verify(Request{}), "next step: no backup of timeline "+worldTimeline.String()+" is proved")
}
