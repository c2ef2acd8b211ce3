package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// promises are what an agent promises to be recoverable, by its status and its metrics.
type promises struct {
	RPO struct {
		Known   bool      `json:"known"`
		Unknown time.Time `json:"unknown_since"`
		Until   time.Time `json:"until"`
	} `json:"rpo"`
	Writer  bool `json:"writer"`
	Archive struct {
		Role        string `json:"role"`
		Recoverable uint64 `json:"recoverable"`
	} `json:"archive"`
	Problems []web.Problem `json:"problems"`

	until, index float64
	ready        bool
}

func (a *agent) promises(t testing.TB) (p promises) {
	t.Helper()
	_, body := a.get(t, "/api/v1/status")
	_ = json.Unmarshal([]byte(body), &p) // an agent that has just started does not answer yet
	p.until, _ = a.metric(t, "requorum_recoverable_until_timestamp_seconds")
	p.index, _ = a.metric(t, "requorum_archive_recoverable_index")
	code, _ := a.get(t, "/readyz")
	p.ready = code == http.StatusOK
	return p
}

func (p promises) has(kind string) bool {
	return slices.ContainsFunc(p.Problems, func(o web.Problem) bool { return o.Kind == kind && o.Severity == web.Critical })
}

// While the repository does not answer or is gone, an agent promises nothing of it, whether
// the cluster is idle or not: what is recoverable stands still at the last time that it was
// seen, and is not known.
func TestAgentRepositoryGone(t *testing.T) {
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.6", Members: 1})
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "whole"}, {Name: "emptied"}}})
	for name, test := range map[string]struct {
		bucket, removed string
		writes, marker  bool
	}{
		"bucket":                 {bucket: "whole", removed: "whole"},
		"all objects":            {bucket: "emptied", removed: "emptied/etcd"},
		"directory":              {},
		"directory under writes": {writes: true},
		"only its marker":        {marker: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
			place := u.Path("repo")
			repo := "file://" + place
			if test.bucket != "" {
				place, repo = filepath.Join(server.Dir, test.removed), server.URL(test.bucket, "etcd")
			}
			a := u.agent(t, c, 0, repo)
			storetest.Eventually(t, "the agent is ready", func() error {
				if p := a.promises(t); !p.ready || !p.RPO.Known || p.Archive.Role != "writer" {
					return fmt.Errorf("%+v", p)
				}
				return nil
			})
			if test.marker {
				place = filepath.Join(place, "requorum.json")
			}
			putSome(t, c, "/before/", 5)
			u.awaitArchived(t, repo, applied(t, c, 0))
			hidden := place + "-hidden"
			require.NoError(t, os.Rename(place, hidden))
			gone := time.Now()
			notKnown := func() error {
				p := a.promises(t)
				if p.RPO.Known || p.RPO.Unknown.IsZero() || p.ready || !p.has(web.KindRepository) {
					return fmt.Errorf("%+v", p)
				}
				return nil
			}
			storetest.Eventually(t, "it is not known what is recoverable", func() error {
				if test.writes {
					putSome(t, c, "/meanwhile/", 5)
				}
				if p := a.promises(t); p.until > float64(gone.UnixMilli())/1000+1 {
					t.Fatalf("recoverable until %.1f s after the repository was gone: %+v", p.until-float64(gone.UnixMilli())/1000, p)
				}
				err := notKnown()
				if err != nil && time.Since(gone) > 40*time.Second {
					t.Fatalf("after %s: %v", time.Since(gone), err)
				}
				return err
			})
			first := a.promises(t)
			time.Sleep(6 * time.Second)
			require.NoError(t, notKnown())
			if p := a.promises(t); p.until != first.until || p.index != first.index || p.until == 0 || p.RPO.Unknown.After(gone) {
				t.Errorf("%+v after %+v; it was gone at %s", p, first, gone)
			}
			a.restart(t)
			storetest.Eventually(t, "it is not known after a restart either", notKnown)
			putSome(t, c, "/after-restart/", 5)
			end := applied(t, c, 0)
			storetest.Eventually(t, "the agent reads on", func() error {
				if s, ok := a.status(t); !ok || s.Archive == nil || s.Archive.Released < end {
					return fmt.Errorf("%+v", s.Archive)
				}
				return nil
			})
			a.stop(t)
			e := u.Run(t, "agent", "--once", "--config", a.args[len(a.args)-1])
			require.NotZero(t, e.Code, "%s", e)
			require.Regexp(t, "from a copy|create it", e.String())
			a.start(t)
			require.NoFileExists(t, filepath.Join(place, "requorum.json"), "a new repository")
			require.NoFileExists(t, place, "a new marker")
			if !test.marker { // what was stored meanwhile stays
				require.NoError(t, os.MkdirAll(place, 0o700))
				hidden += "/."
			}
			out, err := exec.Command("cp", "-a", "--no-clobber", hidden, place).CombinedOutput()
			require.NoError(t, err, "%s", out)
			u.awaitArchived(t, repo, end)
			a.awaitReady(t)
			expectOneRange(t, u.list(t, repo))
		})
	}
}

