package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// TestVerify_EtcdFails_NamesMessageAndCommand makes directories on which etcd fails with the
// messages that operators search for. Where a row has a message of etcd, etcd is started on
// the directory and has to fail with it.
func TestVerify_EtcdFails_NamesMessageAndCommand(t *testing.T) {
	t.Parallel()
	m := newMixer(t, "3.7")
	m.run("m", "/a/", 120, "--snapshot-count", "50")
	const restored, readded = "requorum restore --from-data-dir", "etcdctl member remove "
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		etcd   string
		code   int
		says   []string
	}{
		{"sound", func(*testing.T, string) {}, "", exitOK, []string{"passed after"}},
		{"byte flipped", editLog(func(log []byte, end int) []byte {
			return flippedAt(log, end/2+bytes.Index(log[end/2:end], []byte("m 9")))
		}), "walpb: crc mismatch", exitDamaged,
			[]string{"log-corrupt", `"walpb: crc mismatch"`, restored, readded}},
		{"length too large", editLog(func(log []byte, end int) []byte { return flippedAt(log, recordBefore(log, end/2)+4) }), "", exitDamaged,
			[]string{"log-corrupt", `"wal: max entry size limit exceeded"`, "NAME.wal.broken", restored}},
		{"end cut off", editLog(func(log []byte, end int) []byte { return log[:recordBefore(log, end/2)] }), "", exitDamaged,
			[]string{"log-cut", `"tocommit(N) is out of range [lastIndex(M)]"`, readded}},
		{"oldest file deleted", func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(segmentOf(dir, 0, 0), segmentOf(dir, 1, 500)))
		}, "wal: file not found", exitDamaged, []string{"missing", `"wal: file not found"`, restored}},
		{"no log", func(t *testing.T, dir string) {
			remove(t, segmentOf(dir, 0, 0))
		}, "", exitDamaged, []string{"do not start etcd on it", `"member ... has already been bootstrapped"`, "--wal-dir"}},
		{"no database", func(t *testing.T, dir string) { remove(t, databaseOf(dir)) }, "failed to find database snapshot file", exitDamaged,
			[]string{"failed to recover v3 backend from snapshot", "failed to find database snapshot file", restored}},
		{"page of zeros", func(t *testing.T, dir string) {
			db, err := bolt.Open(databaseOf(dir), 0o600, &bolt.Options{ReadOnly: true})
			require.NoError(t, err)
			var page int
			require.NoError(t, db.View(func(tx *bolt.Tx) error { page = int(tx.Bucket([]byte("key")).Root()); return nil }))
			require.NoError(t, db.Close())
			rewrite(t, databaseOf(dir), func(b []byte) []byte { clear(b[page*4096 : page*4096+4096]); return b })
		}, "but self identifies as 0", exitDamaged, []string{"bucket key: it says that it is page 0", `"Page expected to be: N`, `"freepages: failed to get all reachable pages"`,
			`"page already freed"`, `"invalid page type"`, `"slice bounds out of range"`, restored}},
		{"cut to a length with a SHA-256", func(t *testing.T, dir string) {
			rewrite(t, databaseOf(dir), func(b []byte) []byte { return b[:len(b)-512+32] })
		}, "", exitDamaged, []string{"does not match the SHA-256 at its end"}},
		{"quota used up", func(t *testing.T, dir string) {
			row, err := proto.Marshal(&etcdserverpb.AlarmMember{MemberID: 7, Alarm: etcdserverpb.AlarmType_NOSPACE})
			require.NoError(t, err)
			editRows(t, dir, func(tx *bolt.Tx) error { return tx.Bucket([]byte("alarm")).Put(row, nil) })
		}, "", exitOK, []string{`"mvcc: database space exceeded"`, "etcdctl alarm disarm"}},
		{"promoted learners of 3.5", func(t *testing.T, dir string) { asLearners(t, dir) }, "", exitOK, []string{`"too many learner members in cluster"`, "3.5.26"}},
		{"empty", func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(filepath.Join(dir, "member"))) }, "", exitFailed,
			[]string{`"member ... has already been bootstrapped"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a member's")
			require.NoError(t, os.CopyFS(dir, os.DirFS(m.dir("m"))))
			c.damage(t, dir)
			e := m.user.Run(t, "verify", "--data-dir", dir)
			out := e.Stdout + e.Stderr
			for _, says := range c.says {
				if e.Code != c.code || !strings.Contains(out, says) {
					t.Errorf("want exit code %d and %q: %s", c.code, says, e)
				}
			}
			if c.name == "sound" && strings.Contains(out, "Note:") {
				t.Errorf("a note without a reason: %s", e)
			}
			switch c.name {
			case "page of zeros": // from the log, which reaches as far as the database
				m.user.Must(t, exitOK, "restore", "--from-data-dir", dir, "--to-snapshot", dir+".db")
			case "cut to a length with a SHA-256": // from the log, and how far the database reached cannot be read
				e := m.user.Must(t, exitUnproven, "restore", "--from-data-dir", dir, "--to-snapshot", dir+".db")
				require.Contains(t, e.Stdout, "the raft index of the database cannot be read")
			}
			if strings.Contains(out, restored) && !strings.Contains(out, restored+` '`+strings.ReplaceAll(dir, "'", `'\''`)+`' `) {
				t.Errorf("the command is not quoted: %s", e)
			}
			if c.etcd == "" {
				return
			}
			s := startOnce(t, "3.7", "m1", dir, m.cluster, "new")
			if !s.endsWithin(time.Minute) || !strings.Contains(storetest.Tail(s.Log, 200), c.etcd) {
				t.Errorf("etcd does not fail with %q: %s", c.etcd, s.log())
			}
		})
	}
}

