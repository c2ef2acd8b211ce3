package restore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/storetest"
)

// TestPromise3ExistingIsRefused: without leave to set aside, an existing
// directory stops the restore before anything is touched, also when it is the
// last of the members'.
func TestPromise3ExistingIsRefused(t *testing.T) {
	for _, file := range []string{"data/m3/member/snap/db", "data/m3/notes.txt", "wal/m3/0000000000000000-0000000000000000.wal", "data/m3"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, file), "the user's")
		before := tree(t, dir)
		req := three(small(t), filepath.Join(dir, "data"))
		req.WALDir = filepath.Join(dir, "wal", "{name}")
		p := plan(t, req)
		if _, err := p.Check(t.Context(), ExecOptions{}); !errors.Is(err, ErrExists) || strings.Contains(file, "/m3/") && !strings.Contains(err.Error(), "--set-aside") {
			t.Errorf("%s: the check says %v", file, err)
		}
		if _, err := Execute(t.Context(), p, req.Image, ExecOptions{}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "m3") {
			t.Errorf("%s: %v", file, err)
		}
		sameTree(t, file, tree(t, dir), before)
		_, err := os.Stat(filepath.Join(dir, "data", "m1"))
		require.ErrorIs(t, err, fs.ErrNotExist, "%s: another member was built", file)
		if got := names(t, filepath.Join(dir, "data")); got != "m3" && got != "" {
			t.Errorf("%s: left %s", file, got)
		}
	}
}

// TestPromise3SetAside: with leave, all that was there is in the set-aside
// folders, unchanged, and what lies beside the member folder stays.
func TestPromise3SetAside(t *testing.T) {
	for _, wal := range []bool{false, true} {
		dir := t.TempDir()
		l := layout{existing: true, wal: wal}
		req := l.prepare(t, dir, makeDB(t, dbOptions{keys: 20, clusterVersion: "3.5.0"}))
		for _, name := range []string{"m1", "m2", "m3"} {
			write(t, filepath.Join(dir, "data", name, "notes.txt"), "beside")
		}
		before := tree(t, dir)
		res := execute(t, req, ExecOptions{})
		after := tree(t, dir)
		for _, m := range res.Members {
			if want := map[bool]int{false: 1, true: 2}[wal]; len(m.SetAside) != want {
				t.Fatalf("%s: set aside %v", m.Name, m.SetAside)
			}
			for _, aside := range m.SetAside {
				rel, _ := filepath.Rel(dir, aside)
				moved := 0
				for name, content := range after {
					if rest, ok := strings.CutPrefix(name, rel+"/"); ok {
						moved++
						from := filepath.Join(filepath.Dir(rel), rest) // WAL: the folder's entries
						if strings.HasPrefix(filepath.Base(rel), "member.") {
							from = filepath.Join(filepath.Dir(rel), "member", rest)
						}
						if before[from] != content {
							t.Errorf("%s is not %s as it was", name, from)
						}
					}
				}
				if moved == 0 {
					t.Errorf("nothing is in %s", aside)
				}
			}
		}
		if n := oldFiles(t, dir); n != 9 {
			t.Errorf("%d of 9 files of the user's are left", n)
		}
		for name, content := range before {
			if filepath.Base(name) == "notes.txt" && after[name] != content {
				t.Errorf("%s changed", name)
			}
		}
		// And once more: what was restored is the user's now.
		res = execute(t, req, ExecOptions{})
		if n := len(res.Members[0].SetAside); n == 0 {
			t.Error("the restored member was not set aside by the next restore")
		}
	}
}

// TestPromise3RunningMemberIsRefused: the locks of a running etcd are noticed.
func TestPromise3RunningMemberIsRefused(t *testing.T) {
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	req := Request{Image: small(t), InitialCluster: "m1=http://127.0.0.1:1", DataDir: c.Member(0).DataDir, SetAside: true}
	p := plan(t, req)
	_, err := Execute(t.Context(), p, req.Image, ExecOptions{})
	require.ErrorIs(t, err, ErrInUse)
	_, err = p.Check(t.Context(), ExecOptions{})
	require.ErrorIs(t, err, ErrInUse)
	ready, err := p.Check(t.Context(), ExecOptions{Later: []error{ErrInUse}})
	require.NoError(t, err, "for a restore that is done later")
	require.Len(t, ready.Notes, 1)
	require.Contains(t, ready.Notes[0], "stop the etcd that runs on it")
	c.WaitReady(t)
	if got := names(t, c.Member(0).DataDir); got != "member" {
		t.Errorf("left %s", got)
	}
	c.StopAll()
	_, err = Execute(t.Context(), p, req.Image, ExecOptions{})
	require.NoError(t, err, "after it was stopped")
}

