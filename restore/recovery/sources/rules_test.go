package sources

import (
	"strings"
	"testing"

	"github.com/requorum/requorum/snapshot"
)

// With authentication on, older etcds permitted by other rules: the plan says what
// --source-version is for, where nothing else tells the version.
func TestSourceVersionIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		what, version, given, backup string
		auth, log, want              bool
	}{
		{what: "3.5 with auth", version: "3.5.0", auth: true, log: true, want: true},
		{what: "3.6 with auth", version: "3.6.0", auth: true, log: true, want: true},
		{what: "it was given", version: "3.5.0", given: "3.5.9", auth: true, log: true},
		{what: "no auth", version: "3.5.0", log: true},
		{what: "3.7", version: "3.7.0", auth: true, log: true},
		{what: "nothing is replayed", version: "3.5.0", auth: true},
		{what: "a backup tells it", version: "3.5.0", backup: "b", auth: true, log: true},
	} {
		base := Base{Owner: "m1", Path: "/m1/db", Backup: c.backup}
		d := &decision{req: DecideRequest{SourceVersion: c.given}, plan: &Plan{Proven: true}, findings: &Findings{Survivors: []Remains{
			{Name: "m1", Databases: []Database{{Path: "/m1/db", ClusterVersion: c.version, facts: snapshot.Facts{AuthEnabled: c.auth}}}},
		}}}
		s := &Source{Base: base}
		if c.log {
			s.Log = []Piece{{}}
		}
		d.warn(&Candidate{Name: "m1", Source: s})
		if got := strings.Contains(strings.Join(d.plan.Warnings, "\n"), "--source-version"); got != c.want {
			t.Errorf("%s: %q", c.what, d.plan.Warnings)
		}
	}
}
