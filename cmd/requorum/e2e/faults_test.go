package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// faults are one cluster and one S3 server for all tests of a trouble in
// between. The stored backup has several parts.
type faults struct {
	u       *user
	cluster *storetest.Cluster
	server  *sinktest.S3Server
}

func startFaults(t *testing.T) *faults {
	t.Helper()
	f := &faults{
		cluster: startPlain(t, "3.7", 1, killKeys, killValueSize),
		server:  sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}}),
	}
	f.u = newUser(t, "AWS_ACCESS_KEY_ID="+f.server.AccessKey, "AWS_SECRET_ACCESS_KEY="+f.server.SecretKey)
	return f
}

// expectNothing wants a repository on S3 to hold nothing of a backup: no
// manifest, no object, and no upload.
func (f *faults) expectNothing(t *testing.T, prefix string, e ended) {
	t.Helper()
	if r := f.u.list(t, f.server.URL("backups", prefix)); len(r.Backups)+len(r.Incomplete)+len(r.Unusable) != 0 {
		t.Errorf("listed: %+v; after %s", r, e)
	}
	left := tree(t, filepath.Join(f.server.Dir, "backups", prefix))
	if left = slices.DeleteFunc(left, func(s string) bool { return !strings.Contains(s, "snapshot.zst") && !strings.Contains(s, "manifest") }); len(left) != 0 {
		t.Errorf("left in the bucket: %v; after %s", left, e)
	}
	f.expectNoUpload(t, prefix, e)
}

// expectNoUpload wants no upload that is begun and neither completed nor
// aborted: nobody sees it, and somebody pays for it.
func (f *faults) expectNoUpload(t *testing.T, prefix string, e ended) {
	t.Helper()
	if up := slices.DeleteFunc(f.server.Uploads(t, "backups"), func(s string) bool { return !strings.HasPrefix(s, prefix+"/") }); len(up) != 0 {
		t.Errorf("uploads that nobody will complete: %v; after %s", up, e)
	}
}

// retryFor ends what never succeeds soon, and leaves a slow machine the time for what does.
func retryFor(code int) string {
	if code == exitOK {
		return "10s"
	}
	return "2s"
}

// upload matches what carries the snapshot's bytes, in parts or whole.
func upload(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "snapshot.zst")
}