// TestVerify_RequestsOfEtcd35_Named: a member that began on etcd 3.5 and was upgraded to 3.7
// within few writes fails there, on its own sound log.
func TestVerify_RequestsOfEtcd35_Named(t *testing.T) {
	t.Parallel()
	const says = "unmarshal should never fail" // what follows has a space of one kind or another
	m := newMixer(t, "3.5")
	m.run("m", "/a/", 3)
	m.version = "3.6"
	m.serve("m", func(ctx context.Context, c *clientv3.Client) {
		require.Eventually(t, func() bool {
			resp, err := http.Get(c.Endpoints()[0] + "/version")
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return err == nil && strings.Contains(string(body), `"etcdcluster":"3.6.0"`)
		}, time.Minute, 100*time.Millisecond)
		_, err := c.Put(ctx, "/b", "1")
		require.NoError(t, err)
		time.Sleep(250 * time.Millisecond) // until it is in the database
	})
	verify := func() ended { return m.user.Must(t, exitOK, "verify", "--data-dir", m.dir("m")) }
	before := verify()
	s := startOnce(t, "3.7", "m1", m.dir("m"), m.cluster, "new")
	if !s.endsWithin(time.Minute) || !strings.Contains(storetest.Tail(s.Log, 200), says) {
		t.Errorf("etcd 3.7 does not fail with %q: %s", says, s.log())
	}
	for _, e := range []ended{before, verify()} {
		if !strings.Contains(e.Stdout, says) || !strings.Contains(e.Stdout, "requorum restore --from-data-dir "+m.dir("m")) || !strings.Contains(e.Stdout, "--snapshot-count 10") {
			t.Errorf("the message or what helps is not named: %s", e)
		}
	}
	m.user.Must(t, exitOK, "restore", "--from-data-dir", m.dir("m"), "--data-dir", m.dir("restored"), "--initial-cluster", m.cluster)
	m.run("m", "/c/", 10, "--snapshot-count", "10")
	if e := verify(); strings.Contains(e.Stdout, says) {
		t.Errorf("etcd starts after the raft snapshot, and the note stays: %s", e)
	}
	m.version = "3.7"
	for _, name := range []string{"restored", "m"} {
		m.serve(name, func(ctx context.Context, c *clientv3.Client) {
			resp, err := c.Get(ctx, "/b")
			if err != nil || len(resp.Kvs) != 1 {
				t.Errorf("%s: %v, %v", name, resp, err)
			}
		})
	}
}

