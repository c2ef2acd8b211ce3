package restore

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
)

// TestEditChangesOnlyWhatItSays: keys, leases and users stay as they are, bit
// for bit, in databases of every page size.
func TestEditChangesOnlyWhatItSays(t *testing.T) {
	for _, pageSize := range []int{0, 1024, 65536} {
		path := makeDB(t, dbOptions{
			keys: 300, valueSize: 500, pageSize: pageSize, clusterVersion: "3.6.0", storageVersion: "3.6.0", downgrade: "3.5.0",
			alarms: []*etcdserverpb.AlarmMember{{MemberID: 7, Alarm: etcdserverpb.AlarmType_NOSPACE}},
		})
		before := buckets(t, path)
		p := plan(t, three(open(t, path), t.TempDir()))
		out, err := edit{cluster: clusterOf(p), bump: p.Bump}.apply(path)
		require.NoError(t, err)
		after := buckets(t, path)
		want := []snapshot.Alarm{{MemberID: 7, Type: "NOSPACE"}}
		if !reflect.DeepEqual(out.alarms, want) || !reflect.DeepEqual(p.ClearAlarms, want) || len(after["alarm"]) > 0 {
			t.Errorf("alarms %v, planned %v, left %v", out.alarms, p.ClearAlarms, after["alarm"])
		}
		if out.downgrade != "3.5.0" || out.clusterVersion.String() != "3.6.0" || after["cluster"]["clusterVersion"] != "3.6.0" || after["cluster"]["downgrade"] != "" {
			t.Errorf("cluster: %+v, %v", out, after["cluster"])
		}
		var members []string
		for _, v := range after["members"] {
			var m struct{ Name string }
			require.NoError(t, json.Unmarshal([]byte(v), &m))
			members = append(members, m.Name)
		}
		if len(members) != 3 || len(after["members_removed"]) != 0 {
			t.Errorf("members %v, removed %v", members, after["members_removed"])
		}
		key := string(mvcc.RevToBytes(mvcc.Revision{Main: p.Bump.NewRevision}, mvcc.NewRevBytes()))
		if v, ok := after["key"][key]; !ok || v != "" || after["meta"]["scheduledCompactRev"] != key {
			t.Errorf("the bump is not there: %q %v %x", v, ok, after["meta"]["scheduledCompactRev"])
		}
		if after["meta"]["consistent_index"] != "\x00\x00\x00\x00\x00\x00\x00\x03" || after["meta"]["term"] != "\x00\x00\x00\x00\x00\x00\x00\x01" ||
			!strings.Contains(after["meta"]["confState"], `"auto_leave":false`) {
			t.Errorf("position: %q", after["meta"])
		}
		delete(after["key"], key)
		for _, name := range []string{"alarm", "members", "members_removed", "meta", "cluster"} {
			delete(before, name)
			delete(after, name)
		}
		if !reflect.DeepEqual(before, after) {
			t.Errorf("page size %d: the edit changed something else", pageSize)
		}
	}
}

// TestEditOfGarbage: a database that makes no sense is an error, never a panic
// or a fault, and is reported as damage of the image.
func TestEditOfGarbage(t *testing.T) {
	good, err := os.ReadFile(makeDB(t, dbOptions{keys: 500, valueSize: 500, clusterVersion: "3.5.0"}))
	require.NoError(t, err)
	page := os.Getpagesize()
	found := 0
	for at := 2; at < min(len(good)/page, 100); at++ {
		bad := append([]byte(nil), good...)
		for i := range page {
			bad[at*page+i] = 0xff
		}
		path := filepath.Join(t.TempDir(), "db")
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		p := &Plan{ID: "x", Bump: &Bump{From: 501, NewRevision: 1000}}
		if _, err := (edit{bump: p.Bump}).apply(path); err != nil {
			found++
			var damaged *snapshot.DamagedError
			if err = editError(fakeImage{Image: open(t, path)}, err); !errors.As(err, &damaged) {
				t.Errorf("page %d: %v is no DamagedError", at, err)
			}
		}
	}
	if found == 0 {
		t.Error("no damaged page was noticed")
	}
	path := filepath.Join(t.TempDir(), "cut")
	require.NoError(t, os.WriteFile(path, good[:3*page], 0o600))
	_, err = (edit{}).apply(path)
	require.Error(t, err, "a database that is cut short is edited")
}

// The list is lent in the meta page that counts, whichever that is.
func TestFreelistIsLentWhereItCounts(t *testing.T) {
	good, err := os.ReadFile(makeDB(t, dbOptions{keys: 50, valueSize: 50, clusterVersion: "3.5.0"}))
	require.NoError(t, err)
	for torn := range 2 {
		path := filepath.Join(t.TempDir(), "db")
		data := slices.Clone(good)
		data[torn*os.Getpagesize()+pageHeader]++
		require.NoError(t, os.WriteFile(path, data, 0o600))
		meta := func() boltfile.Meta {
			f, err := os.Open(path)
			require.NoError(t, err)
			defer f.Close()
			info, err := f.Stat()
			require.NoError(t, err)
			db, err := boltfile.Open(t.Context(), f, info.Size())
			require.NoError(t, err)
			return db.Meta()
		}
		want := meta()
		require.Equal(t, boltfile.NoFreelist, want.Freelist)
		require.NoError(t, lendFreelist(path))
		want.Freelist = want.Pages
		want.Pages++
		require.Equal(t, want, meta(), "without meta page %d", torn)
	}
}
