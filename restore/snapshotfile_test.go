package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/storetest"
)

func writeSnapshot(t *testing.T, req Request) (*Result, error) {
	t.Helper()
	p, err := NewPlan(t.Context(), req)
	require.NoError(t, err)
	return Execute(t.Context(), p, req.Image, ExecOptions{})
}

// TestSnapshotFile writes one file, which that version's own etcdutl restores,
// hash check on, and whose cluster then reports to old watchers that they are late.
func TestSnapshotFile(t *testing.T) {
	for _, version := range []string{"3.5", "3.6", "3.7"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			from := realImage(t, version)
			path := filepath.Join(dir, "snapshot.db")
			res, err := writeSnapshot(t, Request{Image: open(t, from.path), Path: path})
			require.NoError(t, err)
			if info, err := os.Stat(path); err != nil || info.Size() != res.Size || info.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", info, err)
			}
			if got := names(t, dir); got != "snapshot.db" {
				t.Errorf("the folder holds %s", got)
			}
			data := filepath.Join(dir, "m1")
			cluster := storetest.InitialCluster(t, "m1")
			storetest.Etcdutl(t, version, "snapshot", "restore", path, "--name=m1", "--data-dir="+data,
				"--initial-cluster="+cluster, "--initial-advertise-peer-urls="+strings.TrimPrefix(cluster, "m1="))
			c := storetest.Start(t, storetest.Options{Version: version, DataDirs: map[string]string{"m1": data}, InitialCluster: cluster, Auth: true})
			client := c.Client(t)
			require.NoError(t, from.filled.Compare(t.Context(), client))
			if got, err := client.Get(t.Context(), "x"); err != nil || got.Header.Revision < res.RevisionAfter || res.RevisionAfter < DefaultBump {
				t.Errorf("revision %v %v, want %d", got, err, res.RevisionAfter)
			}
			w := <-client.Watch(t.Context(), "x", clientv3.WithRev(from.filled.Revision))
			if w.CompactRevision == 0 {
				t.Errorf("a watch from revision %d: %+v", from.filled.Revision, w)
			}
			_, err = writeSnapshot(t, Request{Image: open(t, from.path), Path: path})
			require.ErrorIs(t, err, ErrExists, "over an existing file")
		})
	}
}

// TestSnapshotFileKeepsMembership: the file is the image apart from bump and
// alarms.
func TestSnapshotFileKeepsMembership(t *testing.T) {
	dir := t.TempDir()
	image := makeDB(t, dbOptions{keys: 20, clusterVersion: "3.6.0", storageVersion: "3.6.0",
		alarms: []*etcdserverpb.AlarmMember{{MemberID: 1, Alarm: etcdserverpb.AlarmType_NOSPACE}}})
	res, err := writeSnapshot(t, Request{Image: open(t, image), Path: filepath.Join(dir, "s"), Bump: BumpRequest{Mode: BumpOff}})
	require.NoError(t, err)
	if len(res.AlarmsCleared) != 1 || res.RevisionAfter != res.RevisionBefore {
		t.Errorf("%+v", res)
	}
	a, b := buckets(t, image), buckets(t, filepath.Join(dir, "s"))
	delete(a, "alarm")
	delete(b, "alarm")
	if len(a) != len(b) || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("something else changed")
	}
	data, err := res.Plan.Marshal()
	require.NoError(t, err)
	_, err = ParsePlan(data)
	require.ErrorContains(t, err, "is of a snapshot file", "which no host is to take for one of members")
}

// TestPromise1SnapshotFileKilled: a kill leaves no file, or the whole one, and
// the next run cleans up.
func TestPromise1SnapshotFileKilled(t *testing.T) {
	image := makeDB(t, dbOptions{keys: 20, clusterVersion: "3.6.0", storageVersion: "3.6.0"})
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	killed, out := runChild(t, childJob{Image: image, Request: Request{Path: path}, KillAt: 1})
	if !killed {
		t.Fatal(out)
	}
	if got := names(t, dir); got != ".s.requorum" {
		t.Errorf("the kill left %s", got)
	}
	if killed, out := runChild(t, childJob{Image: image, Request: Request{Path: path}}); killed || out != "" {
		t.Fatal(out)
	}
	if got := names(t, dir); got != "s" {
		t.Errorf("the folder holds %s", got)
	}
}

