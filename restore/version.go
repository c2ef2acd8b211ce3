package restore

import (
	"fmt"
	"strings"

	"github.com/coreos/go-semver/semver"

	"github.com/requorum/requorum/snapshot"
)

// oldestBuilt is the oldest etcd that the directories built here are made for.
const oldestBuilt = "3.5"

// planTarget says which is the oldest etcd that can start the result, and
// refuses a target below it. A database is served by the storage version that
// it was written in and newer ones: 3.6 and 3.7 refuse a newer one, 3.5 would
// boot it and break at its next upgrade.
func planTarget(target string, facts snapshot.Facts) (oldest string, err error) {
	v := mustVersion(oldestBuilt)
	for what, s := range map[string]string{"storage": facts.StorageVersion, "cluster": facts.ClusterVersion} {
		if s == "" {
			continue
		}
		w, err := parseVersion(s)
		if err != nil {
			return "", fmt.Errorf("restore: the image's %s version: %w", what, err)
		}
		if v.LessThan(w) {
			v = w
		}
	}
	oldest = fmt.Sprintf("%d.%d", v.Major, v.Minor)
	if target == "" {
		return oldest, nil
	}
	t, err := parseVersion(target)
	if err != nil {
		return "", badRequest("restore: --target-version: %w", err)
	}
	if !t.LessThan(v) {
		return oldest, nil
	}
	next := fmt.Sprintf("start the result with etcd %s or newer, and use etcd's own downgrade from there", oldest)
	if facts.StorageVersion == "" && t.LessThan(mustVersion(oldestBuilt)) {
		next = "write a snapshot file (--to-snapshot) and restore it with that version's own etcdctl"
	}
	return "", fmt.Errorf("restore: etcd %d.%d from an image of %s: %w: %s", t.Major, t.Minor, oldest, ErrTooOld, next)
}

// parseVersion takes "3.5", "3.5.1" and "v3.5"; only major and minor count.
func parseVersion(s string) (semver.Version, error) {
	full := strings.TrimPrefix(s, "v")
	if strings.Count(full, ".") == 1 {
		full += ".0"
	}
	v, err := semver.NewVersion(full)
	if err != nil {
		return semver.Version{}, fmt.Errorf("%q is no version such as 3.6: %w", s, err)
	}
	return semver.Version{Major: v.Major, Minor: v.Minor}, nil
}

func mustVersion(s string) semver.Version {
	v, err := parseVersion(s)
	if err != nil {
		panic(err)
	}
	return v
}
