package restore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/storetest"
)

// attackerArgument makes the test binary a process of etcd's user that swaps what
// lies in its directories for as long as a restore works there.
const attackerArgument = "requorum-restore-attacker"

// secret is what root's files hold: it must not get into any result.
const secret = "CANARY-OF-ROOT"

// attack is one line to the attacker: begin with these directories, or end.
type attack struct {
	Data, WAL, Canary string
	Seed              uint64
}

// struck is its answer when it ended.
type struck struct{ Swapped, Linked, Failed int }

func attacker() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var a attack
		if err := json.Unmarshal(in.Bytes(), &a); err != nil {
			panic(err)
		}
		end, ended := make(chan struct{}), make(chan struck)
		begun := make(chan struct{})
		go func() { ended <- a.run(begun, end) }()
		<-begun
		fmt.Fprintln(os.Stdout, "begun")
		if !in.Scan() {
			return
		}
		close(end)
		out, err := json.Marshal(<-ended)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stdout, string(out))
	}
}

// run swaps one name after the other for something else and back.
func (a attack) run(begun, end chan struct{}) (s struck) {
	random := rand.New(rand.NewPCG(a.Seed, 0))
	for n := 0; ; n++ {
		if n == 1 {
			close(begun)
		}
		select {
		case <-end:
			if n > 0 {
				return s
			}
		default:
		}
		path := a.victim(random)
		away := fmt.Sprintf("%s.away-%d", path, n)
		moved := os.Rename(path, away) == nil
		kind, err := a.plant(random, path)
		if err != nil {
			s.Failed++
		} else if s.Swapped++; strings.HasPrefix(kind, "link") {
			s.Linked++
		}
		time.Sleep(time.Duration(random.IntN(400)) * time.Microsecond)
		if err == nil && random.IntN(8) > 0 {
			_ = os.Rename(path, fmt.Sprintf("%s.planted-%d", path, n)) // root may have moved it
		}
		if moved {
			_ = os.Rename(away, path)
		}
		time.Sleep(time.Duration(random.IntN(400)) * time.Microsecond)
	}
}

// victim is a name that a restore, a set-aside or an undo uses.
func (a attack) victim(random *rand.Rand) string {
	names := []string{
		stagingName, "member", "member", "member/wal", "member/snap", "member/snap/db", "member/" + unfinishedName, "member/" + recordName,
		"member/wal/" + blockerName, stagingName, stagingName + "/member", "member/wal/" + firstSegment,
	}
	logs := []string{stagingName, blockerName, blockerName + ".tmp", firstSegment, stagingName + "/wal", "0000000000000003-0000000000000100.wal"}
	for _, glob := range []string{filepath.Join(a.Data, memberAsidePrefix+"*"), filepath.Join(a.WAL, setAsidePrefix+"*")} {
		if all, _ := filepath.Glob(glob); len(all) > 0 && random.IntN(4) == 0 {
			return all[random.IntN(len(all))]
		}
	}
	if random.IntN(3) == 0 {
		return filepath.Join(a.WAL, logs[random.IntN(len(logs))])
	}
	return filepath.Join(a.Data, names[random.IntN(len(names))])
}

// plant puts something in a name's place.
func (a attack) plant(random *rand.Rand, path string) (kind string, err error) {
	switch random.IntN(9) {
	case 0:
		return "link to a folder", os.Symlink(filepath.Join(a.Canary, "folder"), path)
	case 1:
		return "link to a file", os.Symlink(filepath.Join(a.Canary, "secret"), path)
	case 2:
		return "link to the whole", os.Symlink(a.Canary, path)
	case 3:
		return "hard link", os.Link(filepath.Join(a.Canary, "shared"), path)
	case 4:
		return "FIFO", syscall.Mkfifo(path, 0o666)
	case 5:
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return "socket", err
		}
		l.SetUnlinkOnClose(false)
		return "socket", l.Close()
	case 6:
		return "folder with links", errors.Join(os.Mkdir(path, 0o777),
			os.Symlink(filepath.Join(a.Canary, "secret"), filepath.Join(path, "x")), os.Symlink(a.Canary, filepath.Join(path, "wal")),
			os.Symlink(a.Canary, filepath.Join(path, "member")), os.Symlink(filepath.Join(a.Canary, "secret"), filepath.Join(path, safedir.LockName)))
	case 7: // a folder of root's that lies in the directory
		return "root's folder", os.Rename(filepath.Join(a.Data, "backup"), path)
	}
	return "empty folder", os.Mkdir(path, 0o777)
}

