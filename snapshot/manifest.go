package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
)

// Manifest describes one full snapshot. It is written after everything that it
// describes, so a backup exists once its manifest does. docs/format.md has
// every field.
type Manifest struct {
	Format   int                   `json:"format"`
	Kind     string                `json:"kind"` // "full"
	ID       string                `json:"id"`
	Timeline repository.TimelineID `json:"timeline"`
	Tool     string                `json:"tool"` // "requorum 1.2.3"
	Started  time.Time             `json:"started"`
	Finished time.Time             `json:"finished"`
	Labels   map[string]string     `json:"labels,omitempty"`

	// Object is the stored snapshot: its codecs, sizes and hashes.
	Object StoredObject `json:"object"`
	// Companions are files that were stored with the snapshot.
	Companions []Companion `json:"companions,omitempty"`
	// DatabaseSHA256 is the sum over the database alone, as etcd appended it
	// to the stream; Object.RawSHA256 covers the database and this trailer.
	DatabaseSHA256 string `json:"database_sha256"`
	// Facts were read out of the stored bytes through the repository, after
	// they were written.
	Facts Facts `json:"facts"`

	// Source of a synthetic full snapshot has a version, that of the members whose
	// log it was made from, and its base's cluster, and nothing else.
	Source  Source   `json:"source"`
	Barrier *Barrier `json:"barrier,omitempty"`
	// Synthesis is nil for a snapshot that was read from a member.
	Synthesis *Synthesis `json:"synthesis,omitempty"`
	HashKV    HashKV     `json:"hashkv"`
	Keys      Keys       `json:"keys"`
	// ReadBack tells that the whole object was read back and matched before
	// this manifest was written.
	ReadBack bool `json:"read_back"`

	// Stored is the manifest's own object, of which ReadManifest made it; zero in
	// one that was not read.
	Stored StoredManifest `json:"-"`
}

// StoredManifest is a manifest's object as it is stored.
type StoredManifest struct {
	Size   int64
	SHA256 string
}

// StoredObject is the object beside a manifest.
type StoredObject struct {
	Name string `json:"name"`
	codec.Encoding
}

// Source is the member that a snapshot was read from.
type Source struct {
	// ClusterID is that of the timeline, or the manifest is damaged; zero in those
	// that older versions wrote.
	ClusterID ID     `json:"cluster_id,omitzero"`
	Endpoint  string `json:"endpoint,omitempty"`
	MemberID  ID     `json:"member_id,omitzero"`
	Name      string `json:"name,omitempty"`
	Version   string `json:"version"`
	IsLeader  bool   `json:"is_leader"`
	IsLearner bool   `json:"is_learner"`
}

// Barrier is the point that the cluster, with its quorum, had reached before
// the snapshot was read. The snapshot's bytes reach it as well.
type Barrier struct {
	RaftIndex uint64 `json:"raft_index"`
	RaftTerm  uint64 `json:"raft_term"`
	Revision  int64  `json:"revision"`
	Member    ID     `json:"member_id"`
	Method    string `json:"method"`
}

// HashKV is etcd's hash of the key space.
type HashKV struct {
	// Obtained says how the hash was come by, or why there is none.
	Obtained          string `json:"obtained"`
	Hash              uint32 `json:"hash,omitempty"`
	Revision          int64  `json:"revision,omitempty"` // that the hash goes up to
	CompactedRevision int64  `json:"compacted_revision,omitempty"`
}

// Keys is the number of live keys at the snapshot's revision.
type Keys struct {
	// Obtained says how the count was come by, or why there is none.
	Obtained string `json:"obtained"`
	Count    *int64 `json:"count,omitempty"`
}

// manifestFormat is the number of the manifest's format.
const manifestFormat = 1

// KindFull is the kind of a full snapshot's manifest.
const KindFull = "full"

// ReadManifest reads the manifest of one backup and checks that it is the one
// that belongs there. A manifest that is not as it was written is a
// *DamagedError.
func ReadManifest(ctx context.Context, repo *repository.Repository, t repository.TimelineID, id string) (*Manifest, error) {
	name := repository.ManifestName(t, id)
	m := &Manifest{}
	data, err := repo.ReadSealed(ctx, name, m)
	switch {
	case errors.Is(err, repository.ErrAltered):
		return nil, &DamagedError{Object: name + " in " + repo.String(), Offset: -1, Err: err}
	case err != nil:
		return nil, err
	case m.Format != manifestFormat || m.Kind != KindFull:
		return nil, fmt.Errorf("%s in %s: %w: kind %q, format %d; this one reads kind %q, format %d", name, repo, ErrNewerFormat, m.Kind, m.Format, KindFull, manifestFormat)
	case m.ID != id || m.Timeline != t:
		return nil, &DamagedError{Object: name + " in " + repo.String(), Offset: -1, Err: fmt.Errorf("it is the manifest of backup %s of timeline %s: it was moved or copied here", m.ID, m.Timeline)}
	case m.Source.ClusterID != 0 && uint64(m.Source.ClusterID) != t.ClusterID:
		return nil, &DamagedError{Object: name + " in " + repo.String(), Offset: -1, Err: fmt.Errorf("its snapshot is of cluster %s, and timeline %s of another one: with the log there it would make a cluster that never was", m.Source.ClusterID, t)}
	case !ownObject(m):
		return nil, &DamagedError{Object: name + " in " + repo.String(), Offset: -1, Err: fmt.Errorf("it describes the object %s, which is not its own", m.Object.Name)}
	}
	if err := m.checkCompanionNames(); err != nil {
		return nil, &DamagedError{Object: name + " in " + repo.String(), Offset: -1, Err: err}
	}
	sum := sha256.Sum256(data)
	m.Stored = StoredManifest{Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	return m, nil
}

// ownObject tells whether a manifest names an object of its own backup: of
// whichever attempt.
func ownObject(m *Manifest) bool {
	t, id, _, encrypted, err := repository.ParseSnapshotName(m.Object.Name)
	return err == nil && t == m.Timeline && id == m.ID && encrypted == m.Object.Encrypted()
}
