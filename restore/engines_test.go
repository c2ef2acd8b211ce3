package restore

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/store/storetest"
)

// TestEnginesAgree restores the same plan with etcd's library and with ours.
// The results are equal, apart from what ours does on purpose:
//
//   - it writes the members' confState into the meta bucket, where etcdutl
//     leaves that of the old cluster,
//   - it writes the cluster version into the .snap file, for 3.5 to see.
func TestEnginesAgree(t *testing.T) {
	for _, source := range storetest.Some(storetest.Versions()...) {
		for _, bump := range []BumpMode{BumpAuto, BumpOff} {
			t.Run(source+" bump "+string(bump), func(t *testing.T) {
				t.Parallel()
				dir := fastDir(t)
				req := three(open(t, realImage(t, source).path), filepath.Join(dir, "ours"))
				req.WALDir = filepath.Join(dir, "ourswal", "{name}")
				req.ClusterToken, req.Bump.Mode = "token", bump
				ours := execute(t, req, ExecOptions{})
				req.DataDir, req.WALDir, req.Engine = filepath.Join(dir, "theirs", "{name}"), filepath.Join(dir, "theirswal", "{name}"), EngineEtcdutl
				theirs := execute(t, req, ExecOptions{})
				if ours.RevisionAfter != theirs.RevisionAfter {
					t.Errorf("revisions %d and %d", ours.RevisionAfter, theirs.RevisionAfter)
				}
				for i := range ours.Members {
					compareDatabases(t, ours.Members[i], theirs.Members[i])
					compareLogs(t, ours.Members[i], theirs.Members[i])
				}
			})
		}
	}
}

func compareDatabases(t *testing.T, ours, theirs MemberResult) {
	t.Helper()
	a := buckets(t, filepath.Join(ours.DataDir, "member", "snap", "db"))
	b := buckets(t, filepath.Join(theirs.DataDir, "member", "snap", "db"))
	if !strings.Contains(a["meta"]["confState"], "voters") || strings.Contains(a["meta"]["confState"], "learners") {
		t.Errorf("confState %q", a["meta"]["confState"])
	}
	delete(a["meta"], "confState")
	delete(b["meta"], "confState")
	for name := range a {
		if !reflect.DeepEqual(a[name], b[name]) && name != "members" {
			t.Errorf("%s: bucket %s differs: %d and %d keys", ours.Name, name, len(a[name]), len(b[name]))
		}
	}
	for id, v := range a["members"] { // the order of JSON fields is free
		var x, y map[string]any
		if json.Unmarshal([]byte(v), &x) != nil || json.Unmarshal([]byte(b["members"][id]), &y) != nil || !reflect.DeepEqual(x, y) {
			t.Errorf("member %s: %s and %s", id, v, b["members"][id])
		}
	}
	if len(a) != len(b) || len(a["members"]) != len(b["members"]) {
		t.Errorf("%d and %d buckets, %d and %d members", len(a), len(b), len(a["members"]), len(b["members"]))
	}
}

func compareLogs(t *testing.T, ours, theirs MemberResult) {
	t.Helper()
	type log struct {
		metadata, state string
		entries         []string
		snaps           []string
	}
	read := func(dir string) (l log) {
		w, err := wal.OpenForRead(zap.NewNop(), dir, &walpb.Snapshot{})
		require.NoError(t, err)
		defer w.Close()
		metadata, state, entries, err := w.ReadAll()
		require.NoError(t, err)
		l.metadata, l.state = string(metadata), state.String()
		for _, e := range entries {
			l.entries = append(l.entries, e.String())
		}
		snaps, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
		require.NoError(t, err)
		for _, s := range snaps {
			if s.ConfState != nil {
				s.ConfState.AutoLeave = nil // explicit in ours, as 3.5 and 3.6 write it
			}
			l.snaps = append(l.snaps, s.String())
		}
		return l
	}
	if a, b := read(ours.WALDir), read(theirs.WALDir); !reflect.DeepEqual(a, b) {
		t.Errorf("%s: the logs differ:\n%+v\n%+v", ours.Name, a, b)
	}
	const name = "0000000000000001-0000000000000003.snap"
	a, err := snap.Read(zap.NewNop(), filepath.Join(ours.DataDir, "member", "snap", name))
	require.NoError(t, err)
	b, err := snap.Read(zap.NewNop(), filepath.Join(theirs.DataDir, "member", "snap", name))
	require.NoError(t, err)
	var x, y map[string]any
	if json.Unmarshal(a.Data, &x) != nil || json.Unmarshal(b.Data, &y) != nil {
		t.Fatal("the .snap file holds no v2 store")
	}
	stripVolatile(x)
	stripVolatile(y)
	root := func(m map[string]any) map[string]any {
		return m["Root"].(map[string]any)["Children"].(map[string]any)["0"].(map[string]any)["Children"].(map[string]any)
	}
	delete(root(x), "version")
	if !reflect.DeepEqual(root(x), root(y)) {
		t.Errorf("%s: the members in the .snap files differ:\n%v\n%v", ours.Name, root(x), root(y))
	}
	a.Metadata.ConfState.AutoLeave = nil
	if !proto.Equal(a.Metadata, b.Metadata) {
		t.Errorf("%s: .snap files: %v and %v", ours.Name, a.Metadata, b.Metadata)
	}
}

// stripVolatile removes the indexes, which follow from the order of a map.
func stripVolatile(v any) {
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	delete(m, "CreatedIndex")
	delete(m, "ModifiedIndex")
	for _, child := range m {
		stripVolatile(child)
	}
}

// TestMembersHaveTheSameDatabase: the files of all members are equal, byte for
// byte.
func TestMembersHaveTheSameDatabase(t *testing.T) {
	req := three(small(t), t.TempDir())
	res := execute(t, req, ExecOptions{})
	var first []byte
	for i, m := range res.Members {
		b, err := os.ReadFile(filepath.Join(m.DataDir, "member", "snap", "db"))
		require.NoError(t, err)
		if i == 0 {
			first = b
		} else if !bytes.Equal(first, b) {
			t.Errorf("the database of %s is not that of %s", m.Name, res.Members[0].Name)
		}
	}
}
