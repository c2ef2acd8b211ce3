package host

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/replaying"
)

// etcdUser is a user that is nobody else here.
const etcdUser = 2379

// etcdsHost is a host whose data directory belongs to another user, and a folder of
// root's beside it.
func etcdsHost(t *testing.T) (s *rebuilding, victim string) {
	t.Helper()
	storetest.NeedRoot(t)
	root := t.TempDir()
	cfg := &Config{StateDir: filepath.Join(root, "state"), Member: supervisor.MemberConfig{Name: "m1", DataDir: filepath.Join(root, "data")}}
	victim = filepath.Join(root, "victim")
	theirs(t, cfg.Member.DataDir)
	must(t, os.Mkdir(victim, 0o700))
	h := &host{process: &process{Options: Options{Logger: slog.New(slog.DiscardHandler), CheckBase: replaying.CheckBase, tuning: tuning{}.orDefault()}}, Config: cfg, State: &stateFile{}}
	members := "m1=http://10.0.0.1:2380"
	id, err := restore.ClusterID(members, token)
	must(t, err)
	return &rebuilding{
		host: h, run: run1,
		plan: RebuildPlan{ID: "plan-1", Old: id + 1, New: id, InitialCluster: members, ClusterToken: token},
	}, victim
}

// theirs makes a folder of the other user's.
func theirs(t *testing.T, dir string) {
	t.Helper()
	must(t, os.Mkdir(dir, 0o700), os.Lchown(dir, etcdUser, etcdUser))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	require.NoError(t, errors.Join(errs...))
}

func untouched(t *testing.T, victim string) {
	t.Helper()
	names, err := os.ReadDir(victim)
	if err != nil || len(names) > 0 {
		t.Errorf("%v is in root's folder, %v", names, err)
	}
}

// TestGatherPlanted: what etcd's user puts in the place of the folder that a rebuild
// gathers in, is neither written through nor believed.
func TestGatherPlanted(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(t *testing.T, path, victim string){
		"a link": func(t *testing.T, path, victim string) { must(t, os.Symlink(victim, path)) },
		"a folder with links": func(t *testing.T, path, victim string) {
			theirs(t, path)
			must(t, os.Symlink(victim, filepath.Join(path, "replay")))
		},
		"an empty folder": func(t *testing.T, path, _ string) { theirs(t, path) },
		"a folder of root's": func(t *testing.T, path, _ string) {
			must(t, os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "file"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, victim := etcdsHost(t)
			path, err := s.bringFolder()
			must(t, err)
			plant(t, path, victim)
			_, err = s.rebuilt(t.Context())
			if err == nil || !strings.Contains(err.Error(), "a folder to gather in") {
				t.Errorf("%v", err)
			}
			untouched(t, victim)
		})
	}
}

// TestGatherReplaced: where the folder is given another name while a rebuild works in
// it, what is brought, replayed and removed still lies in it.
func TestGatherReplaced(t *testing.T) {
	t.Parallel()
	s, victim := etcdsHost(t)
	path, err := s.bringFolder()
	must(t, err)
	g, err := openGather(path)
	must(t, err)
	must(t, os.Rename(path, path+"-elsewhere"), os.Symlink(victim, path))
	s.folder = g.dir.Path()
	_, err = (&Copier{}).Copy(t.Context(), DataArguments{File: DatabaseName}, 0, filepath.Join(s.folder, "image", "db")) // it is empty: nothing has to be sent
	must(t, err)
	untouched(t, victim)
	found, err := filepath.Glob(filepath.Join(path+"-elsewhere", "image", "db"))
	if err != nil || len(found) != 1 {
		t.Errorf("%v, %v", found, err)
	}
	aside := filepath.Join(s.Config.Member.DataDir, "aside")
	theirs(t, aside)
	must(t, os.Mkdir(filepath.Join(victim, "snap"), 0o700), os.WriteFile(filepath.Join(victim, "snap", "db"), []byte("secret"), 0o600), os.Symlink(filepath.Join(victim, "snap"), filepath.Join(aside, "snap")))
	view, _, err := (&restore.Aside{Folder: aside}).View(filepath.Join(s.folder, "aside"))
	must(t, err)
	_, err = safedir.Open(filepath.Join(view, "member", "snap", "db"))
	require.Error(t, err, "a file of root's was taken for the member's")
	require.NotErrorIs(t, err, os.ErrNotExist)
	_, err = foldersOf(aside, "").list()
	require.Error(t, err, "a file of root's was taken for the member's")
	must(t, g.remove(), g.close())
	if names, err := os.ReadDir(filepath.Join(victim, "snap")); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestGatherAgain: what was gathered is found again by the next process, and removed.
func TestGatherAgain(t *testing.T) {
	t.Parallel()
	s, _ := etcdsHost(t)
	path, err := s.bringFolder()
	must(t, err)
	for range 2 {
		g, err := openGather(path)
		must(t, err)
		_, err = openGather(path)
		require.Error(t, err, "two processes gather in one folder")
		must(t, os.WriteFile(filepath.Join(g.dir.Path(), "file"), nil, 0o600), g.close())
	}
	g, err := openGather(path)
	must(t, err)
	must(t, g.remove(), g.close())
	_, err = os.Lstat(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestOldGathersPlanted: what earlier recoveries gathered is removed, and a folder of
// root's that etcd's user gave such a name is not.
func TestOldGathersPlanted(t *testing.T) {
	t.Parallel()
	s, _ := etcdsHost(t)
	dir := s.Config.Member.DataDir
	old, planted := filepath.Join(dir, restore.BringPrefix+"run-0@m1"), filepath.Join(dir, restore.BringPrefix+"run-x@m1")
	g, err := openGather(old)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(g.dir.Path(), "file"), nil, 0o600), g.close())
	must(t, os.Mkdir(planted, 0o700), os.WriteFile(filepath.Join(planted, "secret"), nil, 0o600))
	must(t, s.removeOld(""))
	if _, err := os.Lstat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was gathered: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(planted, "secret")); err != nil {
		t.Errorf("root's folder: %v", err)
	}
}