// hostile is the attacker's process.
type hostile struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startAttacker(t *testing.T, dir string) *hostile {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	program := filepath.Join(dir, "attacker")
	require.NoError(t, storetest.WriteProgram(program, self, 0o755))
	h := &hostile{cmd: exec.Command(program, attackerArgument)}
	h.cmd.Dir, h.cmd.Stderr = "/", os.Stderr
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: etcdUser, Gid: etcdUser}}
	h.in, err = h.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := h.cmd.StdoutPipe()
	require.NoError(t, err)
	h.out = bufio.NewScanner(out)
	require.NoError(t, h.cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, errors.Join(h.in.Close(), h.cmd.Wait()), "the attacker")
	})
	return h
}

func (h *hostile) begin(t *testing.T, a attack) {
	t.Helper()
	line, err := json.Marshal(a)
	require.NoError(t, err)
	if _, err := h.in.Write(append(line, '\n')); err != nil || !h.out.Scan() || h.out.Text() != "begun" {
		t.Fatalf("the attacker did not begin: %v %q", err, h.out.Text())
	}
}

func (h *hostile) end(t *testing.T) (s struck) {
	t.Helper()
	if _, err := h.in.Write([]byte("\n")); err != nil || !h.out.Scan() {
		t.Fatalf("the attacker did not end: %v", err)
	}
	require.NoError(t, json.Unmarshal(h.out.Bytes(), &s))
	return s
}

// hostileTally is what the runs came to.
type hostileTally struct {
	struck
	runs, done, refused, links int
	planted                    map[string]int
}

// TestHostileDirectory: root restores, sets aside and undoes in directories of
// etcd's user, who prepared them, and goes on to swap what is in them meanwhile.
// Nothing of root's outside them is read into a result, changed or removed, and
// neither is root's own folder in them.
func TestHostileDirectory(t *testing.T) {
	storetest.NeedRoot(t)
	runs := 1000
	if testing.Short() {
		runs = 50
	}
	dir := fastDir(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	canary := filepath.Join(dir, "canary")
	// Both look like what a restore left: what follows a link finds enough to do.
	for _, folder := range []string{canary, filepath.Join(canary, "folder"), filepath.Join(canary, "member")} {
		lookalike(t, folder)
	}
	write(t, filepath.Join(canary, "shared"), secret)
	// The kernel lets a user link to what it may write to. Its mode is to be kept.
	require.NoError(t, errors.Join(os.Chmod(canary, 0o755), os.Chmod(filepath.Join(canary, "shared"), 0o666)))
	before := census(t, canary)
	image := makeDB(t, dbOptions{keys: 5})
	h := startAttacker(t, dir)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	tally := hostileTally{planted: map[string]int{}}
	for n := range runs {
		r := &hostileRun{dir: filepath.Join(dir, fmt.Sprintf("run-%d", n)), canary: canary, image: image, seed: seed + uint64(n)}
		r.prepare(t, &tally)
		h.begin(t, attack{Data: r.data, WAL: r.wal, Canary: canary, Seed: r.seed})
		err := r.work(t.Context(), t, &tally)
		s := h.end(t)
		tally.Swapped, tally.Linked, tally.Failed = tally.Swapped+s.Swapped, tally.Linked+s.Linked, tally.Failed+s.Failed
		if got := census(t, canary); got != before {
			t.Fatalf("run %d (seed %d), %v: root's folder was\n%s and is\n%s", n, r.seed, err, before, got)
		}
		r.check(t, err)
		if t.Failed() {
			t.Fatalf("run %d, seed %d: %v", n, r.seed, err)
		}
		require.NoError(t, os.RemoveAll(r.dir))
	}
	t.Logf("%d runs: %d calls done, %d refused, %d of them for a link; %d names swapped, %d for links; planted beforehand: %v",
		tally.runs, tally.done, tally.refused, tally.links, tally.Swapped, tally.Linked, tally.planted)
	if tally.Swapped < runs || tally.Linked < runs/10 || tally.links == 0 || tally.refused < runs/10 || tally.done < runs/10 {
		t.Error("too little of that happened: the test shows nothing")
	}
}

// lookalike fills a folder of root's with what a restore, a set-aside or an undo
// would read, move or remove.
func lookalike(t *testing.T, folder string) {
	t.Helper()
	p := &Plan{ID: "set-aside-run-00000001", Source: Source{Name: secret}}
	b, err := newBlocker(p, Member{Name: secret}).encode()
	require.NoError(t, err)
	record, err := json.Marshal(record{Member: secret, Plan: p})
	require.NoError(t, err)
	for _, name := range []string{
		"secret", "snap/db", "wal/" + firstSegment, firstSegment, stagingName + "/" + safedir.LockName, stagingName + "/member/snap/db", stagingName + "/wal/" + firstSegment,
		"0000000000000003-0000000000000100.wal",
	} {
		write(t, filepath.Join(folder, name), secret)
	}
	for _, name := range []string{blockerName, "wal/" + blockerName} {
		write(t, filepath.Join(folder, name), string(b))
	}
	write(t, filepath.Join(folder, unfinishedName), string(record))
}

// hostileRun is one of them.
type hostileRun struct {
	dir, canary, image string
	seed               uint64
	random             *rand.Rand
	data, wal          string
	backup             string
}

// prepare makes the directories, with something in the way in some.
func (r *hostileRun) prepare(t *testing.T, tally *hostileTally) {
	t.Helper()
	r.random = rand.New(rand.NewPCG(r.seed, 1))
	r.data, r.wal = filepath.Join(r.dir, "m1"), filepath.Join(r.dir, "log")
	write(t, filepath.Join(r.data, "member", "snap", "db"), oldContent)
	write(t, filepath.Join(r.wal, "0000000000000003-0000000000000100.wal"), oldContent)
	write(t, filepath.Join(r.wal, "0000000000000004-0000000000000200.wal"), oldContent)
	mkdir(t, filepath.Join(r.data, "member", "wal"))
	require.NoError(t, os.Chmod(r.dir, 0o755))
	if r.random.IntN(2) == 0 {
		at := attack{Data: r.data, WAL: r.wal, Canary: r.canary}
		path := at.victim(r.random)
		require.NoError(t, os.RemoveAll(path))
		kind := "device"
		var err error
		switch r.random.IntN(4) {
		case 0:
			err = syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|3) // /dev/null
		case 1:
			kind, err = "hard link to what etcd's user may not read", os.Link(filepath.Join(r.canary, "secret"), path)
		default:
			kind, err = at.plant(r.random, path)
		}
		if err == nil {
			tally.planted[kind]++
		}
	}
	own := func(root string) error {
		return filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			info, statErr := os.Lstat(path)
			if err = errors.Join(err, statErr); err != nil {
				return err
			}
			if info.Mode().IsRegular() && info.Sys().(*syscall.Stat_t).Nlink > 1 {
				return nil // root's
			}
			return os.Lchown(path, etcdUser, etcdUser)
		})
	}
	require.NoError(t, errors.Join(own(r.data), own(r.wal)))
	write(t, filepath.Join(r.data, "backup", "secret"), secret)
	r.backup = identity(t, filepath.Join(r.data, "backup", "secret"))
}

