package snapshot_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// FuzzManifest reads a catalogue with a manifest that somebody else wrote, sealed as
// ours are: it is a backup of its own name and timeline, or it is named as damaged, and
// the backup beside it is there either way.
func FuzzManifest(f *testing.F) {
	id, beside := backupID(1), backupID(2)
	var written []byte
	newPlanted(f).backup(id, func(m *snapshot.Manifest) {
		m.Labels = map[string]string{"at": "noon"}
		m.Facts.Members = []snapshot.Member{{Name: "m1", PeerURLs: []string{"http://127.0.0.1:2380"}}}
		written, _ = json.Marshal(m)
	})
	f.Add(written)
	f.Add([]byte(`{"format":1,"kind":"full","object":{"name":"../x","raw_size":-1}}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, document []byte) {
		p := newPlanted(t)
		p.backup(beside, func(*snapshot.Manifest) {})
		sealed := document
		if json.Valid(document) {
			if s, err := repository.Seal(json.RawMessage(bytes.TrimSpace(document))); err == nil {
				sealed = s
			}
		}
		p.put(repository.SnapshotName(p.timeline, id, 1, false), []byte("x"))
		p.put(repository.ManifestName(p.timeline, id), sealed)
		c, err := snapshot.ReadCatalog(t.Context(), p.repo)
		require.NoError(t, err, "one document makes the whole catalogue unreadable")
		if len(c.Manifests)+len(c.Damaged) != 2 {
			t.Fatalf("%d backups and %d damaged ones, want two together", len(c.Manifests), len(c.Damaged))
		}
		there := false
		for _, m := range c.Manifests {
			there = there || m.ID == beside
			if m.Timeline != p.timeline || m.ID != beside && m.ID != id {
				t.Errorf("%s of %s: no such name is stored", m.ID, m.Timeline)
			}
			if _, err := json.Marshal(m); err != nil {
				t.Errorf("%s cannot be shown: %v", m.ID, err)
			}
		}
		if !there {
			t.Error("the backup beside it is gone")
		}
	})
}
