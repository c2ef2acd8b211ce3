package retention

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
)

// onS3 opens a repository there with a backup an hour: each one's state is one
// entry further.
func onS3(t *testing.T, url string) (*repository.Repository, []string) {
	t.Helper()
	cfg, err := s3.ParseURL(url)
	require.NoError(t, err)
	cfg.Retry.For = time.Minute
	sink, err := s3.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { sink.Close() })
	repo, err := repository.Open(t.Context(), sink)
	if err == nil {
		return repo, nil
	}
	repo, err = repository.Init(t.Context(), sink, time.Now())
	require.NoError(t, err)
	r := newRig(t) // made in memory, and brought there object by object
	r.full(timelineA)
	for range 4 {
		r.log(timelineA, 5)
		r.sleep(time.Hour)
		r.full(timelineA)
	}
	for o, err := range r.place.Memory.List(t.Context(), "", "") {
		require.NoError(t, err)
		if o.Name == "requorum.json" {
			continue
		}
		data, err := sinks.Get(t.Context(), r.place.Memory, o.Name, 1<<20)
		if err == nil {
			_, err = sinks.Put(t.Context(), sink, o.Name, data, sinks.CreateOptions{Lock: strings.Contains(o.Name, "/full/")})
		}
		require.NoError(t, err)
	}
	return repo, r.backups(timelineA)
}

// Object lock on a real server: what is locked is left for later and no error,
// nothing is hidden behind a marker, and it goes when the lock has ended.
func TestLockedInS3(t *testing.T) {
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "lockable", ObjectLock: true}}})
	server.Setenv(t)
	const lock = 8 * time.Second
	began := time.Now()
	repo, all := onS3(t, server.URL("lockable", "p", "object-lock=COMPLIANCE", "retention="+lock.String()))
	stored := time.Now()
	r := &rig{TB: t, repo: repo, place: newPlace(time.Now())}
	policy := Policy{Last: 2}
	plan := r.plan(policy)
	_, err := Execute(t.Context(), repo, plan, Options{})
	r.must(err)
	if time.Since(began) > lock-time.Second {
		t.Skip("too slow a machine to meet the lock: what was stored first may not have been locked any more")
	}
	if len(plan.Later) != 3 || len(plan.Delete) != 0 || plan.Later[0].Until.IsZero() {
		t.Errorf("%+v", plan)
	}
	if got := r.backups(timelineA); len(got) != len(all) {
		t.Errorf("left are %v", got)
	}
	if n := segments(t, repo); n != 3 { // what the oldest locked one leads to stays
		t.Errorf("%d segments are left", n)
	}
	time.Sleep(lock + time.Second - time.Since(stored))
	r.must(r.repo.WritePin(t.Context(), repository.Pin{Timeline: timelineA, Backup: all[4]})) // the place's clock moves on
	result := r.prune(policy)
	if result.Backups != 3 || result.Objects != 3 || result.Segments != 2 {
		t.Errorf("%+v", result)
	}
	if got := r.backups(timelineA); len(got) != 2 {
		t.Errorf("left are %v", got)
	}
	for _, gone := range all[:3] {
		if left := server.Versions(t, "lockable", "p/"+repository.ManifestName(timelineA, gone)); len(left) > 0 {
			t.Errorf("left are versions or markers: %v", left)
		}
	}
}

// A key that may not delete gets one error that names the right, and nothing is
// on record.
func TestDeniedInS3(t *testing.T) {
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "plain"}}})
	server.Setenv(t)
	url := server.URL("plain", "p")
	_, all := onS3(t, url)
	server.AddUser(t, "writer", "writer-secret", "plain", "s3:ListBucket", "s3:GetObject", "s3:PutObject")
	t.Setenv("AWS_ACCESS_KEY_ID", "writer")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "writer-secret")
	repo, _ := onS3(t, url)
	r := &rig{TB: t, repo: repo, place: newPlace(time.Now())}
	_, err := Execute(context.Background(), repo, r.plan(Policy{Last: 2}), Options{})
	if !errors.Is(err, sinks.ErrDenied) || !strings.Contains(err.Error(), "s3:DeleteObject") {
		t.Error(err)
	}
	if got := r.backups(timelineA); len(got) != len(all) {
		t.Errorf("left are %v", got)
	}
	names, err := repo.PrunedNames(t.Context())
	if err != nil || len(names) > 0 {
		t.Error(names, err)
	}
}

func segments(t *testing.T, repo *repository.Repository) int {
	t.Helper()
	all, err := repo.Segments(t.Context(), timelineA)
	require.NoError(t, err)
	return len(all)
}
