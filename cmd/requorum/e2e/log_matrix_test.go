package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// logCase is one way in which a state comes back from the log.
type logCase struct {
	version string
	place   string // of the archive: "disk" or "s3"
	codec   string // "plain" or "age"
	from    string // "archive", or "member": its own log, beside that archive
}

func (c logCase) String() string {
	return fmt.Sprintf("%s-%s-%s-from-the-%s", c.version, c.place, c.codec, c.from)
}

// logCases has every two values of different factors together at least once.
var logCases = []logCase{
	{"3.5", "disk", "age", "archive"},
	{"3.5", "s3", "plain", "member"},
	{"3.6", "disk", "plain", "member"},
	{"3.6", "s3", "age", "archive"},
	{"3.7", "disk", "age", "member"},
	{"3.7", "s3", "plain", "archive"},
}

// TestLogMatrix is points 1 and 2 of what the log must show over all versions,
// places, codecs and sources, pairwise and with small loads: what the archive
// gives, or the member's own log beside it, is what the live member had hashed at
// several revisions, and every row that it held in the end.
func TestLogMatrix(t *testing.T) {
	t.Parallel()
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
	for _, version := range storetest.Some(storetest.Versions()...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel() // much of it waits
			logMatrix(t, server, version)
		})
	}
}

// logMatrix runs a version's cases beside one cluster: an archiver for each.
func logMatrix(t *testing.T, server *sinktest.S3Server, version string) {
	c := storetest.Start(t, storetest.Options{Version: version, Members: 1, ExtraArgs: storetest.MixedArgs()})
	u := newUser(t, rootUser(), "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(u.Path("identity.txt"), []byte(identity.String()+"\n"), 0o600))
	type running struct {
		logCase
		repo     string
		archiver *archiver
	}
	var all []running
	for _, one := range logCases {
		if one.version != version {
			continue
		}
		r := running{logCase: one, repo: "file://" + u.Path("repo")}
		if one.place == "s3" {
			r.repo = server.URL("backups", "etcd-"+version)
		}
		more := []string{"archive: {spool-dir: " + u.Path("spool-"+one.place) + "}"}
		if one.codec == "age" {
			more = append(more, "encryption: {recipients: "+identity.Recipient().String()+"}")
		}
		r.archiver = u.archive(t, c, 0, r.repo, more...)
		u.awaitArchived(t, r.repo, 1) // with the first full snapshot
		all = append(all, r)
	}
	load := storetest.StartMixed(t, c, storetest.MixedOptions{
		Ops: storetest.Amount(600, 1200, 12_000), Seed: 4, Observations: 6, Workers: 8,
		// TestLogMixed has members that come and go, and leases that expire take their
		// time. Of so few puts none may be a large one.
		Without: []storetest.Kind{
			storetest.LearnerAdd, storetest.LearnerPromote, storetest.MemberUpdate, storetest.MemberRemove, storetest.VoterAdd,
			storetest.LeaderMove, storetest.LeaseExpire, storetest.PutLarge,
		},
	})
	result := load.Wait(t)
	figure(t, "operations", result.Total())
	for _, r := range all {
		u.awaitArchived(t, r.repo, settled(t, c, 0))
		r.archiver.stop(t)
	}
	c.Stop(0)
	for _, r := range all {
		t.Run(r.String(), func(t *testing.T) {
			expectOneRange(t, u.list(t, r.repo))
			source := []string{"--repo", r.repo}
			switch {
			case r.from == "member":
				source = []string{"--from-data-dir", c.Member(0).DataDir, "--source-version", u.sourceVersion(t, r.repo)}
			case r.codec == "age":
				u.Must(t, exitFailed, "restore", "--to-snapshot", u.Path("never.db"), "--repo", r.repo)
				source = append(source, "--identity", u.Path("identity.txt"))
			}
			for _, o := range result.Observed {
				args := append([]string{"--revision", strconv.FormatInt(o.Revision, 10)}, source...)
				expectObserved(t, u.rebuild(t, args...), fmt.Sprintf("revision %d", o.Revision), o)
			}
			end := u.rebuild(t, source...)
			expectObserved(t, end, "the end", result.Final)
			expectSameBuckets(t, "the end", end, filepath.Join(c.Member(0).DataDir, "member", "snap", "db"))
			figure(t, "hashes compared", len(result.Observed)+1)
		})
	}
}

// sourceVersion is that of the member which a repository's first full snapshot
// was read from.
func (u *user) sourceVersion(t testing.TB, repo string) string {
	t.Helper()
	return u.list(t, repo).Backups[0].Source.Version
}