func segmentOf(dir string, sequence, index uint64) string {
	return filepath.Join(dir, "member", "wal", fmt.Sprintf("%016x-%016x.wal", sequence, index))
}

func databaseOf(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// editLog changes the only file of a log, whose records end at end.
func editLog(change func(log []byte, end int) []byte) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		rewrite(t, segmentOf(dir, 0, 0), func(log []byte) []byte { return change(log, len(bytes.TrimRight(log, "\x00"))) })
	}
}

// editRows changes rows of a stopped member's database.
func editRows(t *testing.T, dir string, change func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(databaseOf(dir), 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(change))
	require.NoError(t, db.Close())
}

// asLearners makes the rows that etcd 3.5.1 to 3.5.19 leaves of members that were added as
// learners and promoted.
func asLearners(t *testing.T, dir string) {
	t.Helper()
	editRows(t, dir, func(tx *bolt.Tx) error {
		members := tx.Bucket([]byte("members"))
		rows := map[string][]byte{}
		_ = members.ForEach(func(key, value []byte) error {
			var m map[string]any
			d := json.NewDecoder(bytes.NewReader(value))
			d.UseNumber() // IDs
			require.NoError(t, d.Decode(&m))
			if m["name"] != "m1" || len(rows) > 0 || members.Stats().KeyN == 1 {
				m["isLearner"] = true
			}
			row, err := json.Marshal(m)
			rows[string(key)] = row
			return err
		})
		for key, row := range rows {
			require.NoError(t, members.Put([]byte(key), row))
		}
		return tx.Bucket([]byte("meta")).Delete([]byte("storageVersion"))
	})
}

// TestRecover_PublicCases recovers the directories of three members after faults that people
// reported.
func TestRecover_PublicCases(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 3})
	client := c.Client(t)
	for i := range 60 {
		_, err := client.Put(t.Context(), fmt.Sprintf("/a/%d", i), strings.Repeat("x", 400))
		require.NoError(t, err)
	}
	time.Sleep(250 * time.Millisecond) // until all have committed
	for i := range 3 {
		c.Kill(i)
	}
	u := newUser(t)
	for _, one := range []struct {
		name   string
		damage func(t *testing.T, dir string) // of m1
		args   string
		code   int
		says   []string
	}{
		{"sectors of zeros in the log", zeroSectors, "m1=%s,m2=%s,m3=%s", exitOK, []string{"PROVEN", "m1: its log is damaged", "2 were read whole"}},
		{"sectors of zeros in the only log", zeroSectors, "m1=%s --declare-dead m2,m3 --members m1", exitUnproven, []string{"UNPROVEN", "damaged"}},
		{"two disks lost", func(*testing.T, string) {}, "m1=%s", exitUsage, []string{"--declare-dead m"}},
		{"two disks declared lost", func(*testing.T, string) {}, "m1=%s --declare-dead m2,m3 --members m1", exitUnproven, []string{"UNPROVEN: of the 3 voters"}},
		{"promoted learners of 3.5 count as voters", asLearners, "m1=%s --declare-dead m2,m3 --members m1", exitUnproven, []string{"UNPROVEN: of the 3 voters"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "m1")
			require.NoError(t, os.CopyFS(dir, os.DirFS(c.Member(0).DataDir)))
			one.damage(t, dir)
			dirs := []any{dir, c.Member(1).DataDir, c.Member(2).DataDir}[:strings.Count(one.args, "%s")]
			args := strings.Fields(fmt.Sprintf("recover --local "+one.args+" --dry-run --data-dir ", dirs...))
			e := u.Run(t, append(args, filepath.Join(t.TempDir(), "{name}"))...)
			out := strings.ReplaceAll(e.Stdout+e.Stderr, "\n", " ")
			for _, says := range one.says {
				if e.Code != one.code || !strings.Contains(out, says) {
					t.Errorf("want exit code %d and %q: %s", one.code, says, e)
				}
			}
		})
	}
}