// TestBackupS3Trouble is point 6 of what the main job must show: S3 refuses,
// throttles, and cuts connections, at the start and midway. The backup succeeds
// after trying again, or fails with a clear error and nothing half-done. With
// -short the first of the cases: sinks/s3 has all faults of single requests.
func TestBackupS3Trouble(t *testing.T) {
	t.Parallel()
	f := startFaults(t)
	cases := []struct {
		name  string
		fault sinktest.ProxyFault
		code  int
		says  string // in the error
	}{
		{"throttled always from the second part on", sinktest.ProxyFault{Match: upload, Skip: 1, Times: -1, Do: sinktest.Refuse(503, "SlowDown")}, exitFailed, "SlowDown"},
		{"cut twice midway", sinktest.ProxyFault{Match: upload, Skip: 1, Times: 2, Do: sinktest.CutRequest(1 << 20)}, exitOK, ""},
		{"the answer to the completion is lost", sinktest.ProxyFault{Match: sinktest.IsComplete, Do: sinktest.Done(sinktest.Cut)}, exitOK, ""},
		{"the manifest is refused", sinktest.ProxyFault{Match: sinktest.IsPut("manifest.json"), Times: -1, Do: sinktest.Refuse(403, "AccessDenied")}, exitFailed, "manifest"},
		{"the reading back is cut once", sinktest.ProxyFault{Match: sinktest.IsGet("snapshot.zst"), Do: sinktest.CutResponse(10)}, exitOK, ""},
		{"throttled always", sinktest.ProxyFault{Times: -1, Do: sinktest.Refuse(503, "SlowDown")}, exitFailed, "SlowDown"},
		{"throttled three times midway", sinktest.ProxyFault{Match: upload, Skip: 1, Times: 3, Do: sinktest.Refuse(503, "SlowDown")}, exitOK, ""},
		{"refused from the start", sinktest.ProxyFault{Times: -1, Do: sinktest.Refuse(403, "AccessDenied")}, exitFailed, "AccessDenied"},
		{"refused midway", sinktest.ProxyFault{Match: upload, Skip: 1, Times: -1, Do: sinktest.Refuse(403, "AccessDenied")}, exitFailed, "AccessDenied"},
		{"cut always midway", sinktest.ProxyFault{Match: upload, Skip: 1, Times: -1, Do: sinktest.CutRequest(1 << 20)}, exitFailed, ""},
		{"errors of the server midway", sinktest.ProxyFault{Match: upload, Times: 2, Do: sinktest.Refuse(500, "InternalError")}, exitOK, ""},
		{"a bit flips on the way once", sinktest.ProxyFault{Match: upload, Do: sinktest.FlipRequest(1000)}, exitOK, ""},
		{"the answer to the start of the upload is lost", sinktest.ProxyFault{Match: sinktest.IsStart, Do: sinktest.Done(sinktest.Cut)}, exitOK, ""},
		{"the completion is refused", sinktest.ProxyFault{Match: sinktest.IsComplete, Times: -1, Do: sinktest.Refuse(503, "SlowDown")}, exitFailed, "SlowDown"},
		{"the completion is an error and has happened", sinktest.ProxyFault{Match: sinktest.IsComplete, Do: sinktest.Done(sinktest.Refuse(500, "InternalError"))}, exitOK, ""},
		{"the manifest is throttled always", sinktest.ProxyFault{Match: sinktest.IsPut("manifest.json"), Times: -1, Do: sinktest.Refuse(503, "SlowDown")}, exitFailed, "manifest"},
		{"the manifest is throttled twice", sinktest.ProxyFault{Match: sinktest.IsPut("manifest.json"), Times: 2, Do: sinktest.Refuse(503, "SlowDown")}, exitOK, ""},
		{"the answer to the manifest is lost", sinktest.ProxyFault{Match: sinktest.IsPut("manifest.json"), Do: sinktest.Done(sinktest.Cut)}, exitOK, ""},
		{"the reading back is refused", sinktest.ProxyFault{Match: sinktest.IsGet("snapshot.zst"), Times: -1, Do: sinktest.Refuse(403, "AccessDenied")}, exitFailed, "read the stored snapshot back"},
	}
	for _, c := range cases[:storetest.Amount(5, len(cases), len(cases))] {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting to try again
			c.fault.Name = c.name
			proxy := sinktest.NewFaultProxy(t, f.server.Endpoint, c.fault)
			prefix := strings.ReplaceAll(c.name, " ", "-")
			// An upload whose ID was never learnt cannot be aborted: another writer's
			// of the same name looks the same. The bucket's lifecycle rule removes it.
			lostID := strings.Contains(c.name, "the start of the upload")
			e := f.u.Run(t, append(backupArgs(f.cluster.Endpoints(), f.server.URLThrough(proxy.Endpoint, "backups", prefix)), "--retry-for", retryFor(c.code))...)
			proxy.AllFired(t)
			if e.Code != c.code || !strings.Contains(e.Stderr, c.says) {
				t.Errorf("exit code %d, want %d, with %q: %s", e.Code, c.code, c.says, e)
			}
			if strings.Contains(e.Stderr, f.server.SecretKey) {
				t.Errorf("it shows the secret key: %s", e)
			}
			if c.code != exitOK {
				f.expectNothing(t, prefix, e)
			} else if !lostID {
				f.expectNoUpload(t, prefix, e)
			}
			// With the trouble over, the next one needs no cleaning.
			proxy.Clear()
			f.u.backup(t, f.cluster.Endpoints(), f.server.URLThrough(proxy.Endpoint, "backups", prefix))
			checked := map[string]bool{}
			expectListedRestore(t, f.u, f.server.URL("backups", prefix), checked, c.name)
			if want := 1 + (1 - min(c.code, 1)); len(checked) != want {
				t.Errorf("%d backups are listed, want %d", len(checked), want)
			}
		})
	}
}

