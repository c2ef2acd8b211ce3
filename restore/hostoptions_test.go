package restore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// TestPromise3SetAsideOnOneHost: one plan, and each host says for itself whether
// its directory may be set aside and whom the new files belong to.
func TestPromise3SetAsideOnOneHost(t *testing.T) {
	dir := t.TempDir()
	req := three(small(t), dir)
	write(t, filepath.Join(dir, "m1", "member", "snap", "db"), oldContent)
	write(t, filepath.Join(dir, "m1", "member", "wal", firstSegment), oldContent)
	p := plan(t, req)
	_, err := p.Check(t.Context(), ExecOptions{Only: "m1"})
	require.ErrorIs(t, err, ErrExists, "without leave")
	leave := ExecOptions{Only: "m1", SetAside: true}
	if ready, err := p.Check(t.Context(), leave); err != nil || len(ready.Members[0].SetAside) != 1 {
		t.Errorf("with leave: %+v %v", ready, err)
	}
	if os.Geteuid() == 0 {
		leave.Owner = &Owner{4000, 4001}
	}
	res, err := Execute(t.Context(), p, req.Image, leave)
	if err != nil || len(res.Members[0].SetAside) != 1 || oldFiles(t, dir) != 2 {
		t.Fatalf("with leave: %+v %v, %d files are left", res, err, oldFiles(t, dir))
	}
	if leave.Owner != nil {
		info, err := os.Stat(filepath.Join(dir, "m1", "member", "snap", "db"))
		require.NoError(t, err)
		if o := ownerOf(info); *o != *leave.Owner {
			t.Errorf("the new files belong to %v", o)
		}
	}
	if p.SetAside || p.Owner != nil {
		t.Error("the plan itself changed")
	}
	write(t, filepath.Join(dir, "m2", "member", "x"), oldContent)
	_, err = Execute(t.Context(), p, req.Image, ExecOptions{Only: "m2"})
	require.ErrorIs(t, err, ErrExists, "another host, without leave")
}

// TestEarlierRunForAnotherOwner: members that are in place are not completed
// for a run that wants them to belong to another user.
func TestEarlierRunForAnotherOwner(t *testing.T) {
	storetest.NeedRoot(t)
	image := makeDB(t, dbOptions{keys: 20, clusterVersion: "3.5.0"})
	dir := t.TempDir()
	l := layout{}
	if killed, out := runChild(t, childJob{Image: image, Request: l.prepare(t, dir, image), KillAt: 8}); !killed {
		t.Fatal(out)
	}
	req := l.prepareAgain(dir)
	req.Image = open(t, image)
	p := plan(t, req)
	_, err := p.Check(t.Context(), ExecOptions{Owner: &Owner{4000, 4001}})
	require.ErrorIs(t, err, ErrExists, "for another owner")
	// Leave to set aside is no other request: nothing is left to be set aside.
	if ready, err := p.Check(t.Context(), ExecOptions{SetAside: true}); err != nil || ready.Completes == nil {
		t.Errorf("%+v %v", ready, err)
	}
}

// TestSetAsideNeedsTheWALDirectory: an old member whose log lies elsewhere is
// not replaced by one with the log inside, as its etcd would look there.
func TestSetAsideNeedsTheWALDirectory(t *testing.T) {
	for _, c := range []struct {
		files   []string
		refused bool
	}{
		{[]string{"member/snap/db"}, true},
		{[]string{"member/snap/db", "member/wal/" + firstSegment}, false},
		{[]string{"member/notes.txt"}, false},
		{[]string{"notes.txt"}, false},
	} {
		dir := t.TempDir()
		data := filepath.Join(dir, "data")
		for _, file := range c.files {
			write(t, filepath.Join(data, file), oldContent)
		}
		wal := filepath.Join(dir, "wal")
		write(t, filepath.Join(wal, firstSegment), oldContent)
		before := tree(t, dir)
		req := Request{Image: small(t), InitialCluster: "m1=http://127.0.0.1:1", DataDir: data, SetAside: true}
		_, err := Execute(t.Context(), plan(t, req), req.Image, ExecOptions{})
		if !c.refused {
			if err != nil {
				t.Errorf("%v: %v", c.files, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "--wal-dir") {
			t.Errorf("%v: %v", c.files, err)
		}
		sameTree(t, "refused", tree(t, dir), before)
		req.WALDir = wal
		if res := execute(t, req, ExecOptions{}); len(res.Members[0].SetAside) != 2 {
			t.Errorf("with --wal-dir: set aside %v", res.Members[0].SetAside)
		}
		// What was restored so has no wal folder either.
		req.WALDir = ""
		if _, err := plan(t, req).Check(t.Context(), ExecOptions{}); err == nil || !strings.Contains(err.Error(), "--wal-dir") {
			t.Errorf("over a restored member: %v", err)
		}
	}
}
