package restore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"

	"github.com/requorum/requorum/store/storetest"
)

// runChild runs a job in a process of its own and reports whether it was killed.
func runChild(t testing.TB, job childJob) (killed bool, out string) {
	t.Helper()
	job.Request.Image = nil
	arg, err := json.Marshal(job)
	require.NoError(t, err)
	b, err := exec.Command(os.Args[0], childArgument, string(arg)).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			return true, string(b)
		}
		return false, string(b)
	}
	require.NoError(t, err)
	return false, ""
}

// layout is a host to restore on.
type layout struct {
	name     string
	wal      bool // separate WAL directories
	existing bool // with members of the user's
	empty    bool // data and WAL directories are there, and empty
}

var layouts = []layout{
	{name: "new"},
	{name: "new with WAL directories", wal: true},
	{name: "empty", empty: true},
	{name: "empty with WAL directories", empty: true, wal: true},
	{name: "existing", existing: true},
	{name: "existing with WAL directories", existing: true, wal: true},
}

const oldContent = "the user's"

// prepare makes the host's folders and the request for it.
func (l layout) prepare(t testing.TB, dir, image string) Request {
	t.Helper()
	req := three(open(t, image), filepath.Join(dir, "data"))
	if l.wal {
		req.WALDir = filepath.Join(dir, "wal", "{name}")
	}
	req.SetAside = l.existing
	for _, name := range []string{"m1", "m2", "m3"} {
		data, wal := filepath.Join(dir, "data", name), filepath.Join(dir, "wal", name)
		if l.empty || l.existing {
			mkdir(t, data)
			if l.wal {
				mkdir(t, wal)
			}
		}
		if !l.existing {
			continue
		}
		old := filepath.Join(data, "member", "wal")
		if l.wal {
			old = wal
		}
		write(t, filepath.Join(data, "member", "snap", "db"), oldContent+name)
		write(t, filepath.Join(old, "0000000000000003-0000000000000100.wal"), oldContent+name)
		write(t, filepath.Join(old, "0000000000000004-0000000000000200.wal"), oldContent+name)
	}
	return req
}

// fastDir is a folder in memory where there is one: a killed process needs no
// disk, and thousands of fsyncs do.
func fastDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "requorum-restore-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		require.NoError(t, os.RemoveAll(dir))
	})
	return dir
}

func mkdir(t testing.TB, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(path, 0o700))
}

func write(t testing.TB, path, content string) {
	t.Helper()
	mkdir(t, filepath.Dir(path))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// oldFiles counts the user's files, wherever they are now.
func oldFiles(t testing.TB, dir string) int {
	t.Helper()
	n := 0
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() || info.Size() > 100 {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.HasPrefix(string(b), oldContent) {
			n++
		}
		return err
	})
	require.NoError(t, err)
	return n
}

// condition is what an etcd would make of a member's directories.
type condition string

const (
	nothing  condition = "nothing there"       // as it was before
	old      condition = "the user's, as ever" // as it was before
	blocked  condition = "blocked"
	complete condition = "complete"
	harmful  condition = "half-built"
)

