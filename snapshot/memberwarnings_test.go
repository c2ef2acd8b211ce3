package snapshot_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// What stops an upgrade from 3.5 to 3.6, or fills the database, is a warning; a healthy
// member has none.
func TestLocalMember_Warnings(t *testing.T) {
	for _, version := range storetest.Some("3.5", "3.6") {
		t.Run(version, func(t *testing.T) {
			c := storetest.Start(t, storetest.Options{Version: version})
			c.Fill(t, storetest.Load{Keys: 20})
			path := filepath.Join(c.Member(0).DataDir, "member", "snap", "db")
			m := &snapshot.LocalMember{Database: path}
			c.WriteOut(t, 0)
			require.Empty(t, m.Warnings(t.Context()), "of a running member")
			c.StopAll()
			require.Empty(t, m.Warnings(t.Context()))
			db, err := bbolt.Open(path, 0o600, nil)
			require.NoError(t, err)
			require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
				members := tx.Bucket([]byte("members"))
				id, row := members.Cursor().First()
				var fields map[string]any
				require.NoError(t, json.Unmarshal(row, &fields))
				fields["isLearner"] = true
				row, err := json.Marshal(fields)
				require.NoError(t, err)
				require.NoError(t, members.Put(id, row))
				require.NoError(t, members.Put([]byte("00000000000000aa"), []byte(`{"id":170,"name":"gone","peerURLs":["http://127.0.0.1:1"]}`)))
				return tx.Bucket([]byte("key")).Put(mvcc.RevToBytes(mvcc.Revision{Main: 6_000_000}, mvcc.NewRevBytes()), nil)
			}))
			require.NoError(t, db.Close())
			want := []string{"votes, and the database still has it as a learner", "(00000000000000aa) was removed, and is still in the database", "6000000 revisions since the last compaction"}
			if version != "3.5" {
				want = want[2:]
			}
			got := m.Warnings(t.Context())
			require.Len(t, got, len(want), "%q", got)
			for i, text := range want {
				require.True(t, strings.Contains(strings.Join(got, "\n"), text), "%d: %q", i, got)
			}
		})
	}
}
