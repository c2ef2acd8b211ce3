package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// faults are hosts whose data was set aside, and the database that peer has built of its.
type faults struct {
	*lost
	peer, other *testHost
	image       *Image
}

// built is the plan by which other hosts get the database of peer.
func (f *faults) built(t *testing.T) RebuildPlan {
	t.Helper()
	plan := f.planned(t, f.from(t, f.peer.name))
	plan.Image = f.image
	return plan
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
	first, err := f.peer.rebuild(f.planned(t, f.from(t, f.peer.name)))
	require.NoError(t, err)
	if f.image = first.Image; f.image == nil || f.image.From != f.peer.name || f.image.Size == 0 || len(f.peer.leftovers()) > 0 {
		t.Fatalf("%+v", first)
	}
	for _, c := range []struct {
		name string
		test func(*testing.T, *faults)
	}{
		{"SeparateLog", testSeparateLog},
		{"NotItsOwn", testNotItsOwn},
		{"PeerAway", testPeerAway},
		{"PeerDiesMidway", testPeerDiesMidway},
		{"PeerStalls", testPeerStalls},
		{"FlippedByte", testFlippedByte},
		{"OtherCluster", testOtherCluster},
		{"OtherPlan", testOtherPlan},
		{"NoRoom", testNoRoom},
		{"RoomForTheRest", testRoomForTheRest},
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

// testSeparateLog: a log in a directory of its own is found on this host, set aside or
// surveyed, and the new one is built there.
func testSeparateLog(t *testing.T, f *faults) {
	h := f.copied(t, 2)
	dir, wal := h.cfg.Member.DataDir, filepath.Join(t.TempDir(), "wal")
	require.NoError(t, os.Rename(filepath.Join(dir, "member", "wal"), wal))
	h.cfg.Member.WALDir = wal
	h.setAside(run1)
	seen := *f.lost
	seen.survey(t, run1, f.peer, h)
	plan := seen.planned(t, seen.from(t, h.name))
	a, err := h.rebuild(plan)
	require.NoError(t, err)
	require.NoError(t, restore.CheckStartable(dir, wal))
	again, err := h.rebuild(plan)
	if err != nil || !again.Earlier || again.Image.ID != a.Image.ID {
		t.Errorf("again: %+v %v", again, err)
	}
	plan.Image = a.Image
	b, err := f.empty(t).rebuild(plan, h)
	if err != nil || !reflect.DeepEqual(state(a), state(b)) {
		t.Errorf("%v and %v, %v", state(a), state(b), err)
	}
}

// testNotItsOwn: a host builds of its own data only.
func testNotItsOwn(t *testing.T, f *faults) {
	h := f.empty(t)
	_, err := h.rebuild(f.planned(t, f.from(t, f.peer.name)), f.peer)
	failsWith(t, h, err, "made of the data of ["+f.peer.name+"]")
	plan := f.planned(t, f.from(t, f.peer.name))
	plan.Source.Base.Owner = sources.ArchivePrefix + "7-1"
	_, err = f.other.rebuild(plan)
	failsWith(t, h, err, "made of the data of")
}

// testPeerAway: the reason is reported.
func testPeerAway(t *testing.T, f *faults) {
	h := f.empty(t)
	_, err := h.rebuild(f.built(t), &testHost{name: f.peer.name})
	failsWith(t, h, err, "copy the database from "+f.peer.name, "it is away")
}

// testPeerDiesMidway: in the middle of the copy; what came is not copied again.
func testPeerDiesMidway(t *testing.T, f *faults) {
	dead := false
	peer := f.peer.after(1<<20, false, func(context.Context, io.Writer, []byte) (int, error) {
		dead = true
		return 0, errors.New("its line was cut")
	})
	h := f.empty(t)
	_, err := h.rebuild(f.built(t), peer)
	failsWith(t, h, err, "copy the database from "+peer.name, "its line was cut")
	if !dead {
		t.Error("it did not die midway")
	}
	r, err := h.rebuild(f.built(t), f.peer)
	require.NoError(t, err)
	whole, err := f.empty(t).rebuild(f.built(t), f.peer)
	if err != nil || r.Brought[0].Bytes >= whole.Brought[0].Bytes || !reflect.DeepEqual(state(r), state(whole)) {
		t.Errorf("%+v and %+v, %v", r, whole, err)
	}
	// Of another image nothing is taken.
	again := f.empty(t)
	_, err = again.rebuild(f.built(t), f.peer.after(1<<20, false, func(context.Context, io.Writer, []byte) (int, error) { return 0, errors.New("cut") }))
	require.Error(t, err)
	other := f.built(t)
	image := *f.image
	image.ID, other.Image = "another", &image
	r, err = again.rebuild(other, f.peer)
	if err != nil || r.Brought[0].Bytes != whole.Brought[0].Bytes {
		t.Errorf("%+v, %v", r, err)
	}
}

// testPeerStalls: a host that sends nothing any more is not waited for.
func testPeerStalls(t *testing.T, f *faults) {
	h := f.empty(t)
	if _, err := f.peer.reader().As(run1).Files(t.Context(), ""); err != nil { // its process runs
		t.Fatal(err)
	}
	h.stall = time.Second
	stalls := f.peer.after(1<<20, false, func(ctx context.Context, _ io.Writer, _ []byte) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	_, err := h.rebuild(f.built(t), stalls)
	failsWith(t, h, err, "nothing came for 1s")
	h.stall = time.Minute
	_, err = h.rebuild(f.built(t), f.peer)
	require.NoError(t, err)
}

// testFlippedByte: what was changed on the wire is copied again, and where it is
// always changed, not used.
func testFlippedByte(t *testing.T, f *faults) {
	h := f.empty(t)
	bad := f.peer.after(200<<10, true, flip)
	_, err := h.rebuild(f.built(t), bad)
	failsWith(t, h, err, "copy the database from "+bad.name)
	flipped := false
	some := f.peer.after(1<<20, false, func(ctx context.Context, w io.Writer, p []byte) (int, error) {
		if !flipped {
			flipped = true
			return flip(ctx, w, p)
		}
		return w.Write(p)
	})
	_, err = h.rebuild(f.built(t), some)
	require.NoError(t, err)
	if !flipped {
		t.Error("nothing was changed on the wire")
	}
	same(t, f.peer, h)
}

// same compares the databases of two hosts' members.
func same(t *testing.T, a, b *testHost) {
	t.Helper()
	var sums []snapshot.HashKV
	for _, h := range []*testHost{a, b} {
		hash, err := h.operator(run1).Hash(t.Context(), "", 0)
		require.NoError(t, err)
		sums = append(sums, hash)
	}
	if sums[0] != sums[1] || sums[0].Hash == 0 {
		t.Errorf("%+v", sums)
	}
}

// flip passes data on with a bit changed.
func flip(_ context.Context, w io.Writer, p []byte) (int, error) {
	p = bytes.Clone(p)
	p[len(p)/2] ^= 1
	return w.Write(p)
}

// testOtherCluster: neither one nor the other cluster may be another than the
// plan's.
func testOtherCluster(t *testing.T, f *faults) {
	h := f.copied(t, 0).setAside(run1)
	plan := f.built(t)
	plan.New++
	_, err := h.rebuild(plan, f.peer)
	failsWith(t, h, err, plan.New.String(), "its token and its members give cluster "+(plan.New-1).String())
	plan = f.planned(t, f.from(t, f.other.name))
	plan.Source.Base = sources.Base{Owner: h.name, Revision: 1}
	plan.Source.Log = []sources.Piece{{Owner: h.name, First: 1, Last: plan.Source.Index}}
	plan.Old++
	_, err = h.rebuild(plan)
	failsWith(t, h, err, "is of cluster "+(plan.Old-1).String(), plan.Old.String())
}

// testOtherPlan: a plan that is not understood whole, or does not say all, is
// refused.
func testOtherPlan(t *testing.T, f *faults) {
	h := f.empty(t)
	good := f.built(t)
	for _, c := range []struct {
		change func(*RebuildPlan)
		want   string
	}{
		{func(p *RebuildPlan) { p.ID = "" }, "no ID"},
		{func(p *RebuildPlan) { p.ClusterToken = "" }, "no cluster token"},
		{func(p *RebuildPlan) { p.Old = p.New }, "want two that differ"},
		{func(p *RebuildPlan) { p.InitialCluster = "x=y" }, "want a URL"},
		{func(p *RebuildPlan) { p.Image = &Image{ID: "../x", From: f.peer.name, Size: 1} }, "none that requorum made"},
		{func(p *RebuildPlan) { p.Image = &Image{ID: "x", From: f.peer.name, Size: 1 << 60} }, "none that requorum made"},
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
}

// testOthersLeftovers: what another run gathered is removed, and what this one did before the
// machine was started anew, and nobody else's.
func testOthersLeftovers(t *testing.T, f *faults) {
	h := f.copied(t, 0).setAside(run1)
	mine := filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+run2+"@"+h.name)
	before := filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+run1+"-another0@"+h.name)
	others := filepath.Join(h.cfg.Member.DataDir, restore.BringPrefix+run2+"@other")
	require.NoError(t, errors.Join(os.MkdirAll(mine, 0o700), os.MkdirAll(before, 0o700), os.MkdirAll(others, 0o700)))
	_, err := h.rebuild(f.built(t), f.peer)
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
