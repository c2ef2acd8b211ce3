package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verifytest"
)

// TestVerifyFaults: the command finds what the rungs find, a fault or two on each,
// plain and encrypted: exit code 3, the kind in the report, and a failure in the
// JUnit file; and nothing where there is nothing, nor on the rung below. All faults
// are in verify/verifytest.
func TestVerifyFaults(t *testing.T) {
	faults := verifytest.All()
	history := verifytest.Script(t)
	for _, encrypted := range []bool{false, true} {
		healthy := history.Write(t, verifytest.Layout{Encrypted: encrypted, Merged: 2, Extras: true})
		for _, name := range []string{
			"manifest: a bit flipped",
			"segment: gone from the middle",
			"lease: a key on one that is not there",
			"page: one used twice",
			"a value altered, with the hash and every sum fixed up",
			"log: an entry's value altered, with its chain and every sum fixed up",
			"only learners: nobody can vote",
		} {
			at := slices.IndexFunc(faults, func(f verifytest.Fault) bool { return f.Name == name })
			if at < 0 {
				t.Fatalf("no fault %q", name)
			}
			t.Run(fmt.Sprintf("%s, encrypted %t", name, encrypted), func(t *testing.T) {
				t.Parallel()
				verifyFault(t, faults[at], healthy)
			})
		}
	}
}

func verifyFault(t *testing.T, f verifytest.Fault, healthy *verifytest.Repo) {
	u := newUser(t)
	r := healthy.Clone(t)
	junit := filepath.Join(t.TempDir(), "report.xml")
	args := []string{"all", "--repo", r.Dir, "--no-verdict", "--junit", junit}
	if r.Encrypted() {
		path := filepath.Join(t.TempDir(), "identity")
		if err := os.WriteFile(path, []byte(r.Identities[0].(*age.X25519Identity).String()), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--identity", path)
	}
	u.verify(t, exitOK, append(args, "--rung", string(report.Replay))...)
	what := f.Inject(t, r)
	found := u.verify(t, exitDamaged, append(args, "--rung", string(f.Rung))...)
	var kinds []report.Kind
	for _, c := range found.Checks {
		for _, one := range c.Findings {
			kinds = append(kinds, one.Kind)
		}
		if len(c.Findings) > 0 && c.Rung != f.Rung {
			t.Errorf("%s: found on the rung %s: %v", what, c.Rung, c.Findings)
		}
	}
	if !slices.ContainsFunc(kinds, func(k report.Kind) bool { return slices.Contains(f.Kinds, k) }) {
		t.Errorf("%s: found %v, want %v", what, kinds, f.Kinds)
	}
	data, err := os.ReadFile(junit)
	if err != nil || !strings.Contains(string(data), "<failure") {
		t.Errorf("%v: no failure in %s", err, data)
	}
	if f.Rung != report.Checksum && !f.Alone { // what has nothing to be replayed from is unchecked there
		below := report.Rungs()[slices.Index(report.Rungs(), f.Rung)-1]
		u.verify(t, exitOK, append(args, "--rung", string(below))...)
	}
}
