package recovery

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks/repository"
)

// TestRepositoryUnreadable: what a host cannot read of a repository, by what is
// mounted there, is known before anything is stopped. Where it has to build from there
// the recovery is refused; where a member's data gives the same, the plan says so.
func TestRepositoryUnreadable(t *testing.T) {
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "repo")
	s := newSite(t, "3.6", 3, url)
	s.fill(t, "a", 20)
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	file := filepath.Join(s.dir, "identity")
	require.NoError(t, os.WriteFile(file, []byte(identity.String()+"\n"), 0o600))
	s.config.IdentityFiles, s.config.Recipients = []string{file}, []string{identity.Recipient().String()}
	s.backup(t, url, identity.Recipient())
	s.killAll()
	hide := func(h *testHost) { // the folder of the repository is not mounted there
		h.reach(t, `REQUORUM_TEST_HOST=1 exec unshare -m sh -c 'mount -t tmpfs none "$0" && exec "$@"' `+strings.TrimPrefix(url, "file://")+` "$@"
`)
	}
	hide(s.hosts[1])
	hide(s.hosts[2])

	p, err := Preflight(t.Context(), s.request(nil))
	if err != nil || len(p.Blockers) > 0 {
		t.Fatalf("with the members' data: %v, %s", err, shown(p))
	}
	var archived string
	for _, c := range p.Plan.Candidates {
		if strings.HasPrefix(c.Name, "archive:") {
			archived = c.Name
		}
	}
	req := s.request(&heard{t: t})
	req.Source = archived
	p, err = Preflight(t.Context(), req)
	if err != nil || len(p.Blockers) != 2 || p.Unnamed || !strings.Contains(p.Blockers[0], "of m2 cannot read backup") || !strings.Contains(p.Blockers[0], "no repository there") ||
		!strings.Contains(p.Blockers[1], "of m3 cannot read backup") {
		t.Errorf("from %s: %v, %s", archived, err, shown(p))
	}
	var words []string
	for _, h := range p.Hosts {
		words = append(words, h.RepositoriesWord())
	}
	if !slices.Equal(words, []string{"readable", "unreadable", "unreadable"}) {
		t.Errorf("the hosts: %q", words)
	}
	var blockers *BlockedError
	var request *restore.RequestError
	if _, err := Run(t.Context(), req); !errors.As(err, &blockers) || errors.As(err, &request) || !strings.Contains(err.Error(), url) {
		t.Errorf("from %s: %v", archived, err)
	}
	s.untouched(t)

	// Its disk is lost, so that all of it comes from elsewhere.
	require.NoError(t, os.RemoveAll(s.hosts[1].dataDir()))
	p, err = Preflight(t.Context(), s.request(nil))
	warnings := strings.Join(p.Warnings, "\n")
	if err != nil || len(p.Blockers) > 0 || !strings.Contains(warnings, "of m2 cannot read") || !strings.Contains(warnings, "builds its member from the data of "+p.Plan.Chosen) || strings.Contains(warnings, "of m3 cannot read") ||
		strings.Count(warnings, "nothing of a member lies in ") != 1 || !strings.Contains(warnings, "on the host of m2: right for a new host or a lost disk; else mend data-dir") {
		t.Errorf("with an empty host: %v, %s", err, shown(p))
	}

	s.hosts[1].control(t)
	s.hosts[2].control(t)
	if p, err = Preflight(t.Context(), req); err != nil || len(p.Blockers) > 0 {
		t.Errorf("once it is mended: %v, %s", err, shown(p))
	}
}

// TestWithheld: what a host cannot read is a blocker where no other way is left and
// nothing that is still to be read can open one; otherwise what it changes is said.
func TestWithheld(t *testing.T) {
	timeline := repository.TimelineID{ClusterID: 7, N: 1}
	archived := sources.Source{Base: sources.Base{Owner: sources.ArchivePrefix + timeline.String() + "@2", Backup: "20260102T030405Z-abcdef", Timeline: timeline}}
	lacks := []host.Lack{{Piece: host.Stored{Timeline: timeline, Backup: archived.Base.Backup}, Why: "no key"}}
	of := func(member string) sources.Source {
		return sources.Source{Base: sources.Base{Owner: member, Path: "db"}}
	}
	for _, c := range []struct {
		name         string
		ways         []sources.Source
		named        bool
		unsurveyed   []string
		repositories []host.Repository
		built        bool
		blocker      string
		warning      string
	}{
		{"no repository", []sources.Source{archived}, false, nil, []host.Repository{}, false, "names no repository", ""},
		{"no key", []sources.Source{archived}, false, nil, []host.Repository{{URL: "s3://b", Lacks: lacks}}, false, "s3://b: no key", ""},
		{"one of two", []sources.Source{archived}, false, nil, []host.Repository{{URL: "s3://b", Lacks: lacks}, {URL: "s3://c"}}, false, "", ""},
		{"built already", []sources.Source{archived}, false, nil, []host.Repository{}, true, "", ""},
		{"more is to be read", []sources.Source{archived}, false, []string{"m3"}, []host.Repository{}, false, "", "unless what m3 holds"},
		{"more is to be read, and it was named", []sources.Source{archived}, true, []string{"m3"}, []host.Repository{}, false, "names no repository", ""},
		{"a member has it", []sources.Source{archived, of("m1")}, false, nil, []host.Repository{{URL: "s3://b", Error: "away"}}, false, "", "(s3://b: away): it builds its member from the data of m1"},
		{"a member has it, and another was named", []sources.Source{archived, of("m1")}, true, nil, []host.Repository{{URL: "s3://b", Error: "away"}}, false, "s3://b: away", ""},
		{"it has it itself", []sources.Source{of("m1"), archived, of("m2")}, false, nil, []host.Repository{{URL: "s3://b", Error: "away"}}, false, "", ""},
		{"it was not asked", []sources.Source{archived}, false, nil, nil, false, "", ""},
	} {
		source := c.ways[0]
		source.Others = c.ways[1:]
		p := &Preview{Unsurveyed: c.unsurveyed, Plan: &sources.Plan{Chosen: "it", Named: c.named, Candidates: []sources.Candidate{{Name: "it", Source: &source}}}}
		d := &coordinator{hosts: []*participant{{HostConfig: HostConfig{Member: "m2"}, state: HostState{Member: "m2", Repositories: c.repositories}}}}
		if c.built {
			d.decision, d.hosts[0].built = &decision{PlanID: "p"}, "p"
		}
		var blocker, warning string
		for _, w := range d.withheldFrom(p) {
			blocker, warning = blocker+w.blocker(p), warning+w.warning(p)
		}
		if (blocker == "") != (c.blocker == "") || !strings.Contains(blocker, c.blocker) || (warning == "") != (c.warning == "") || !strings.Contains(warning, c.warning) {
			t.Errorf("%s: refused %q, want %q; warned %q, want %q", c.name, blocker, c.blocker, warning, c.warning)
		}
	}
}
