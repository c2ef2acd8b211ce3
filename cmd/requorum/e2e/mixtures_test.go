package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/storetest"
)

// answer is what has to be reported of a mixture.
type answer string

const (
	sound  answer = "sound"  // one history: all three commands end with 0
	either answer = "either" // one history or the same contents: proven or not, both are right
	mixed  answer = "mixed"  // never good, never proven
)

// TestMixtures puts the database of one member beside the log of another, as somebody does
// who copies member/snap/db, or half of a directory. All are of members with the same name
// and URLs, and but for one with the same token, so that neither names nor the cluster's ID
// show it. verify, restore and recover have to give the answers that stand here; a mixture
// that is called good or proven is a state that no cluster ever had.
func TestMixtures(t *testing.T) {
	eachMixer(t, mixtures, []string{"3.5", "3.7", "3.6"})
}

func mixtures(m *mixer) {
	old := m.write("old", "", "/a/", 100)
	longer := m.copied("longer", old, "/a/", 100)
	m.copied("forced", longer, "/f/", 20, "--force-new-cluster")
	other := m.write("other", "", "/c/", 300)
	m.write("token", "elsewhere", "/a/", 200)
	m.restored("fresh", other)
	m.copied("restored", m.restored("seed", other), "/d/", 50)
	m.copied("rolled", m.restored("back", old), "/a/", 150)
	same := func(names ...string) map[string]answer {
		all := map[string]answer{}
		for _, name := range names {
			all[name] = either
		}
		return all
	}
	// By the database's directory: the logs that it may be called good with. All
	// others are mixtures, and its own log is sound. The log of a restore on which
	// no member was started adds nothing: with it, the database is the result.
	right := map[string]map[string]answer{
		"old":      {"longer": sound, "forced": either},
		"longer":   same("forced"),
		"fresh":    same("seed", "restored", "back"),
		"seed":     same("fresh", "restored", "back"),
		"back":     same("rolled", "fresh", "seed"),
		"restored": {}, "rolled": {}, "forced": {}, "other": {}, "token": {},
	}
	tried := 0
	names := slices.Sorted(maps.Keys(right))
	for i, db := range names {
		for j, log := range names {
			want := right[db][log]
			switch {
			case db == log:
				want = sound
			case want == "":
				want = mixed
			}
			if testing.Short() && want == mixed && (i+j)%2 > 0 {
				continue
			}
			m.try(db, log, want)
			tried++
		}
	}
	m.twoLogs("old", "other")
	if tried++; tried < 40 {
		m.Errorf("%d mixtures, want 40", tried)
	}
	m.Logf("%d mixtures", tried)
}

// TestSoundDirectories: whatever a member's clients did, its directory is good and proven,
// also if little in it shows that its database and its log belong together.
func TestSoundDirectories(t *testing.T) {
	eachMixer(t, soundDirectories, []string{"3.5", "3.6", "3.7"})
}

func soundDirectories(m *mixer) {
	t := m.T
	put := func(ctx context.Context, c *clientv3.Client, more ...clientv3.OpOption) (revision int64) {
		for i := range 20 {
			resp, err := c.Put(ctx, fmt.Sprintf("/k/%d", i), fmt.Sprint(i), more...)
			require.NoError(t, err)
			revision = resp.Header.Revision
		}
		return revision
	}
	remove := func(ctx context.Context, c *clientv3.Client) int64 {
		put(ctx, c)
		resp, err := c.Delete(ctx, "/k/", clientv3.WithPrefix())
		require.NoError(t, err)
		return resp.Header.Revision
	}
	for name, use := range map[string]func(context.Context, *clientv3.Client){
		"new": func(context.Context, *clientv3.Client) {},
		"transactions alone": func(ctx context.Context, c *clientv3.Client) {
			for i := range 20 {
				key := fmt.Sprintf("/k/%d", i)
				_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, "v")).Commit()
				require.NoError(t, err)
			}
		},
		"all deleted": func(ctx context.Context, c *clientv3.Client) { remove(ctx, c) },
		"all deleted and compacted": func(ctx context.Context, c *clientv3.Client) {
			_, err := c.Compact(ctx, remove(ctx, c), clientv3.WithCompactPhysical())
			require.NoError(t, err)
		},
		"all with leases, which end": func(ctx context.Context, c *clientv3.Client) {
			lease, err := c.Grant(ctx, 60)
			require.NoError(t, err)
			put(ctx, c, clientv3.WithLease(lease.ID))
			_, err = c.Revoke(ctx, lease.ID)
			require.NoError(t, err)
		},
	} {
		m.serve(name, func(ctx context.Context, c *clientv3.Client) {
			use(ctx, c)
			time.Sleep(250 * time.Millisecond) // until it is in the database
		})
		m.check(name, m.mix(name, name), sound)
	}
}