// zeroSectors zeroes two sectors some records before a log's end, as a power cut leaves it.
func zeroSectors(t *testing.T, dir string) {
	t.Helper()
	editLog(func(log []byte, end int) []byte {
		at := (end - 5000) / 512 * 512
		copy(log[at:], make([]byte, 1024))
		return log
	})(t, dir)
}

// TestVerify_EntriesAppliedTwice_NotGood: etcd 3.5.0 to 3.5.5 applies entries twice after a
// kill during a defragmentation, because the stored index is too low.
func TestVerify_EntriesAppliedTwice_NotGood(t *testing.T) {
	t.Parallel()
	m := newMixer(t, "3.5")
	dir := m.dir(m.write("m", "", "/a/", 20))
	editRows(t, dir, func(tx *bolt.Tx) error {
		meta, key := tx.Bucket([]byte("meta")), []byte("consistent_index")
		return meta.Put(key, binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(meta.Get(key))-5))
	})
	m.run("m", "/b/", 5)
	for _, args := range m.commands(dir, filepath.Join(t.TempDir(), "out")) {
		if e := m.user.Run(t, args...); e.Code != exitDamaged && e.Code != exitNothing || !strings.Contains(e.Stdout+e.Stderr, "applied twice") {
			t.Errorf("%s: %s", args[0], e)
		}
	}
}

// TestRestore_LargeTransaction_Replayed: etcd up to 3.5.4 acknowledges a transaction of more
// than 10 MB and cannot read its own log after it.
func TestRestore_LargeTransaction_Replayed(t *testing.T) {
	t.Parallel()
	u, dir := newUser(t), t.TempDir()
	cluster := storetest.InitialCluster(t, "m1")
	s := startOnce(t, "3.5", "m1", filepath.Join(dir, "m1"), cluster, "new", "--max-request-bytes", strconv.Itoa(32<<20))
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.clientURL}, MaxCallSendMsgSize: 32 << 20})
	require.NoError(t, err)
	defer client.Close()
	var puts []clientv3.Op
	for i := range 12 {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("/big/%02d", i), strings.Repeat("v", 1<<20)))
	}
	_, err = client.Txn(t.Context()).Then(puts...).Commit()
	require.NoError(t, err)
	s.Kill()
	<-s.Done()
	if got := hashOf(t, u.rebuild(t, "--from-data-dir", filepath.Join(dir, "m1"), "--replay-engine", "both")); got.Revision != 2 {
		t.Errorf("rebuilt %+v", got)
	}
}

// TestRestore_CopyOfRunningMember_TrueOrRefused copies a member's directory while it writes.
func TestRestore_CopyOfRunningMember_TrueOrRefused(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	w := storetest.StartWriter(t, c.Client(t), "/a/")
	u := newUser(t)
	var copies []string
	for n := range storetest.Amount(3, 9, 90) {
		w.WaitFor(t, len(w.Acknowledged())+50)
		dir := u.Path(fmt.Sprintf("copy%d", n))
		parts := [][]string{{"snap", "wal"}, {"wal", "snap"}}[n%2]
		for _, part := range parts {
			require.NoError(t, os.CopyFS(filepath.Join(dir, "member", part), os.DirFS(filepath.Join(c.Member(0).DataDir, "member", part))))
			time.Sleep(250 * time.Millisecond) // the member commits to its database meanwhile
			w.WaitFor(t, len(w.Acknowledged())+20)
		}
		copies = append(copies, dir)
	}
	w.Stop()
	taken, refused := 0, 0
	for n, dir := range copies {
		to := u.Path(fmt.Sprintf("%d.db", n))
		e := u.Run(t, "restore", "--from-data-dir", dir, "--to-snapshot", to, "--bump-revision", "off")
		switch e.Code {
		case exitOK:
			got := hashOf(t, to)
			if want := hashAt(t, c, 0, got.Revision); got.Hash != want.Hash {
				t.Errorf("%s: rebuilt %+v, the member has %+v", dir, got, want)
			}
			taken++
		case exitDamaged, exitUnproven:
			refused++
		default:
			t.Errorf("%s", e)
		}
	}
	t.Logf("%d taken, %d refused", taken, refused)
	if taken == 0 || refused == 0 {
		t.Error("want some of both: the order of copying decides")
	}
}

