package rebuilding

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/store/storetest"
)

// TestMain: as `rebuilding.test control FILE` this program is a control process.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "control" {
		if err := runControl(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runControl(file string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := config.Read(file)
	if err != nil {
		return err
	}
	b := New(cfg, nil)
	b.pieceSize = 256 << 10
	p, err := control.Listen(ctx, cfg, b.Hooks(), nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, p.Addr())
	return p.Serve(ctx)
}

// process runs a host's control process as one that can be killed.
func (h *host) process() *exec.Cmd {
	t := h.t
	t.Helper()
	c := h.cfg
	file := filepath.Join(t.TempDir(), "control.yaml")
	text := fmt.Sprintf(`listen: {address: "127.0.0.1:0", cert: %s, key: %s, client-ca: %s}
member: {name: %s, data-dir: %s, kind: command, command: {start: [%s], stop: [%s]}}
state-dir: %s
repositories: [%s]
`, c.Listen.Cert, c.Listen.Key, c.Listen.ClientCA, h.name, c.Member.DataDir, c.Member.Command.Start[0], c.Member.Command.Stop[0], c.StateDir, h.lost.repository)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "control", file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	h.address = strings.TrimSpace(line)
	return cmd
}

// testKilled: promise 5: a control process that is killed anywhere is started again,
// and asked again.
func testKilled(t *testing.T, f *faults) {
	h := f.copied(t, 0)
	h.end()
	cmd := h.process()
	h.setAside(run1)
	plan := f.planned(t, f.from(t, f.peer.name))
	bring := filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+run1+"@"+h.name)
	there := func(pattern string) func() bool {
		return func() bool {
			found, err := filepath.Glob(filepath.Join(bring, pattern))
			return err == nil && len(found) > 0
		}
	}
	for _, point := range []struct {
		name string
		at   func() bool
	}{
		{"a part of the database", there("*/member/snap/db.part")},
		{"a part of the log", there("*/member/wal/*.part")},
		{"the replay", there("replay/*")},
		{"the build", func() bool {
			data, err := os.ReadFile(filepath.Join(h.cfg.StateDir, "journal.jsonl"))
			return err == nil && strings.Contains(string(data), `"step":"rebuild"`)
		}},
	} {
		result := make(chan error, 1)
		operator, ctx := h.operator(run1), t.Context()
		go func() {
			_, err := operator.RebuildMember(ctx, plan, sourceAt(f.peer))
			result <- err
		}()
		for began := time.Now(); !point.at(); {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("%s was never there", point.name)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		if err := <-result; err == nil {
			t.Errorf("it was done before it was killed at %s", point.name)
		}
		cmd = h.process()
	}
	r, err := h.rebuild(plan, f.peer)
	if err != nil {
		t.Fatal(err)
	}
	want, err := f.empty(t).rebuild(f.planned(t, f.from(t, f.other.name)), f.other)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(state(r), state(want)) {
		t.Errorf("%v, want %v", state(r), state(want))
	}
	if err := restore.CheckStartable(h.cfg.Member.DataDir, ""); err != nil {
		t.Error(err)
	}
	if left := h.leftovers(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	again, err := h.rebuild(plan, f.peer)
	if err != nil || !again.Earlier || again.Restore == nil || len(again.Restore.Members) != 1 {
		t.Errorf("%+v %v", again, err)
	}
	// Whoever has the data set aside can still have it copied.
	if files, err := h.operator(run1).Files(t.Context(), protocol.Aside); err != nil || len(files) == 0 {
		t.Errorf("%v %v", files, err)
	}
}

// testNoRoom: the room is looked at before anything is copied.
func testNoRoom(t *testing.T, f *faults) {
	folder := storetest.SmallDisk(t, "64m")
	h := f.host(t, 0, folder, "").setAside(run1)
	_, err := h.rebuild(f.planned(t, f.from(t, f.peer.name)), f.peer)
	failsWith(t, h, err, "not enough space", folder, "short")
	found, err := filepath.Glob(filepath.Join(folder, restore.BringPrefix+"*", "*", "member"))
	if err != nil || len(found) > 0 {
		t.Errorf("copied all the same: %v %v", found, err)
	}
}