// TestOneRestoreAtATime: a directory that another run has locked is refused.
func TestOneRestoreAtATime(t *testing.T) {
	for _, there := range []bool{false, true} {
		dir := t.TempDir()
		if there {
			mkdir(t, filepath.Join(dir, "m2"))
		}
		other, err := openSite(filepath.Join(dir, "m2"))
		require.NoError(t, err)
		req := three(small(t), dir)
		_, err = Execute(t.Context(), plan(t, req), req.Image, ExecOptions{})
		require.ErrorIs(t, err, ErrInUse)
		require.NoError(t, other.close(true))
		execute(t, req, ExecOptions{})
	}
}

// TestPromise1DamagedImage: an image that turns out damaged while it is read
// leaves nothing, and what was there stays.
func TestPromise1DamagedImage(t *testing.T) {
	for _, engine := range []string{EngineRequorum, EngineEtcdutl} {
		dir := t.TempDir()
		l := layout{existing: true}
		image := makeDB(t, dbOptions{keys: 2000, valueSize: 1000, clusterVersion: "3.5.0"})
		req := l.prepare(t, dir, image)
		req.Engine = engine
		before := tree(t, dir)
		fired := false
		bad := fakeImage{Image: req.Image, sum: "ab", reader: func(r io.ReadCloser) io.ReadCloser {
			return struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(r, 1<<20+5), readFunc(func([]byte) (int, error) {
				fired = true
				return 0, &snapshot.DamagedError{Object: "the image", Offset: 1<<20 + 5, Err: errors.New("a bit flipped")}
			})), r}
		}}
		req.Image = bad
		_, err := Execute(t.Context(), plan(t, req), bad, ExecOptions{})
		var damaged *snapshot.DamagedError
		if !errors.As(err, &damaged) || damaged.Offset != 1<<20+5 || !fired {
			t.Errorf("%v, want the DamagedError", err)
		}
		sameTree(t, engine, tree(t, dir), before)
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// TestCanceled: a context that ends leaves nothing.
func TestCanceled(t *testing.T) {
	dir := t.TempDir()
	req := three(small(t), dir)
	p := plan(t, req)
	for _, phase := range []Phase{PhaseWrite, PhaseEdit, PhasePublish} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Execute(ctx, p, req.Image, ExecOptions{Progress: func(at Phase, _, _ int64) {
			if at == phase {
				cancel()
			}
		}})
		require.ErrorIs(t, err, context.Canceled, phase)
		if got := names(t, dir); got != "" {
			t.Errorf("%s: left %s", phase, got)
		}
		cancel()
	}
}

// TestPublishFailsAndIsTakenBack: when the last member cannot be put in place,
// the ones before it are taken back, with the user's files where they were.
func TestPublishFailsAndIsTakenBack(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			dir := t.TempDir()
			req := l.prepare(t, dir, makeDB(t, dbOptions{keys: 20, clusterVersion: "3.5.0"}))
			before := tree(t, dir)
			fired := false
			_, err := Execute(t.Context(), plan(t, req), req.Image, ExecOptions{step: func(name string) {
				if !fired && strings.Contains(name, "m3") && !strings.Contains(name, "WAL") {
					fired = true // something takes the place
					d := filepath.Join(dir, "data", "m3")
					if l.existing {
						if err := os.RemoveAll(filepath.Join(d, stagingName, "member")); err != nil {
							t.Error(err)
						}
						return
					}
					write(t, filepath.Join(d, "member", "x"), "x")
				}
			}})
			if err == nil || !fired {
				t.Fatalf("no error (%v)", fired)
			}
			if !l.existing {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, "data", "m3", "member")))
			}
			sameTree(t, err.Error(), tree(t, dir), before)
		})
	}
}