// TestMixturesOfTheSameWrites: services that register with leases, locks taken in
// transactions and heartbeats write the same in every history, and a cluster with users alone
// has no rows: none of these shows that a database and a log belong together.
func TestMixturesOfTheSameWrites(t *testing.T) {
	eachMixer(t, mixturesOfTheSameWrites, []string{"3.5", "3.7", "3.6"})
}

func mixturesOfTheSameWrites(m *mixer) {
	t := m.T
	type writer = func(ctx context.Context, c *clientv3.Client, key string) error
	plain := func(ctx context.Context, c *clientv3.Client, key string) error {
		_, err := c.Put(ctx, key, "ok")
		return err
	}
	leased := func(ctx context.Context, c *clientv3.Client, key string) error {
		lease, err := c.Grant(ctx, 3600)
		if err == nil {
			_, err = c.Put(ctx, key, "ok", clientv3.WithLease(lease.ID))
		}
		return err
	}
	locked := func(ctx context.Context, c *clientv3.Client, key string) error {
		_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), ">", -1)).Then(clientv3.OpPut(key, "ok")).Commit()
		return err
	}
	// fill writes some keys of a directory's own, and after them the same as all others.
	fill := func(name string, write writer, own, same int) {
		m.serve(name, func(ctx context.Context, c *clientv3.Client) {
			for i := range own + same {
				key := "/same"
				if i < own {
					key = fmt.Sprintf("/%s/%d", name, i)
				}
				require.NoError(t, write(ctx, c, key))
			}
			time.Sleep(250 * time.Millisecond) // until it is in the database
		})
	}
	for kind, write := range map[string]writer{"leased": leased, "locked": locked} {
		fill(kind, write, 0, 200)
		fill(kind+"-other", write, 60, 2)
		m.try(kind+"-other", kind, mixed)
		m.try(kind+"-other", kind+"-other", sound)
	}
	m.serve("users", func(ctx context.Context, c *clientv3.Client) {
		for i := range 10 {
			_, err := c.UserAdd(ctx, fmt.Sprint(i), "password")
			require.NoError(t, err)
		}
		time.Sleep(250 * time.Millisecond)
	})
	m.try("users", "leased", mixed)
	m.try("users", "users", sound)
	fill("before", plain, 60, 20)
	m.restored("after", "before")
	fill("before", plain, 120, 20)
	fill("after", plain, 0, 150)
	fill("after", plain, 0, 150) // the same terms as the other
	m.try("before", "after", mixed)
	m.try("after", "after", sound)
}

// TestMixtures_EqualLastWrite: two clusters wrote other values to the same keys, and the same
// last: the newest row alone does not show that a log made a database. A health check, which
// asks for alarms through the log, makes no difference.
func TestMixtures_EqualLastWrite(t *testing.T) {
	eachMixer(t, mixturesWithEqualLastWrite, []string{"3.5", "3.6", "3.7"})
}

func mixturesWithEqualLastWrite(m *mixer) {
	t := m.T
	for kind, put := range map[string]func(key, value string) clientv3.Op{
		"puts": func(key, value string) clientv3.Op { return clientv3.OpPut(key, value) },
		"transactions": func(key, value string) clientv3.Op {
			return clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(key, value)}, nil)
		},
	} {
		for _, name := range []string{"-a", "-b"} {
			m.serve(kind+name, func(ctx context.Context, c *clientv3.Client) {
				_, err := c.AlarmList(ctx)
				require.NoError(t, err)
				for i := range 20 {
					_, err := c.Do(ctx, put(fmt.Sprintf("/k/%d", i), kind+name))
					require.NoError(t, err)
				}
				_, err = c.Do(ctx, put("/end", "the same"))
				require.NoError(t, err)
				time.Sleep(250 * time.Millisecond) // until it is in the database
			})
		}
		m.check(kind, m.mix(kind+"-b", kind+"-a"), mixed)
	}
}

// mixer makes members' directories and mixes them.
type mixer struct {
	*testing.T
	user    *user
	version string
	cluster string // the initial cluster of all
}

// eachMixer runs a test with members of some versions.
func eachMixer(t *testing.T, test func(*mixer), versions []string) {
	for _, version := range storetest.Some(versions...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(newMixer(t, version))
		})
	}
}

func newMixer(t *testing.T, version string) *mixer {
	return &mixer{t, newUser(t), version, storetest.InitialCluster(t, "m1")}
}

func (m *mixer) dir(name string) string { return m.user.Path(name) }

// write starts a new member, writes keys, and kills it.
func (m *mixer) write(name, token, prefix string, n int) string {
	m.Helper()
	var more []string
	if token != "" {
		more = []string{"--initial-cluster-token", token}
	}
	m.run(name, prefix, n, more...)
	return name
}

// copied copies a directory, and writes more keys to the copy.
func (m *mixer) copied(name, from, prefix string, n int, more ...string) string {
	m.Helper()
	require.NoError(m, os.CopyFS(m.dir(name), os.DirFS(m.dir(from))))
	m.run(name, prefix, n, more...)
	return name
}