// TestSnapshotFileSpeaksOfAFile: its notes are not about members, and its
// refusals say what to do, in one line.
func TestSnapshotFileSpeaksOfAFile(t *testing.T) {
	dir := t.TempDir()
	image := open(t, makeDB(t, dbOptions{keys: 20, clusterVersion: "3.6.0", storageVersion: "3.6.0",
		alarms: []*etcdserverpb.AlarmMember{{MemberID: 1, Alarm: etcdserverpb.AlarmType_NOSPACE}}}))
	p, err := NewPlan(t.Context(), Request{Image: image, Path: filepath.Join(dir, "missing", "s")})
	require.NoError(t, err)
	notes := strings.Join(p.Notes, "\n")
	for _, want := range []string{"etcd 3.6", "NOSPACE", "inside the file"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "voter") || strings.Contains(notes, "learner") {
		t.Errorf("the notes of a file speak of members:\n%s", notes)
	}
	if _, err := p.Check(t.Context(), ExecOptions{}); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "make it") {
		t.Errorf("without its folder: %q", err)
	}
	write(t, filepath.Join(dir, "missing"), "no folder")
	if _, err := p.Check(t.Context(), ExecOptions{}); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("below a file: %q", err)
	}
	var bad *RequestError
	for what, req := range map[string]Request{
		"no image":   {Path: "s"},
		"no amount":  {Image: image, Path: "s", Bump: BumpRequest{Mode: BumpBy}},
		"no version": {Image: image, Path: "s", TargetVersion: "newest"},
	} {
		if _, err := NewPlan(t.Context(), req); !errors.As(err, &bad) {
			t.Errorf("%s: %v, want a RequestError", what, err)
		}
	}
	// A file serves nobody yet: an older state may be had as it was.
	older := Request{Image: image, Path: "s", Bump: BumpRequest{Mode: BumpOff}, HighestKnownRevision: 1 << 40}
	if p, err := NewPlan(t.Context(), older); err != nil || p.Bump != nil {
		t.Errorf("off, going back: %+v, %v", p, err)
	}
}

// TestSnapshotFileAppears: a file that comes up meanwhile is not overwritten.
func TestSnapshotFileAppears(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	image := small(t)
	p, err := NewPlan(t.Context(), Request{Image: image, Path: path})
	require.NoError(t, err)
	_, err = Execute(t.Context(), p, image, ExecOptions{step: func(string) { write(t, path, "the user's") }})
	require.ErrorIs(t, err, ErrExists)
	if b, err := os.ReadFile(path); err != nil || string(b) != "the user's" {
		t.Errorf("%q %v", b, err)
	}
	if got := names(t, dir); got != "s" {
		t.Errorf("the folder holds %s", got)
	}
}

func TestSnapshotFileDiskFull(t *testing.T) {
	storetest.NeedRoot(t)
	dir := t.TempDir()
	mount(t, "-t", "tmpfs", "-o", "size=2m", "tmpfs", dir)
	image := open(t, makeDB(t, dbOptions{keys: 8000, valueSize: 1000, clusterVersion: "3.5.0"}))
	p, err := NewPlan(t.Context(), Request{Image: image, Path: filepath.Join(dir, "s")})
	require.NoError(t, err)
	_, err = Execute(t.Context(), p, image, ExecOptions{})
	require.ErrorIs(t, err, ErrNoSpace)
	p.Bytes = 1
	_, err = Execute(t.Context(), p, image, ExecOptions{})
	require.ErrorIs(t, err, syscall.ENOSPC)
	if got := names(t, dir); got != "" {
		t.Errorf("left %s", got)
	}
}
