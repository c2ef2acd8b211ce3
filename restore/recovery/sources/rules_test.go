package sources

import (
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// With authentication on, older etcds permitted by other rules: the plan says what
// --source-version is for, where nothing else says the version.
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
		{what: "a backup says it", version: "3.5.0", backup: "b", auth: true, log: true},
	} {
		base := Base{Owner: "m1", Path: "/m1/db", Backup: c.backup}
		d := &decision{req: DecideRequest{SourceVersion: c.given}, plan: &Plan{Proven: true}, findings: &Findings{Survivors: []Remains{
			{Name: "m1", Databases: []Database{{Path: "/m1/db", ClusterVersion: c.version, AuthEnabled: c.auth}}},
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

// A directory and a repository of two clusters are reported, whatever lies beside them; a
// timeline that nothing was stored in says nothing, as one is opened before members start.
func TestMixed(t *testing.T) {
	survivor := func(name string, cluster snapshot.ID) Remains { return Remains{Name: name, ClusterID: cluster} }
	archive := func(cluster uint64, fulls int) Archive {
		return Archive{Repository: "r", Timeline: repository.TimelineID{ClusterID: cluster, N: 1}, Fulls: make([]Full, fulls)}
	}
	both := []Remains{survivor("m1", 1), survivor("m2", 2)}
	for what, c := range map[string]struct {
		f    Findings
		want string // the survivor
	}{
		"no repository":           {f: Findings{Survivors: both}},
		"its own":                 {f: Findings{Survivors: both[:1], Archives: []Archive{archive(1, 1)}}},
		"its own beside another":  {f: Findings{Survivors: both[:1], Archives: []Archive{archive(3, 1), archive(1, 1)}}},
		"its own, still empty":    {f: Findings{Survivors: both[:1], Archives: []Archive{archive(3, 1), archive(1, 0)}}},
		"another":                 {Findings{Survivors: both[:1], Archives: []Archive{archive(3, 1)}}, "m1"},
		"one of two":              {Findings{Survivors: both, Archives: []Archive{archive(1, 1)}}, "m2"},
		"another, with a log":     {Findings{Survivors: both[:1], Archives: []Archive{{Timeline: repository.TimelineID{ClusterID: 3}, Log: make([]Range, 1)}}}, "m1"},
		"another, still empty":    {f: Findings{Survivors: both[:1], Archives: []Archive{archive(3, 0)}}},
		"whose cluster is hidden": {f: Findings{Survivors: []Remains{survivor("m1", 0)}, Archives: []Archive{archive(3, 1)}}},
	} {
		if got := c.f.Mixed(); (c.want == "") != (got == "") || !strings.Contains(got, "the data of "+c.want) && c.want != "" {
			t.Errorf("%s: %q", what, got)
		}
	}
}