// awaitReady waits until nothing critical is known, and what would be lost is.
func (a *agent) awaitReady(t testing.TB) {
	t.Helper()
	storetest.Eventually(t, "the agent is ready", func() error {
		if p := a.promises(t); !p.ready || !p.RPO.Known {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

// archivedSegments returns an agent that is ready, with a full snapshot and segments after it,
// for tests that delete some of them.
func archivedSegments(t *testing.T) (u *user, a *agent, repo string) {
	t.Helper()
	if testing.Short() {
		t.Skip("the next listing is after a minute; TestShortOf has the comparison")
	}
	t.Parallel() // much of it waits
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	u = newUser(t)
	repo = "file://" + u.Path("repo")
	u.Must(t, exitOK, "backup", "--repo", repo, "--endpoints", c.Member(0).ClientURL)
	a = u.agent(t, c, 0, repo, "jobs: {full: {run: off}, checksum: {schedule: '* * * * *', jitter: 0s}}")
	for i := range 4 {
		putSome(t, c, fmt.Sprintf("/%d/", i), 20)
		u.awaitArchived(t, repo, applied(t, c, 0))
	}
	a.awaitReady(t)
	return u, a, repo
}

// A segment that somebody deleted counts at the next listing: what the agent says is
// recoverable is no more than a restore reaches. The archiver checks at once.
func TestAgentSegmentDeleted(t *testing.T) {
	u, a, repo := archivedSegments(t)
	var segments []string
	for _, name := range tree(t, u.Path("repo")) {
		if strings.Contains(name, "/l0/") {
			segments = append(segments, name)
		}
	}
	slices.Sort(segments)
	require.Greater(t, len(segments), 3, "segments")
	require.NoError(t, os.Remove(filepath.Join(u.Path("repo"), segments[len(segments)-2])))
	e := u.Run(t, "list", "--output", "json", "--repo", repo)
	require.Equal(t, exitDamaged, e.Code, "%s", e)
	ranges := u.list(t, repo).Ranges
	last := ranges[len(ranges)-2]
	require.True(t, ranges[len(ranges)-1].Gap && !last.Gap, "%+v", ranges)
	deleted := time.Now()
	storetest.Eventually(t, "the agent promises no more than a restore reaches", func() error {
		p := a.promises(t)
		if time.Since(deleted) > 100*time.Second {
			t.Fatalf("recoverable to %d by the listing: %+v", last.LastIndex, p)
		}
		if p.ready || p.Archive.Recoverable != last.LastIndex || p.index != float64(last.LastIndex) || !p.has("gap") {
			return fmt.Errorf("recoverable to %d by the listing: %+v", last.LastIndex, p)
		}
		if gap, _ := a.metric(t, "requorum_gap_open"); gap != 1 {
			return errors.New("requorum_gap_open")
		}
		return nil
	})
	a.says(t, "alarm gap") // and not an hour later
}

// Deleted objects of full snapshots count at the next listing, though their manifests are
// there: nothing can be restored without them.
func TestAgentSnapshotsDeleted(t *testing.T) {
	u, a, repo := archivedSegments(t)
	objects, err := filepath.Glob(filepath.Join(u.Path("repo"), "*", "full", "*", "snapshot.zst"))
	require.NoError(t, err)
	require.NotEmpty(t, objects)
	for _, o := range objects {
		require.NoError(t, os.Remove(o))
	}
	deleted := time.Now()
	storetest.Eventually(t, "the agent promises nothing", func() error {
		p := a.promises(t)
		err := fmt.Errorf("after %s: %+v", time.Since(deleted), p)
		if time.Since(deleted) > 100*time.Second {
			t.Fatal(err)
		}
		if p.ready || p.RPO.Known || p.Archive.Recoverable != 0 || p.index != 0 || p.until != 0 {
			return err
		}
		return nil
	})
	p := a.promises(t)
	require.True(t, p.has(web.KindRecoveryPoint) && p.has(web.KindVerify), "%+v", p.Problems)
	_, page := a.get(t, "/")
	require.Contains(t, page, "damaged: ")
	require.Contains(t, page, "you would lose <strong>everything</strong>")
	e := u.Run(t, "list", "--repo", repo)
	require.Equal(t, exitDamaged, e.Code, "%s", e)
}
