package serve

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
)

// Promise 1: what real clusters of every version wrote boots and serves, in the
// size that it had, without a false alarm.
func TestPromise1HealthyImagesPass(t *testing.T) {
	t.Parallel()
	kinds := map[string]kind{
		"3.5-auth":                    {version: "3.5", voters: 1, load: storetest.Load{Keys: 300, Overwrites: 100, Deletes: 50, Leases: 5, Compact: true, Users: 2}},
		"3.5-three":                   {version: "3.5", voters: 3, load: storetest.Load{Keys: 600, Overwrites: 200, Deletes: 100, Leases: 150}},
		"3.6-learner-nothing-in-it":   {version: "3.6", voters: 1, learners: 1},
		"3.7-no-space-and-short-ones": {version: "3.7", voters: 1, noSpace: true, load: storetest.Load{Keys: 100, Leases: 20, LeaseTTL: 1}},
	}
	if storetest.Soak() {
		maps.Copy(kinds, map[string]kind{
			"3.6-learner":       {version: "3.6", voters: 1, learners: 1, load: storetest.Load{Keys: 300, Overwrites: 100, Deletes: 50, Leases: 3, Users: 1, Compact: true}},
			"3.7-no-space":      {version: "3.7", voters: 1, noSpace: true, load: storetest.Load{Keys: 100, Leases: 2}},
			"3.7-short-leases":  {version: "3.7", voters: 1, load: storetest.Load{Keys: 100, Leases: 20, LeaseTTL: 1}},
			"3.7-nothing-in-it": {version: "3.7", voters: 1},
		})
	}
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := run(t, image(t, name, k), DrillOptions{})
			if check.Status != report.Passed || check.Level != report.Drill || check.Reason != "" {
				t.Fatalf("%s %s %v", check.Status, check.Reason, check.Findings)
			}
			t.Log(check.Compared)
			size := report.Counted(max(k.voters+k.learners, 1), "member", "members")
			for _, want := range []string{"a cluster of " + size + ",", "HashKV of m1", "compare-and-swap", "planned", "authentication is"} {
				if !strings.Contains(check.Compared, want) {
					t.Errorf("it does not say %q", want)
				}
			}
			var phases []string
			for _, p := range check.Phases {
				phases = append(phases, p.Name)
				if p.Took <= 0 {
					t.Errorf("%s took no time", p.Name)
				}
				t.Log(p.Name, p.Took)
			}
			if got, want := strings.Join(phases, ","), "build,expect,boot,first read,serve,remove"; got != want {
				t.Errorf("phases %s, want %s", got, want)
			}
		})
	}
}

// Promise 1: a compaction that was scheduled and not finished, and a revision
// that was bumped, as restores leave both, are no faults.
func TestPromise1UnfinishedCompactionAndBump(t *testing.T) {
	t.Parallel()
	const bump = 1_000_000
	for name, alter := range map[string]func(*bbolt.Tx, snapshot.Facts) error{
		"unfinished compaction": func(tx *bbolt.Tx, f snapshot.Facts) error {
			return tx.Bucket(schema.Meta.Name()).Put(schema.ScheduledCompactKeyName, mvcc.RevToBytes(mvcc.Revision{Main: f.Revision}, mvcc.NewRevBytes()))
		},
		"bump": func(tx *bbolt.Tx, f snapshot.Facts) error {
			key := mvcc.RevToBytes(mvcc.Revision{Main: f.Revision + bump}, mvcc.NewRevBytes())
			if err := tx.Bucket(schema.Key.Name()).Put(key, []byte{}); err != nil {
				return err
			}
			return tx.Bucket(schema.Meta.Name()).Put(schema.ScheduledCompactKeyName, key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := history(t)
			facts, err := from.Facts(t.Context())
			require.NoError(t, err)
			image := altered(t, from, func(tx *bbolt.Tx) error { return alter(tx, facts) })
			now, err := image.Facts(t.Context())
			if err != nil || now.CompactedRevision < facts.Revision {
				t.Fatalf("compacted at %d: %v", now.CompactedRevision, err)
			}
			check := run(t, image, DrillOptions{Members: 3})
			if check.Status != report.Passed || !strings.Contains(check.Compared, "3 members (it had 1)") {
				t.Errorf("%s %s %v %s", check.Status, check.Reason, check.Findings, check.Compared)
			}
		})
	}
}

// A process that runs a drill's members does not drill.
func TestMembersDoNotDrill(t *testing.T) {
	t.Setenv(membersVariable, "1")
	_, err := Drill(t.Context(), plain(t), DrillOptions{})
	require.Error(t, err, "a drill's own process begins a drill")
}
