package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/store/storetest"
)

// faults are hosts whose data was set aside, and another one that has none.
type faults struct {
	*lost
	peer, other *testHost
}

// TestFaults: what goes wrong on the way to a member is got around, or reported, and
// then nothing can start from what was built.
func TestFaults(t *testing.T) {
	t.Parallel()
	f := &faults{lost: lose(t, storetest.Some("3.6")[0])}
	for i := range f.c.Size() {
		shorten(t, f.c.Member(i).DataDir)
	}
	f.peer, f.other = f.copied(t, 1).setAside(run1), f.copied(t, 2).setAside(run1)
	f.survey(t, run1, f.peer, f.other)
	for _, c := range []struct {
		name string
		test func(*testing.T, *faults)
	}{
		{"Repository", testRepository},
		{"OwnDataFirst", testOwnDataFirst},
		{"SeparateLog", testSeparateLog},
		{"PeerAway", testPeerAway},
		{"PeerDiesMidway", testPeerDiesMidway},
		{"PeerStalls", testPeerStalls},
		{"FlippedByte", testFlippedByte},
		{"OtherRepository", testOtherRepository},
		{"RepositoryAway", testRepositoryAway},
		{"NoRepositoryNeeded", testNoRepositoryNeeded},
		{"OtherCluster", testOtherCluster},
		{"OtherPlan", testOtherPlan},
		{"NoRoom", testNoRoom},
		{"OthersLeftovers", testOthersLeftovers},
		{"Killed", testKilled},
		{"MayStartPutBack", testMayStartPutBack},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, f)
		})
	}
}

// empty is a host without any data.
func (f *faults) empty(t *testing.T) *testHost {
	t.Helper()
	return f.host(t, 0, filepath.Join(t.TempDir(), "data"), "").setAside(run1)
}

// nothingBuilt fails where a member could start.
func nothingBuilt(t *testing.T, h *testHost) {
	t.Helper()
	if err := restore.CheckStartable(h.cfg.Member.DataDir, ""); !errors.Is(err, restore.ErrNotStartable) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s could be started: %v", h.name, err)
	}
}

func failsWith(t *testing.T, h *testHost, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		require.ErrorContains(t, err, w)
	}
	nothingBuilt(t, h)
}