// TestFilesPlanted: files and folders of root's that etcd's user puts among the member's,
// and pipes, are neither sent nor waited for.
func TestFilesPlanted(t *testing.T) {
	t.Parallel()
	s, victim := etcdsHost(t)
	dir := s.Config.Member.DataDir
	secret := filepath.Join(victim, "secret")
	snap := filepath.Join(dir, "member", "snap")
	theirs(t, filepath.Dir(snap))
	theirs(t, snap)
	must(t, os.WriteFile(secret, []byte("secret"), 0o600), os.Link(secret, filepath.Join(snap, "linked.db")), syscall.Mkfifo(filepath.Join(snap, "db"), 0o600),
		os.Symlink(victim, filepath.Join(dir, "logs")))
	f := folders{"member": filepath.Join(dir, "member"), "wal": filepath.Join(dir, "logs", "wal")}
	must(t, os.Mkdir(filepath.Join(victim, "wal"), 0o700), os.WriteFile(filepath.Join(victim, "wal", "0.wal"), nil, 0o600))
	for _, name := range []string{"member/snap/linked.db", "member/snap/db", "wal/0.wal"} {
		_, _, err := f.open(name)
		require.Error(t, err, "%s was opened", name)
	}
	if files, err := f.list(); err == nil {
		t.Errorf("%v", files)
	}
	if files, err := (folders{"wal": f["wal"]}).list(); err == nil {
		t.Errorf("%v", files)
	}
	read := make(chan error, 1)
	go func() {
		_, err := snapshot.OpenUnsynced(filepath.Join(snap, "db"))
		read <- err
	}()
	select {
	case err := <-read:
		require.Error(t, err, "a pipe was read as an image")
	case <-time.After(time.Minute):
		t.Error("a pipe is waited for")
	}
	must(t, os.Remove(filepath.Join(snap, "db")), os.Remove(filepath.Join(snap, "linked.db")), os.WriteFile(filepath.Join(snap, "db"), []byte("database"), 0o600))
	theirs(t, filepath.Join(dir, "wal"))
	theirs(t, filepath.Join(dir, "wal", "before"))
	must(t, os.WriteFile(filepath.Join(dir, "wal", "0.wal"), nil, 0o600), os.WriteFile(filepath.Join(dir, "wal", "before", "1.wal"), nil, 0o600))
	f["wal"] = filepath.Join(dir, "wal")
	files, err := f.list()
	if err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
	for _, one := range files {
		file, size, err := f.open(one.Name)
		if err != nil || size != one.Size {
			t.Fatalf("%s: %d bytes, %v", one.Name, size, err)
		}
		must(t, file.Close())
	}
}

// What another host lists cannot make the room that is needed overflow, nor lead out of
// the folder of its copy.
func TestFilesOfAPeer(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckFiles([]File{{Name: "member/snap/db", Size: maxFiles - 1}, {Name: "member/wal/0-0.wal", Size: 1}}))
	for _, files := range [][]File{
		slices.Repeat([]File{{Name: "wal/0-0.wal", Size: maxFiles / 2}}, 3),
		{{Name: "member/../../x"}}, {{Name: "/etc/passwd"}}, {{Name: "."}}, {{Name: ""}}, {{Name: "wal/x", Size: -1}},
	} {
		if err := CheckFiles(files); err == nil {
			t.Errorf("%v", files)
		}
	}
}

// A state folder that etcd's user can write to is refused: a state file that it wrote or linked
// would be believed.
func TestStateFolderOfAnother(t *testing.T) {
	t.Parallel()
	etcdsHost(t) // takes root
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("one line of root's"), 0o600))
	for _, below := range []string{"", "state"} {
		cfg := quietHost(t)
		folder := filepath.Join(t.TempDir(), "var")
		cfg.StateDir = filepath.Join(folder, below)
		require.NoError(t, errors.Join(os.MkdirAll(cfg.StateDir, 0o700), os.Symlink(secret, filepath.Join(cfg.StateDir, "state.json")), os.Chown(folder, etcdUser, etcdUser)))
		_, err := lineTo(t, cfg, "test").As(run1).Stop(t.Context())
		require.ErrorContains(t, err, "state-dir: other users of this machine", "%q", below)
		if data, err := os.ReadFile(secret); err != nil || string(data) != "one line of root's" {
			t.Fatalf("%q: root's file holds %q, %v", below, data, err)
		}
	}
}