// TestIPv6Only runs a drill, and restores to names that do not resolve, on a host that has no
// IPv4 address.
func TestIPv6Only(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "unshare", "-rn", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		storetest.Unavailable(t, fmt.Sprintf("no network namespace: %v: %s", err, out))
	}
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	_, err := c.Client(t).Put(t.Context(), "/a", "1")
	require.NoError(t, err)
	u := newUser(t)
	u.backup(t, c.Endpoints(), "file://"+u.Path("repo"))
	alone := func(args ...string) {
		t.Helper()
		v6 := append([]string{"-rn", "sh", "-c", `ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "$@"`, "sh", u.Binary}, args...)
		cmd := exec.CommandContext(t.Context(), "unshare", v6...)
		cmd.Env = u.Env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", args[0], err, out)
		}
	}
	alone("verify", "--repo", "file://"+u.Path("repo"), "--level", "drill")
	alone("restore", "--repo", "file://"+u.Path("repo"), "--data-dir", u.Path("v6"), "--initial-cluster", "m1=http://[fd00::1]:2380")
	alone("restore", "--repo", "file://"+u.Path("repo"), "--data-dir", u.Path("name"), "--initial-cluster", "m1=http://etcd-0.none.svc:2380")
}

// TestS3_BucketInTheHostName: a server takes the bucket only in the host name, and answers 400
// to others; a server takes it only in the path. One try names the parameter to change.
func TestS3_BucketInTheHostName(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: 1})
	u := newUser(t)
	const at = "s3://plain/p?region=us-east-1&insecure=true&endpoint=http://s3.test"
	for _, one := range []struct {
		name, domain, wrong, right, says string
	}{
		{"only in the host name", "s3.test", at + "&path-style=true", at, "remove path-style=true"},
		{"only in the path", "", at, at + "&path-style=true", "add path-style=true"},
	} {
		t.Run(one.name, func(t *testing.T) {
			server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{VirtualDomain: one.domain, Buckets: []sinktest.S3Bucket{{Name: "plain"}}})
			proxy := sinktest.NewFaultProxy(t, server.Endpoint)
			if one.domain != "" {
				proxy.Add(sinktest.ProxyFault{
					Name: "path-style", Match: func(r *http.Request) bool { return r.Host == one.domain }, Times: -1, Do: sinktest.Refuse(400, "InvalidRequest"),
				})
			}
			u := *u
			u.Env = append(slices.Clone(u.Env), "http_proxy="+proxy.Endpoint, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
			for _, args := range [][]string{{"doctor"}, {"backup", "--endpoints", strings.Join(c.Endpoints(), ",")}} {
				before := len(proxy.Requests())
				e := u.Run(t, append(args, "--repo", one.wrong)...)
				if out := e.Stdout + e.Stderr; e.Code != exitFailed || strings.Count(out, one.says) != 1 {
					t.Errorf("want one %q: %s", one.says, e)
				}
				if n := len(proxy.Requests()) - before; n > 2 {
					t.Errorf("%s: %d requests: %q", args[0], n, proxy.Requests())
				}
			}
			u.Must(t, exitOK, "backup", "--endpoints", strings.Join(c.Endpoints(), ","), "--repo", one.right)
			u.Must(t, exitOK, "verify", "--repo", one.right)
		})
	}
}
