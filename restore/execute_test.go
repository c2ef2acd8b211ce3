package restore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/snapshot"
)

// three is a request for three members below dir.
func three(image snapshot.Image, dir string) Request {
	return Request{
		Image:          image,
		InitialCluster: "m1=http://127.0.0.1:12380,m2=http://127.0.0.1:22380,m3=http://127.0.0.1:32380",
		DataDir:        filepath.Join(dir, "{name}"),
	}
}

func plan(t testing.TB, req Request) *Plan {
	t.Helper()
	p, err := NewPlan(t.Context(), req)
	require.NoError(t, err)
	return p
}

func execute(t testing.TB, req Request, opts ExecOptions) *Result {
	t.Helper()
	res, err := Execute(t.Context(), plan(t, req), req.Image, opts)
	require.NoError(t, err)
	return res
}

func names(t testing.TB, dir string) string {
	t.Helper()
	list, err := entries(dir)
	require.NoError(t, err)
	return strings.Join(list, " ")
}

// TestPromise1NothingElseIsLeft: after a restore each data directory holds a
// member and its record, and nothing is left beside or inside.
func TestPromise1NothingElseIsLeft(t *testing.T) {
	for _, engine := range []string{EngineRequorum, EngineEtcdutl} {
		t.Run(engine, func(t *testing.T) {
			dir := t.TempDir()
			req := three(small(t), dir)
			req.Engine = engine
			res := execute(t, req, ExecOptions{})
			if got := names(t, dir); got != "m1 m2 m3" {
				t.Errorf("the folder holds %s", got)
			}
			for _, m := range res.Members {
				if got := names(t, m.DataDir); got != "member" {
					t.Errorf("%s holds %s", m.DataDir, got)
				}
				if got := names(t, filepath.Join(m.DataDir, "member")); got != "requorum-restored.json snap wal" {
					t.Errorf("%s/member holds %s", m.DataDir, got)
				}
				if got := names(t, filepath.Join(m.DataDir, "member", "wal")); got != firstSegment {
					t.Errorf("%s/member/wal holds %s", m.DataDir, got)
				}
				if info, err := os.Stat(filepath.Join(m.DataDir, "member", "snap", "db")); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("db: %v %v", info.Mode(), err)
				}
			}
		})
	}
}

func buckets(t testing.TB, path string) map[string]map[string]string {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	out := map[string]map[string]string{}
	err = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("%s: %v", path, err)
		}
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			m := map[string]string{}
			out[string(name)] = m
			return b.ForEach(func(k, v []byte) error { m[string(k)] = string(v); return nil })
		})
	})
	require.NoError(t, err)
	return out
}