// testRepository: from the repository's snapshot and a peer's log comes the same
// state as from the peer alone.
func testRepository(t *testing.T, f *faults) {
	h := f.empty(t)
	a, err := h.rebuild(f.planned(t, f.stored(t, f.peer.name)), f.peer)
	require.NoError(t, err)
	if len(a.Brought) != 2 || a.Brought[0].From != f.peer.name || !strings.HasPrefix(a.Brought[1].From, "file://") || a.Brought[1].Bytes == 0 {
		t.Errorf("%+v", a.Brought)
	}
	b, err := f.empty(t).rebuild(f.planned(t, f.from(t, f.other.name)), f.other)
	require.NoError(t, err)
	if !reflect.DeepEqual(state(a), state(b)) {
		t.Errorf("%v and %v", state(a), state(b))
	}
	if left := h.leftovers(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// testOwnDataFirst: what lies here is not fetched.
func testOwnDataFirst(t *testing.T, f *faults) {
	h := f.copied(t, 0).setAside(run1)
	own := f.from(t, f.other.name)
	own.Base = sources.Base{Owner: h.name, Revision: 1} // its log from the first entry
	own.Log = []sources.Piece{{Owner: h.name, First: 1, Last: own.Index}}
	r, err := h.rebuild(f.planned(t, f.from(t, f.peer.name), own), f.peer)
	require.NoError(t, err)
	if len(r.Brought) != 1 || r.Brought[0].From != HereName || !strings.Contains(r.Brought[0].Why, "this host") {
		t.Errorf("%+v", r.Brought)
	}
}

// testSeparateLog: a log in a directory of its own is found on this host and on
// another one, set aside or surveyed, and the new one is built there.
func testSeparateLog(t *testing.T, f *faults) {
	h := f.copied(t, 2)
	dir, wal := h.cfg.Member.DataDir, filepath.Join(t.TempDir(), "wal")
	require.NoError(t, os.Rename(filepath.Join(dir, "member", "wal"), wal))
	h.cfg.Member.WALDir = wal
	h.setAside(run1)
	seen := *f.lost
	seen.survey(t, run1, f.peer, h)
	plan := seen.planned(t, seen.from(t, h.name))
	a, err := f.empty(t).rebuild(plan, h)
	if err != nil || a.Brought[0].From != h.name {
		t.Fatalf("elsewhere: %+v %v", a, err)
	}
	b, err := h.rebuild(plan, h)
	if err != nil || b.Brought[0].From != HereName {
		t.Fatalf("its own: %+v %v", b, err)
	}
	if !reflect.DeepEqual(state(a), state(b)) {
		t.Errorf("%v and %v", state(a), state(b))
	}
	require.NoError(t, restore.CheckStartable(dir, wal))
	again, err := h.rebuild(plan, h)
	if err != nil || !again.Earlier {
		t.Errorf("again: %+v %v", again, err)
	}
}

// testPeerAway: another peer is taken, and the reason is reported.
func testPeerAway(t *testing.T, f *faults) {
	h := f.empty(t)
	gone := &testHost{name: f.peer.name}
	if _, err := h.rebuild(f.planned(t, f.from(t, gone.name)), gone); err == nil {
		t.Fatal("from a host that is away")
	} else {
		failsWith(t, h, err, "host "+gone.name, "it is away")
	}
	r, err := h.rebuild(f.planned(t, f.from(t, gone.name), f.from(t, f.other.name)), gone, f.other)
	if err != nil || r.Brought[0].From != f.other.name || !strings.Contains(r.Brought[0].Why, "it is away") {
		t.Errorf("%+v %v", r, err)
	}
}

// testPeerDiesMidway: in the middle of the copy.
func testPeerDiesMidway(t *testing.T, f *faults) {
	first, other := f.peer, f.other
	if fileBytes(t, first) > fileBytes(t, other) { // whose files are smaller is asked first
		first, other = other, first
	}
	dying := func(t *testing.T) (*testHost, func()) {
		dead := false
		peer := first.after(2<<20, false, func(context.Context, io.Writer, []byte) (int, error) {
			dead = true
			return 0, errors.New("its line was cut")
		})
		return peer, func() {
			if !dead {
				t.Error("it did not die midway")
			}
		}
	}
	h := f.empty(t)
	peer, died := dying(t)
	_, err := h.rebuild(f.planned(t, f.from(t, peer.name)), peer)
	failsWith(t, h, err, "copy the data of "+peer.name, "its line was cut")
	died()

	// What came is not brought again, from whom it came.
	r, err := h.rebuild(f.planned(t, f.from(t, other.name)), other)
	require.NoError(t, err)
	all := r.Brought[0].Bytes
	again := f.empty(t)
	peer, died = dying(t)
	owners := namesOf(peer, other)
	_, err = again.operator(run1, peer, other).Rebuild(t.Context(), f.planned(t, f.from(t, peer.name)), owners)
	require.Error(t, err, "it did not fail")
	died()
	r, err = again.operator(run1, peer, other).Rebuild(t.Context(), f.planned(t, f.from(t, peer.name), f.from(t, other.name)), owners)
	if err != nil || r.Brought[0].From != other.name || r.Brought[0].Bytes != all || !strings.Contains(r.Brought[0].Why, "its line was cut") {
		t.Errorf("%+v %v", r, err)
	}
}

// testPeerStalls: a host that sends nothing any more is not waited for.
func testPeerStalls(t *testing.T, f *faults) {
	h := f.empty(t)
	if _, err := f.peer.reader().As(run1).Files(t.Context(), run1); err != nil { // its process runs
		t.Fatal(err)
	}
	whole, err := f.empty(t).rebuild(f.planned(t, f.from(t, f.peer.name)), f.peer)
	require.NoError(t, err)
	h.stall = time.Second
	stalls := f.peer.after(whole.Brought[0].Bytes-1<<20, false, func(ctx context.Context, _ io.Writer, _ []byte) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	_, err = h.rebuild(f.planned(t, f.from(t, f.peer.name)), stalls)
	failsWith(t, h, err, "nothing came for 1s")
	h.stall = time.Minute
	r, err := h.rebuild(f.planned(t, f.from(t, f.peer.name)), f.peer)
	require.NoError(t, err)
	if again, all := r.Brought[0].Bytes, whole.Brought[0].Bytes; again >= all {
		t.Errorf("%d bytes were copied again, of %d", again, all)
	}
}

func fileBytes(t *testing.T, h *testHost) (sum int64) {
	t.Helper()
	files, err := h.operator(run1).Files(t.Context(), run1)
	require.NoError(t, err)
	for _, f := range files {
		if strings.HasSuffix(f.Name, "/db") || strings.HasSuffix(f.Name, ".wal") {
			sum += f.Size
		}
	}
	return sum
}

// testFlippedByte: what was changed on the wire is copied again, and where it is
// always changed, not used.
func testFlippedByte(t *testing.T, f *faults) {
	h := f.empty(t)
	bad := f.peer.after(200<<10, true, flip)
	_, err := h.rebuild(f.planned(t, f.from(t, bad.name)), bad)
	failsWith(t, h, err, "copy the data of "+bad.name)
	flipped := false
	some := f.peer.after(1<<20, false, func(ctx context.Context, w io.Writer, p []byte) (int, error) {
		if !flipped {
			flipped = true
			return flip(ctx, w, p)
		}
		return w.Write(p)
	})
	a, err := h.rebuild(f.planned(t, f.from(t, some.name)), some)
	require.NoError(t, err)
	if !flipped {
		t.Error("nothing was changed on the wire")
	}
	b, err := f.empty(t).rebuild(f.planned(t, f.from(t, f.other.name)), f.other)
	if err != nil || !reflect.DeepEqual(state(a), state(b)) {
		t.Errorf("%v and %v, %v", state(a), state(b), err)
	}
}

// flip passes data on with a bit changed.
func flip(_ context.Context, w io.Writer, p []byte) (int, error) {
	p = bytes.Clone(p)
	p[len(p)/2] ^= 1
	return w.Write(p)
}

// testOtherRepository: a request can name none that is not configured.
func testOtherRepository(t *testing.T, f *faults) {
	h := f.empty(t)
	h.cfg.Repositories = nil
	_, err := h.rebuild(f.planned(t, f.stored(t, f.peer.name)), f.peer)
	failsWith(t, h, err, f.repository, "repositories")
	h.cfg.Repositories = []string{t.TempDir()}
	_, err = h.rebuild(f.planned(t, f.stored(t, f.peer.name)), f.peer)
	failsWith(t, h, err, f.repository, "repositories", "no repository there")
}

// testRepositoryAway: the snapshot's object is gone, after it was looked at.
func testRepositoryAway(t *testing.T, f *faults) {
	h := f.empty(t)
	broken := filepath.Join(t.TempDir(), "repository")
	copyFolder(t, f.repository, broken)
	h.cfg.Repositories = []string{broken}
	stored := f.stored(t, f.peer.name)
	stored.Base.Repository = "file://" + broken
	damage(t, broken, "snapshot")
	_, err := h.rebuild(f.planned(t, stored), f.peer)
	failsWith(t, h, err, "from the data of "+f.peer.name)
	r, err := h.rebuild(f.planned(t, stored, f.from(t, f.other.name)), f.peer, f.other)
	require.NoError(t, err)
	if len(r.Brought) != 1 || r.Brought[0].From != f.other.name {
		t.Errorf("%+v", r.Brought)
	}
}

// testNoRepositoryNeeded: a repository that does not answer, and a key that is missing,
// hold up no host that builds from members' data: neither is asked for.
func testNoRepositoryNeeded(t *testing.T, f *faults) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked := make(chan struct{})
	go func() {
		if c, err := silent.Accept(); err == nil {
			close(asked)
			_ = c.Close()
		}
	}()
	defer silent.Close()
	h := f.empty(t)
	h.cfg.Repositories = []string{"s3://bucket/prefix?region=x&endpoint=http://" + silent.Addr().String()}
	h.cfg.Identities = []string{"no key"}
	_, err = h.rebuild(f.planned(t, f.from(t, f.peer.name)), f.peer)
	require.NoError(t, err)
	select {
	case <-asked:
		t.Error("the repository was asked")
	default:
	}
	h = f.empty(t)
	h.cfg.Identities = []string{"no key"}
	_, err = h.rebuild(f.planned(t, f.stored(t, f.peer.name)), f.peer)
	failsWith(t, h, err, "identity-files")
}

// testOtherCluster: neither one nor the other cluster may be another than the
// plan's.
func testOtherCluster(t *testing.T, f *faults) {
	h := f.empty(t)
	plan := f.planned(t, f.from(t, f.peer.name))
	plan.New++
	_, err := h.rebuild(plan, f.peer)
	failsWith(t, h, err, plan.New.String(), "its token and its members give cluster "+(plan.New-1).String())
	plan = f.planned(t, f.from(t, f.peer.name))
	plan.Old++
	_, err = h.rebuild(plan, f.peer)
	failsWith(t, h, err, "is of cluster "+(plan.Old-1).String(), plan.Old.String())
}

// testOtherPlan: a plan that is not understood whole, or does not say all, is
// refused.
func testOtherPlan(t *testing.T, f *faults) {
	h := f.empty(t)
	good := f.planned(t, f.from(t, f.peer.name))
	for _, c := range []struct {
		change func(*RebuildPlan)
		want   string
	}{
		{func(p *RebuildPlan) { p.ID = "" }, "no ID"},
		{func(p *RebuildPlan) { p.ClusterToken = "" }, "no cluster token"},
		{func(p *RebuildPlan) { p.Old = p.New }, "want two that differ"},
		{func(p *RebuildPlan) { p.InitialCluster = "x=y" }, "want a URL"},
		{func(p *RebuildPlan) { p.Source.Index += 1000 }, "from the data of " + f.peer.name},
		{func(p *RebuildPlan) {
			p.InitialCluster = "another=http://10.0.0.1:2380"
			p.New, _ = restore.ClusterID(p.InitialCluster, p.ClusterToken)
		}, "is none of the plan's members"},
	} {
		plan := good
		plan.Source.Log = append([]sources.Piece(nil), good.Source.Log...)
		c.change(&plan)
		_, err := h.rebuild(plan, f.peer)
		failsWith(t, h, err, c.want)
	}
	_, err := h.operator(run1).Rebuild(t.Context(), good, nil)
	failsWith(t, h, err, "does not say where the data of "+f.peer.name+" lies")
}

// testOthersLeftovers: what another run gathered is removed, and what this one did before the
// machine was started anew, and nobody else's.
func testOthersLeftovers(t *testing.T, f *faults) {
	h := f.copied(t, 0).setAside(run1)
	mine := filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+run2+"@"+h.name)
	before := filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+run1+"-another0@"+h.name)
	others := filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+run2+"@other")
	require.NoError(t, errors.Join(os.MkdirAll(mine, 0o700), os.MkdirAll(before, 0o700), os.MkdirAll(others, 0o700)))
	_, err := h.rebuild(f.planned(t, f.from(t, f.peer.name)), f.peer)
	require.NoError(t, err)
	if left := h.leftovers(); len(left) != 1 || left[0] != others {
		t.Errorf("%v is left", left)
	}
}

func codeOf(err error) Code {
	var r *RefusedError
	if errors.As(err, &r) {
		return r.Refusal.Code
	}
	return ""
}