// TestNoExchange: a file system that cannot swap is reported in words, with the
// user's member where it was; without something to swap it works.
func TestNoExchange(t *testing.T) {
	none := func(string, string) error { return safedir.ErrNoExchange }
	dir := t.TempDir()
	l := layout{existing: true}
	req := l.prepare(t, dir, makeDB(t, dbOptions{keys: 20, clusterVersion: "3.5.0"}))
	before := tree(t, dir)
	_, err := Execute(t.Context(), plan(t, req), req.Image, ExecOptions{swap: none})
	if !errors.Is(err, safedir.ErrNoExchange) || !strings.Contains(err.Error(), "move") {
		t.Errorf("%v", err)
	}
	sameTree(t, "refused", tree(t, dir), before)

	// An unfinished restore in an empty directory is replaced all the same.
	image := makeDB(t, dbOptions{keys: 20, clusterVersion: "3.5.0"})
	empty := layout{empty: true}
	dir = t.TempDir()
	if killed, out := runChild(t, childJob{Image: image, Request: empty.prepare(t, dir, image), KillAt: 3}); !killed {
		t.Fatal(out)
	}
	again := empty.prepareAgain(dir)
	again.Image = open(t, image)
	res, err := Execute(t.Context(), plan(t, again), again.Image, ExecOptions{swap: none})
	if err != nil || res.CompletedEarlier {
		t.Fatalf("%v %v", res, err)
	}
	for _, m := range res.Members {
		if c, why := empty.judge(t, dir, m.Name, res.Plan); c != complete {
			t.Errorf("%s is %s %s", m.Name, c, why)
		}
	}
}

// TestOwnerAndMode: new files belong to whom the old ones did, or to whom the
// user says.
func TestOwnerAndMode(t *testing.T) {
	storetest.NeedRoot(t)
	dir := t.TempDir()
	l := layout{existing: true, wal: true}
	req := l.prepare(t, dir, makeDB(t, dbOptions{keys: 20, clusterVersion: "3.5.0"}))
	chown := func(path string, id int) {
		require.NoError(t, os.Chown(path, id, id+1))
	}
	chown(filepath.Join(dir, "data", "m1", "member"), 4000)
	require.NoError(t, os.Chmod(filepath.Join(dir, "data", "m1", "member"), 0o750))
	chown(filepath.Join(dir, "wal", "m1"), 5000)
	execute(t, req, ExecOptions{Only: "m1"})
	check := func(path string, uid int, mode fs.FileMode) {
		t.Helper()
		info, err := os.Stat(filepath.Join(dir, path))
		require.NoError(t, err)
		if o := ownerOf(info); o.UID != uid || o.GID != uid+1 || info.Mode() != mode {
			t.Errorf("%s belongs to %v, mode %s", path, o, info.Mode())
		}
	}
	check("data/m1/member", 4000, fs.ModeDir|0o750)
	check("data/m1/member/snap", 4000, fs.ModeDir|0o750)
	check("data/m1/member/snap/db", 4000, 0o600)
	check("wal/m1", 5000, fs.ModeDir|0o700)
	check("wal/m1/"+firstSegment, 5000, 0o600)

	owner, err := ParseOwner("6000:6001")
	require.NoError(t, err)
	fresh := three(req.Image, filepath.Join(dir, "fresh"))
	fresh.Owner = &owner
	fresh.WALDir = filepath.Join(dir, "freshwal", "{name}")
	execute(t, fresh, ExecOptions{})
	for _, path := range []string{"fresh/m2", "fresh/m2/member", "freshwal/m2"} {
		check(path, 6000, fs.ModeDir|0o700)
	}
	check("fresh/m2/member/snap/db", 6000, 0o600)
	check("freshwal/m2/"+firstSegment, 6000, 0o600)
}

func TestParseOwner(t *testing.T) {
	if o, err := ParseOwner("root:0"); err != nil || o != (Owner{}) {
		t.Errorf("root:0: %v %v", o, err)
	}
	for _, bad := range []string{"", "root", ":", "root:", "nobody-has-this-name:root", "0:nobody-has-this-group"} {
		_, err := ParseOwner(bad)
		require.Error(t, err, "%q is an owner", bad)
	}
}

func TestCheckRefusesPaths(t *testing.T) {
	var bad *RequestError
	dir := t.TempDir()
	image := small(t)
	for _, c := range []struct{ data, wal, want string }{
		{"{name}", "{name}", "same directory"},
		{"{name}", "{name}/wal", "inside"},
		{"{name}", "{name}/member/wal", "inside"},
		{"a/{name}", "a", "inside"},
		{"a", "a", "same directory"},
	} {
		req := three(image, dir)
		req.DataDir = filepath.Join(dir, c.data)
		if c.wal != "" {
			req.WALDir = filepath.Join(dir, c.wal)
		}
		if _, err := plan(t, req).Check(t.Context(), ExecOptions{}); !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// One member on each host may have the same path everywhere.
	req := three(image, dir)
	req.DataDir = filepath.Join(dir, "etcd")
	_, err := plan(t, req).Check(t.Context(), ExecOptions{Only: "m2"})
	require.NoError(t, err, "one member of three with one path")
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(filepath.Join(dir, "nowhere"), link))
	req.DataDir = link
	_, err = plan(t, req).Check(t.Context(), ExecOptions{Only: "m2"})
	require.ErrorIs(t, err, ErrExists, "a dangling link")
}