// judge decides as etcd does: by the WAL files where it looks for them.
func (l layout) judge(t testing.TB, dir, name string, p *Plan) (condition, string) {
	t.Helper()
	data := filepath.Join(dir, "data", name)
	log := filepath.Join(data, "member", "wal")
	if l.wal {
		log = filepath.Join(dir, "wal", name)
	}
	there, err := exists(filepath.Join(data, "member"))
	require.NoError(t, err)
	db, err := os.ReadFile(filepath.Join(data, "member", "snap", "db"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	b, err := readBlocker(log)
	if err != nil {
		return harmful, err.Error()
	}
	if b != nil {
		return blocked, ""
	}
	segments, err := entries(log)
	require.NoError(t, err)
	segments = slices.DeleteFunc(segments, func(s string) bool { return !strings.HasSuffix(s, ".wal") })
	hasLog := len(segments) > 0
	switch {
	case !there && !hasLog:
		return nothing, ""
	case bytes.HasPrefix(db, []byte(oldContent)) && len(segments) == 2:
		return old, ""
	case !there || !hasLog || db == nil:
		return harmful, fmt.Sprintf("member folder %v, log %v, database %v", there, segments, db != nil)
	}
	// Free to start: then it must be whole.
	w, err := wal.OpenForRead(zap.NewNop(), log, &walpb.Snapshot{})
	if err != nil {
		return harmful, err.Error()
	}
	defer w.Close()
	if _, _, ents, err := w.ReadAll(); err != nil || len(ents) != len(p.Members) {
		return harmful, fmt.Sprintf("the log holds %d entries: %v", len(ents), err)
	}
	found := buckets(t, filepath.Join(data, "member", "snap", "db"))
	if len(found["members"]) != len(p.Members) {
		return harmful, "the database has other members"
	}
	return complete, ""
}

// TestPromise1KilledAtEveryStep kills a restore before each step that changes
// what a member could find, on each kind of host. (1) No member is half-built,
// and one is free to start only when all are in place. (2) The user's files are
// all still there. (3) The next run with the same request succeeds.
func TestPromise1KilledAtEveryStep(t *testing.T) {
	image := makeDB(t, dbOptions{keys: 50, valueSize: 100, clusterVersion: "3.5.0"})
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			kills := 0
			for step := 1; ; step++ {
				dir := fastDir(t)
				killed, out := runChild(t, childJob{Image: image, Request: l.prepare(t, dir, image), KillAt: step})
				if !killed && out != "" {
					t.Fatalf("step %d: %s", step, out)
				}
				l.checkKilled(t, dir, image, fmt.Sprint("step ", step))
				if !killed {
					break
				}
				kills++
			}
			if kills < 6 {
				t.Errorf("only %d kills: the steps were not reached", kills)
			}
		})
	}
}

// TestPromise1KilledTwice kills the run that finds what a killed run left.
func TestPromise1KilledTwice(t *testing.T) {
	image := makeDB(t, dbOptions{keys: 50, valueSize: 100, clusterVersion: "3.5.0"})
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	rounds := 3
	if storetest.Soak() {
		rounds = 40
	}
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			for range rounds {
				dir := fastDir(t)
				req := l.prepare(t, dir, image)
				first, second := 1+random.IntN(15), 1+random.IntN(8)
				if killed, _ := runChild(t, childJob{Image: image, Request: req, KillAt: first}); !killed {
					continue
				}
				runChild(t, childJob{Image: image, Request: req, KillAt: second})
				l.checkKilled(t, dir, image, fmt.Sprintf("steps %d and %d", first, second))
			}
		})
	}
}

// TestPromise1KilledAtAnyTime kills at random times instead of known steps.
func TestPromise1KilledAtAnyTime(t *testing.T) {
	image := makeDB(t, dbOptions{keys: 2000, valueSize: 2000, clusterVersion: "3.5.0"})
	l := layouts[5]
	whole := execute(t, l.prepare(t, fastDir(t), image), ExecOptions{}).Took()
	rounds, kills := 10, 0
	if storetest.Soak() {
		rounds = 100
	}
	for range rounds {
		l := layouts[rand.IntN(len(layouts))]
		dir := fastDir(t)
		after := time.Duration(rand.Int64N(int64(whole) * 8 / 10))
		killed, out := runChild(t, childJob{Image: image, Request: l.prepare(t, dir, image), KillAfter: after})
		if !killed && out != "" {
			t.Fatal(out)
		}
		if killed {
			kills++
		} else { // the machine was busier when the whole was measured
			whole = min(whole, after)
		}
		l.checkKilled(t, dir, image, fmt.Sprintf("%s, after %s", l.name, after))
	}
	if kills < rounds/3 {
		t.Errorf("only %d of %d runs were killed: the times are wrong", kills, rounds)
	}
}