// restored restores the database of a directory with etcd's own tool.
func (m *mixer) restored(name, from string) string {
	m.Helper()
	url := strings.TrimPrefix(m.cluster, "m1=")
	storetest.Etcdutl(m, m.version, "snapshot", "restore", filepath.Join(m.dir(from), "member", "snap", "db"), "--skip-hash-check",
		"--name", "m1", "--initial-cluster", m.cluster, "--initial-advertise-peer-urls", url, "--data-dir", m.dir(name))
	return name
}

func (m *mixer) run(name, prefix string, n int, more ...string) {
	m.Helper()
	m.serve(name, func(ctx context.Context, c *clientv3.Client) {
		for i := range n {
			_, err := c.Put(ctx, fmt.Sprintf("%s%04d", prefix, i), fmt.Sprintf("%s %d", name, i))
			require.NoError(m, err)
		}
		// Everything that it applied is in the database after a commit, which comes every 100 ms.
		time.Sleep(250 * time.Millisecond)
		_, err := c.Put(ctx, prefix+"end", name, clientv3.WithPrevKV())
		require.NoError(m, err)
	}, more...)
}

// serve runs the member of a directory while a client uses it, and kills it.
func (m *mixer) serve(name string, use func(context.Context, *clientv3.Client), more ...string) {
	m.Helper()
	s := startOnce(m, m.version, "m1", m.dir(name), m.cluster, "new", more...)
	defer func() {
		s.Kill()
		<-s.Done()
	}()
	ctx, cancel := context.WithTimeout(m.Context(), time.Minute)
	defer cancel()
	c := plainClient(m, s.clientURL)
	_, err := c.Get(ctx, "is it there?")
	require.NoError(m, err, s.log())
	use(ctx, c)
}

// mix returns a directory with the database of one and the log of another.
func (m *mixer) mix(db, log string) string {
	m.Helper()
	dir := filepath.Join(m.TempDir(), "m1")
	require.NoError(m, os.MkdirAll(filepath.Join(dir, "member", "snap"), 0o700))
	out, err := exec.Command("cp", "-a", "--sparse=always", filepath.Join(m.dir(log), "member", "wal"), filepath.Join(dir, "member")).CombinedOutput()
	require.NoError(m, err, "%s", out)
	data, err := os.ReadFile(filepath.Join(m.dir(db), "member", "snap", "db"))
	require.NoError(m, err)
	require.NoError(m, os.WriteFile(filepath.Join(dir, "member", "snap", "db"), data, 0o600))
	return dir
}

func (m *mixer) try(db, log string, want answer) {
	m.Helper()
	m.check(fmt.Sprintf("database of %s, log of %s", db, log), m.mix(db, log), want)
}

// twoLogs puts the file of another log behind a log.
func (m *mixer) twoLogs(first, second string) {
	m.Helper()
	dir := m.mix(first, first)
	data, err := os.ReadFile(filepath.Join(m.dir(second), "member", "wal", "0000000000000000-0000000000000000.wal"))
	require.NoError(m, err)
	require.NoError(m, os.WriteFile(filepath.Join(dir, "member", "wal", "0000000000000001-0000000000000050.wal"), data, 0o600))
	m.check("two logs in one directory", dir, mixed)
}

// commands are the ones that have to agree about a directory.
func (m *mixer) commands(dir, out string) [][]string {
	return [][]string{
		{"verify", "--data-dir", dir, "--level", "structure"},
		{"restore", "--from-data-dir", dir, "--data-dir", out, "--initial-cluster", m.cluster, "--dry-run"},
		{"recover", "--local", "m1=" + dir, "--data-dir", out, "--dry-run"},
	}
}

func (m *mixer) check(what, dir string, want answer) {
	m.Helper()
	defer os.RemoveAll(dir)
	out := filepath.Join(m.TempDir(), "out")
	first := exitOK // the code of verify
	for _, args := range m.commands(dir, out) {
		e := m.user.Run(m, args...)
		unproven := e.Code != exitOK
		if args[0] == "verify" {
			first = e.Code
		}
		switch {
		case !slices.Contains([]int{exitOK, exitDamaged, exitNothing, exitIncomplete, exitUnproven}, e.Code):
			m.Errorf("%s: %s: exit code %d: %s", what, args[0], e.Code, e)
		case first == exitIncomplete && args[0] != "verify" && e.Code != exitUnproven:
			m.Errorf("%s: nothing shows that it is of one history: %s: exit code %d, want %d: %s", what, args[0], e.Code, exitUnproven, e)
		case want == sound && unproven:
			m.Errorf("%s: %s refused it: %s", what, args[0], e)
		case want == mixed && !unproven:
			m.Errorf("%s: %s took it for good: %s", what, args[0], e)
		}
	}
}