// TestRestoreS3Trouble: the same, while a restore reads.
func TestRestoreS3Trouble(t *testing.T) {
	t.Parallel()
	f := startFaults(t)
	f.u.backup(t, f.cluster.Endpoints(), f.server.URL("backups", "etcd"))
	get := sinktest.IsGet("snapshot.zst")
	cases := []struct {
		name  string
		fault sinktest.ProxyFault
		code  int
	}{
		{"cut three times midway", sinktest.ProxyFault{Match: get, Times: 3, Do: sinktest.CutResponse(1 << 20)}, exitOK},
		{"refused", sinktest.ProxyFault{Match: get, Times: -1, Do: sinktest.Refuse(403, "AccessDenied")}, exitFailed},
		{"a bit flips on the way always", sinktest.ProxyFault{Match: get, Times: -1, Do: sinktest.FlipResponse(5000)}, exitDamaged},
		{"throttled always", sinktest.ProxyFault{Match: get, Times: -1, Do: sinktest.Refuse(503, "SlowDown")}, exitFailed},
		{"throttled three times", sinktest.ProxyFault{Match: get, Times: 3, Do: sinktest.Refuse(503, "SlowDown")}, exitOK},
		{"cut always without a byte", sinktest.ProxyFault{Match: get, Times: -1, Do: sinktest.CutResponse(0)}, exitFailed},
	}
	for _, c := range cases[:storetest.Amount(3, len(cases), len(cases))] {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.fault.Name = c.name
			proxy := sinktest.NewFaultProxy(t, f.server.Endpoint, c.fault)
			dir := t.TempDir()
			args := []string{"restore", "--repo", f.server.URLThrough(proxy.Endpoint, "backups", "etcd"), "--retry-for", retryFor(c.code),
				"--initial-cluster", storetest.InitialCluster(t, "m1", "m2"), "--data-dir", dataDirs(dir)}
			e := f.u.Run(t, args...)
			proxy.AllFired(t)
			if e.Code != c.code {
				t.Errorf("exit code %d, want %d: %s", e.Code, c.code, e)
			}
			if left := tree(t, dir); c.code != exitOK && len(left) != 0 {
				t.Errorf("left %v: %s", left, e)
			}
			if c.code == exitOK {
				return
			}
			proxy.Clear()
			f.u.Must(t, exitOK, args...)
		})
	}
}

// TestBackupDiskFull: a disk that is full midway fails the backup, by name,
// and keeps nothing of it.
func TestBackupDiskFull(t *testing.T) {
	t.Parallel()
	c := startPlain(t, "3.7", 1, killKeys, killValueSize)
	u := newUser(t)
	disk := storetest.SmallDisk(t, "16m")
	repo := filepath.Join(disk, "repo")
	e := u.Must(t, exitFailed, append(backupArgs(c.Endpoints(), repo), "--retry-for", "2s")...)
	if !strings.Contains(e.Stderr, "no space left") || !strings.Contains(e.Stderr, disk) {
		t.Errorf("the reason or the place is not named: %s", e)
	}
	left := slices.DeleteFunc(tree(t, repo), func(s string) bool { return strings.HasSuffix(s, "requorum.json") || s == ".tmp" }) // the directory of temporary files, empty
	if len(left) != 0 {
		t.Errorf("left %v: %s", left, e)
	}
	if r := u.list(t, repo); len(r.Backups)+len(r.Incomplete) != 0 {
		t.Errorf("listed: %+v", r)
	}
	// With room again, the next one needs no cleaning.
	storetest.GrowDisk(t, disk, "200m")
	u.backup(t, c.Endpoints(), repo)
}

// TestRestoreDiskFull: too little room is found before the first byte; room that
// somebody else takes meanwhile ends the restore with nothing in place.
func TestRestoreDiskFull(t *testing.T) {
	t.Parallel()
	c := startPlain(t, "3.7", 1, killKeys, killValueSize)
	u := newUser(t)
	repo := u.Path("repo")
	u.backup(t, c.Endpoints(), repo)
	args := func(dir string) []string {
		return []string{"restore", "--repo", repo, "--initial-cluster", storetest.InitialCluster(t, "m1"), "--data-dir", dataDirs(dir)}
	}

	tight := storetest.SmallDisk(t, "60m")
	e := u.Must(t, exitFailed, args(tight)...)
	if !strings.Contains(e.Stderr, "not enough space") || len(tree(t, tight)) != 0 {
		t.Errorf("left %v: %s", tree(t, tight), e)
	}

	wide := storetest.SmallDisk(t, "400m")
	dir := filepath.Join(wide, "etcd")
	slow := u.Start(t, append(args(dir), "--limit-download", "2MiB")...) // there is time to fill the disk meanwhile
	filler := filepath.Join(wide, "filler")
	for deadline := time.Now().Add(2 * time.Minute); len(tree(t, dir)) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing is being built: %s", slow.Wait(t))
		}
	}
	fill(t, filler, 390<<20)
	e = slow.Wait(t)
	if e.Code != exitFailed || !strings.Contains(e.Stderr, "no space left") {
		t.Errorf("exit code %d: %s", e.Code, e)
	}
	if left := tree(t, dir); len(left) != 0 {
		t.Errorf("left %v: %s", left, e)
	}
	require.NoError(t, os.Remove(filler))
	u.Must(t, exitOK, args(dir)...)
}

// fill takes all the room there is, up to size bytes.
func fill(t *testing.T, path string, size int) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	block := make([]byte, 64<<10)
	for range size / len(block) {
		if _, err := f.Write(block); err != nil {
			return // full, as was wanted
		}
	}
}