// checkKilled judges what a killed run left, runs once more, and judges again.
func (l layout) checkKilled(t *testing.T, dir, image, when string) {
	t.Helper()
	members := []string{"m1", "m2", "m3"}
	req := l.prepareAgain(dir)
	req.Image = open(t, image)
	p := plan(t, req)
	seen := map[condition]int{}
	for _, name := range members {
		c, why := l.judge(t, dir, name, p)
		seen[c]++
		if c == harmful {
			t.Errorf("%s: member %s is half-built: %s", when, name, why)
		}
	}
	if seen[complete] > 0 && seen[complete]+seen[blocked] != len(members) {
		t.Errorf("%s: a member is free before all are in place: %v", when, seen)
	}
	if l.wal {
		for _, name := range members {
			own := filepath.Join(dir, "data", name, "member", "wal")
			there, err := exists(own)
			if b, err2 := readBlocker(own); err != nil || err2 != nil || there && b == nil && names(t, own) == "" {
				t.Errorf("%s: member %s has an empty log folder beside its own WAL directory: %v %v", when, name, err, err2)
			}
		}
	}
	want := 0
	if l.existing {
		want = 9
	}
	if n := oldFiles(t, dir); n != want {
		t.Errorf("%s: %d of the user's %d files are left", when, n, want)
	}
	if seen[complete] == len(members) && !l.allRecorded(t, dir) {
		t.Errorf("%s: complete without a record", when)
	}
	res, err := Execute(t.Context(), p, req.Image, ExecOptions{})
	if seen[complete] == len(members) && !l.existing {
		// The killed run had done it all, up to perhaps the folder's removal.
		if err == nil && res.CompletedEarlier {
			return
		}
		require.ErrorIs(t, err, ErrExists, "%s: the restore was complete, another one", when)
		return
	}
	require.NoError(t, err, "%s: the second run", when)
	for _, name := range members {
		if c, why := l.judge(t, dir, name, p); c != complete {
			t.Errorf("%s: after the second run member %s is %s %s", when, name, c, why)
		}
	}
	if n := oldFiles(t, dir); n != want {
		t.Errorf("%s: after the second run %d of the user's %d files are left", when, n, want)
	}
	for _, m := range res.Members {
		for _, d := range []string{m.DataDir, filepath.Dir(m.DataDir), m.WALDir} {
			if strings.Contains(names(t, d), stagingName) || strings.Contains(names(t, d), ".requorum") {
				t.Errorf("%s: the second run left %s in %s", when, names(t, d), d)
			}
		}
	}
}

func (l layout) prepareAgain(dir string) Request {
	req := three(nil, filepath.Join(dir, "data"))
	if l.wal {
		req.WALDir = filepath.Join(dir, "wal", "{name}")
	}
	req.SetAside = l.existing
	return req
}

func (l layout) allRecorded(t testing.TB, dir string) bool {
	t.Helper()
	for _, name := range []string{"m1", "m2", "m3"} {
		r, err := readRecord(filepath.Join(dir, "data", name, "member", recordName))
		require.NoError(t, err)
		if r == nil {
			return false
		}
	}
	return true
}

// TestPromise1KilledAndStarted starts real servers on what a killed run left,
// before the next run: they refuse, and that run succeeds all the same.
func TestPromise1KilledAndStarted(t *testing.T) {
	image := makeDB(t, dbOptions{keys: 50, valueSize: 100, clusterVersion: "3.5.0"})
	for i, version := range []string{"3.5", "3.6", "3.7"} {
		l := layouts[3+i] // with WAL directories, existing, both
		dir := fastDir(t)
		// The kill comes when the first member is in place and the last is not.
		killed, out := runChild(t, childJob{Image: image, Request: l.prepare(t, dir, image), KillAt: map[bool]int{false: 5, true: 14}[l.wal && l.existing]})
		if !killed {
			t.Fatal(out)
		}
		req := l.prepareAgain(dir)
		req.Image = open(t, image)
		p := plan(t, req)
		if c, why := l.judge(t, dir, "m1", p); c != blocked {
			t.Fatalf("%s: m1 is %s %s", l.name, c, why)
		}
		out = startRefused(t, version, append(startFlags(p, p.Members[0]),
			"--initial-cluster-state=new", // what bootstraps, where there is no log
			"--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:1", "--listen-peer-urls=http://127.0.0.1:0")...)
		if !strings.Contains(out, "crc mismatch") {
			t.Errorf("etcd %s refused for another reason:\n%s", version, last([]byte(out)))
		}
		l.checkKilled(t, dir, image, "killed and started, "+l.name)
	}
}
