package recovery

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
)

// TestRepositoryUnreadable: a backup that cannot be read is known before anything is stopped:
// if it is what the plan begins from, the recovery is refused. What hosts read of repositories
// makes no difference.
func TestRepositoryUnreadable(t *testing.T) {
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "repo")
	s := newSite(t, "3.6", 3, url)
	want := s.fill(t, "a", 20)
	files := map[string]string{}
	var recipient age.Recipient
	for _, name := range []string{"right", "wrong"} {
		identity, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		files[name] = filepath.Join(s.dir, name)
		require.NoError(t, os.WriteFile(files[name], []byte(identity.String()+"\n"), 0o600))
		if recipient == nil {
			recipient, s.config.Recipients = identity.Recipient(), []string{identity.Recipient().String()}
		}
	}
	s.backup(t, url, recipient)
	s.killAll()
	for _, h := range s.hosts { // the folder of the repository is not mounted there
		h.reach(t, `REQUORUM_TEST_HOST=1 exec unshare -m sh -c 'mount -t tmpfs none "$0" && exec "$@"' `+strings.TrimPrefix(url, "file://")+` "$@"
`)
	}
	s.config.IdentityFiles = []string{files["wrong"]}
	p, err := Preflight(t.Context(), s.request(nil))
	if err != nil || len(p.Blockers) > 0 {
		t.Fatalf("with the members' data: %v, %s", err, shown(p))
	}
	req := s.request(&heard{t: t})
	for _, c := range p.Plan.Candidates {
		if strings.HasPrefix(c.Name, "archive:") {
			req.Source = c.Name
		}
	}
	p, err = Preflight(t.Context(), req)
	if err != nil || len(p.Blockers) != 1 || p.Unnamed || !strings.Contains(p.Blockers[0], "cannot be read") || !strings.Contains(p.Blockers[0], url) {
		t.Errorf("from %s: %v, %s", req.Source, err, shown(p))
	}
	var blockers *BlockedError
	var request *restore.RequestError
	if _, err := Run(t.Context(), req); !errors.As(err, &blockers) || errors.As(err, &request) {
		t.Errorf("from %s: %v", req.Source, err)
	}
	s.untouched(t)

	// With the key it is built here, and the hosts get it.
	s.config.IdentityFiles = []string{files["right"]}
	r, err := Run(t.Context(), req)
	require.NoError(t, err)
	for _, h := range r.Hosts {
		if len(h.Brought) != 1 || h.Brought[0].From != "the coordinator" {
			t.Errorf("%s: %+v", h.Member, h.Brought)
		}
	}
	s.check(t, want, s.hosts...)
}