// identity is a file, whatever its path.
func identity(t *testing.T, path string) string {
	t.Helper()
	out := census(t, path)
	return strings.TrimPrefix(out, path)
}

// work is what root does: each of the three, and again where it failed.
func (r *hostileRun) work(ctx context.Context, t *testing.T, tally *hostileTally) error {
	tally.runs++
	var all []error
	count := func(err error) error {
		switch {
		case err == nil:
			tally.done++
		case errors.Is(err, safedir.ErrLink):
			tally.links++
			fallthrough
		default:
			tally.refused++
			all = append(all, err)
		}
		return err
	}
	walDir := r.wal
	if r.random.IntN(3) == 0 {
		walDir = ""
	}
	restore := func() error {
		req := Request{Image: open(t, r.image), InitialCluster: "m1=http://127.0.0.1:1", DataDir: r.data, WALDir: walDir, SetAside: true}
		p, err := NewPlan(ctx, req)
		require.NoError(t, err)
		_, err = Execute(ctx, p, req.Image, ExecOptions{})
		return err
	}
	for range 2 {
		if r.random.IntN(2) == 0 {
			_ = count(restore())
			continue
		}
		a, err := PlanAside(Aside{Member: "m1", Run: "run-00000001", DataDir: r.data, WALDir: walDir, Time: time.Now()})
		if count(err) != nil {
			continue
		}
		_ = count(a.Do(ctx))
		if r.random.IntN(2) == 0 {
			_ = count(restore())
		}
		_, err = a.Undo(ctx, time.Now())
		_ = count(err)
	}
	return errors.Join(all...)
}

// check looks for root's secret in what etcd's user has now, and for root's folder.
func (r *hostileRun) check(t *testing.T, said error) {
	t.Helper()
	if said != nil && strings.Contains(said.Error(), secret) {
		t.Errorf("an error says it: %v", said)
	}
	found := false
	err := filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if d.Name() == "secret" && identity(t, path) == r.backup {
			found = true
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Sys().(*syscall.Stat_t).Nlink > 1 && info.Sys().(*syscall.Stat_t).Uid == 0 {
			return nil // planted, and the same file
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s (%s) has root's secret", path, info.Mode())
		}
		return err
	})
	require.NoError(t, err)
	if !found {
		t.Error("root's folder in the data directory is gone, or changed")
	}
}
