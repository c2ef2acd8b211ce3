package host

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/replaying"
)

// TestMain: with REQUORUM_TEST_HOST in its environment this program is a host process.
func TestMain(m *testing.M) {
	text := os.Getenv("REQUORUM_TEST_HOST")
	if text == "" {
		os.Exit(m.Run())
	}
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	o := Options{Version: "test", CheckBase: replaying.CheckBase}
	var stall int64
	var held bool
	if _, err := fmt.Sscanf(text, "%d,%d,%t", &stall, &o.pieceSize, &held); err != nil {
		panic(err)
	}
	if held {
		o.Logger = slog.New(heldBuild{slog.DiscardHandler})
	}
	o.stall, o.wait = time.Duration(stall), 10*time.Millisecond
	if err := Serve(context.Background(), os.Stdin, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// heldBuild keeps a build from going on after its first phase.
type heldBuild struct{ slog.Handler }

func (heldBuild) Enabled(context.Context, slog.Level) bool { return true }

func (heldBuild) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "restore: phase done" {
		select {}
	}
	return nil
}

// kill is kill -9 of the host processes that this test has started for the host's state
// folder, of which each request has one.
func (h *testHost) kill() int {
	killed := 0
	for _, line := range h.lines {
		if pid := line.PID(); pid != 0 && syscall.Kill(-pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	h.end()
	return killed
}

// testKilled: promise 4: a host process that is killed anywhere is started again,
// and asked again.
func testKilled(t *testing.T, f *faults) {
	h := f.copied(t, 0)
	h.piece = 256 << 10
	h.setAside(run1)
	h.end()
	plan := f.built(t)
	bring := filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+run1+"-"+machineStart()+"@"+h.name)
	there := func(pattern string) func() bool {
		return func() bool {
			found, err := filepath.Glob(filepath.Join(bring, pattern))
			return err == nil && len(found) > 0
		}
	}
	changes := func() uint64 {
		s, err := readState(h.cfg.StateDir)
		require.NoError(t, err)
		return s.Changes
	}
	before := uint64(0)
	h.held = true // none is done before it is killed
	for _, point := range []struct {
		name string
		hold func(FetchArguments) bool
		at   func() bool
	}{
		{"a part of the database", func(a FetchArguments) bool { return strings.HasSuffix(a.File, "db") }, there("*/db.part")},
		{"another part of it", func(a FetchArguments) bool { return a.Offset > 1<<20 }, func() bool {
			found, _ := filepath.Glob(filepath.Join(bring, "*/db.part"))
			if len(found) == 0 {
				return false
			}
			info, err := os.Stat(found[0])
			return err == nil && info.Size() > 1<<20
		}},
		{"the build", nil, func() bool { return changes() == before+2 }}, // after the epoch,
	} {
		before = changes()
		result := make(chan error, 1)
		peer := *f.peer
		peer.hold = point.hold
		operator, ctx := h.operator(run1, &peer), t.Context()
		go func() {
			_, err := operator.Rebuild(ctx, plan)
			result <- err
		}()
		for began := time.Now(); !point.at(); time.Sleep(200 * time.Microsecond) {
			if time.Since(began) > time.Minute || len(result) > 0 {
				t.Fatalf("%s was never there: %v", point.name, <-result)
			}
		}
		if h.kill() == 0 {
			t.Fatal("no process was killed")
		}
		if err := <-result; err == nil {
			t.Errorf("it was done before it was killed at %s", point.name)
		}
	}
	h.held = false
	r, err := h.rebuild(plan, f.peer)
	require.NoError(t, err)
	if r.Revision != f.image.Revision {
		t.Errorf("%+v", r)
	}
	same(t, f.peer, h)
	require.NoError(t, restore.CheckStartable(h.cfg.Member.DataDir, ""))
	if left := h.leftovers(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	again, err := h.rebuild(plan, f.peer)
	if err != nil || !again.Earlier || again.Restore == nil || len(again.Restore.Members) != 1 {
		t.Errorf("%+v %v", again, err)
	}
	// If the host that it copied from is lost since, the others copy from it.
	plan.Image = nil
	again, err = h.rebuild(plan)
	if err != nil || !again.Earlier || again.Image == nil || again.Image.From != h.name || again.Image.Size == 0 || again.Image.HashKV != f.image.HashKV {
		t.Errorf("%+v %v", again, err)
	}
	// Whoever has the data set aside can still have it copied.
	if files, err := h.operator(run1).Files(t.Context(), run1); err != nil || len(files) == 0 {
		t.Errorf("%v %v", files, err)
	}
}

// testNoRoom: the room is looked at before anything is copied.
func testNoRoom(t *testing.T, f *faults) {
	folder := storetest.SmallDisk(t, "64m")
	h := f.host(t, 0, folder, "").setAside(run1)
	_, err := h.rebuild(f.built(t), f.peer)
	failsWith(t, h, err, "not enough space", folder, "short")
	found, err := filepath.Glob(filepath.Join(folder, restore.BringPrefix+"*", "*", "db*"))
	if err != nil || len(found) > 0 {
		t.Errorf("copied all the same: %v %v", found, err)
	}
}

// testRoomForTheRest: what an earlier attempt has copied needs no room again.
func testRoomForTheRest(t *testing.T, f *faults) {
	h, plan := f.copied(t, 0).setAside(run1), f.built(t)
	image := *plan.Image
	image.Size, plan.Image = 8<<40, &image // more than is free
	folder := filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+run1+"-"+machineStart()+"@"+h.name, image.ID)
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(folder), safedir.LockName), nil, 0o600))
	part := filepath.Join(folder, "db"+partSuffix)
	require.NoError(t, os.WriteFile(part, nil, 0o600))
	require.NoError(t, os.Truncate(part, image.Size))
	_, err := h.rebuild(plan, f.peer)
	failsWith(t, h, err, "were asked for") // there is no such piece
}
