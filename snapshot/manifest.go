package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
)

// Manifest describes one full snapshot. It is written after everything that it
// describes, so a backup exists once its manifest does. docs/format.md has
// every field. describe fills them in for a snapshot that is read from a member,
// describeImage (stored.go) for a synthetic one.
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
	// Attachments are files that were stored with the snapshot.
	Attachments []Attachment `json:"attachments,omitempty"`
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
	// ReadBack says that the whole object was read back and matched before
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
	case errors.Is(err, repository.ErrAltered) && m.Format <= manifestFormat:
		return nil, &DamagedError{Object: name + " in " + repo.String(), Offset: -1, Err: err}
	case err != nil && m.Format <= manifestFormat:
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
	if err := errors.Join(m.checkAttachments(), m.checkBounds()); err != nil {
		return nil, &DamagedError{Object: name + " in " + repo.String(), Offset: -1, Err: err}
	}
	sum := sha256.Sum256(data)
	m.Stored = StoredManifest{Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	return m, nil
}

// ownObject reports whether a manifest names an object of its own backup: of
// whichever attempt.
func ownObject(m *Manifest) bool {
	t, id, _, encrypted, err := repository.ParseSnapshotName(m.Object.Name)
	return err == nil && t == m.Timeline && id == m.ID && encrypted == m.Object.Encrypted()
}

// Bounds of a manifest, beside those of every document.
const (
	maxNumber     = 1 << 53 // of indexes, terms, revisions and bytes: sums of a few do not overflow
	maxLabels     = 64
	maxLabelKey   = 128  // bytes
	maxLabelValue = 1024 // bytes
	maxLabelBytes = 8192 // of all labels: what else a manifest holds has its place, too
	maxListed     = 256  // members, alarms, attachments, recipients
)

// ValidLabels refuses labels that a manifest cannot have.
func ValidLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%d labels, more than the %d that a backup can have", len(labels), maxLabels)
	}
	total := 0
	for k, v := range labels {
		total += len(k) + len(v)
		switch {
		case total > maxLabelBytes:
			return fmt.Errorf("the labels have more than %d bytes together, which is what a backup can have", maxLabelBytes)
		case k == "" || len(k) > maxLabelKey || len(v) > maxLabelValue:
			return fmt.Errorf("label %.40q: want 1 to %d bytes, and a value of at most %d", k, maxLabelKey, maxLabelValue)
		case !printable(k) || !printable(v):
			return fmt.Errorf("label %.40q: control characters, and bytes that are no UTF-8, are not allowed", k)
		}
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// checkBounds refuses a manifest that nobody writes: it would take more memory than
// its bytes show.
func (m *Manifest) checkBounds() error {
	if n := max(len(m.Facts.Members), len(m.Facts.Alarms), len(m.Attachments), len(m.Object.Recipients)); n > maxListed {
		return fmt.Errorf("it lists %d members, alarms, attachments or recipients: more than %d", n, maxListed)
	}
	f := m.Facts
	if n := max(f.RaftIndex, f.RaftTerm, uint64(f.Revision), uint64(f.CompactedRevision), uint64(m.Object.StoredSize)); n > maxNumber {
		return fmt.Errorf("it has the number %d, as an index, a term, a revision or a size: no cluster gets as far", n)
	}
	return ValidLabels(m.Labels)
}

// ID is etcd's ID of a member or a cluster. As text it is 16 hexadecimal
// digits, as in etcdctl's tables and etcd's own log.
type ID uint64

func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText writes the 16 hexadecimal digits.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads hexadecimal digits, as MarshalText and etcdctl write
// them.
func (id *ID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil {
		return fmt.Errorf("ID %q is not a hexadecimal number of 64 bits", text)
	}
	*id = ID(n)
	return nil
}

// Synthesis says how a full snapshot was made that no member was read for: an
// earlier one, and the log after it. The snapshot's facts, sums and HashKV are
// those of the database that came out.
type Synthesis struct {
	// Base is the backup that was begun from, BaseIndex its raft index, and
	// BaseDatabaseSHA256 its manifest's database_sha256.
	Base               string `json:"base"`
	BaseIndex          uint64 `json:"base_index"`
	BaseDatabaseSHA256 string `json:"base_database_sha256"`
	// Origin is the backup, read from a member, that the row of bases goes back
	// to, and Generation how many were made since: 1 where Base is that one.
	Origin     string `json:"origin"`
	Generation int    `json:"generation"`

	// Entries is how many entries of the log were replayed, and ArchiveChain the
	// archive's chain value at the snapshot's raft index, empty where it has none.
	Entries      uint64 `json:"entries"`
	ArchiveChain string `json:"archive_chain,omitempty"`

	// Observed is when a live member was first seen at the snapshot's raft index;
	// zero where none was. When the snapshot was made says nothing of that.
	Observed time.Time `json:"observed,omitzero"`

	// CheckpointHashesEqual is how many hashes that live members served were compared and
	// are equal, StampsPassed how many could not be compared.
	CheckpointHashesEqual  int `json:"stamps_equal"`
	CheckpointHashesPassed int `json:"stamps_passed"`

	// How leases were replayed.
	MinLeaseTTL        time.Duration `json:"min_lease_ttl_nanoseconds"`
	PersistCheckpoints bool          `json:"persist_checkpoints,omitempty"`
}

// Synthetic reports whether the snapshot was made without reading a member.
func (m *Manifest) Synthetic() bool { return m.Synthesis != nil }

// MadeFrom says for people where the snapshot came from: a member's name, or ID,
// or "synthetic from" the backup that it was made from.
func (m *Manifest) MadeFrom() string {
	switch {
	case m.Synthetic():
		return "synthetic from " + m.Synthesis.Base
	case m.Source.Name != "":
		return m.Source.Name
	}
	return m.Source.MemberID.String()
}

// describe makes each target's manifest from the bytes that its repository
// gives back. A repository that gives other bytes back has failed; a member
// whose bytes are not what the cluster had committed is a memberError.
func (t *taking) describe(ctx context.Context, member client.MemberStatus, up *upload, id string, started time.Time) error {
	t.Progress(Progress{Phase: "check"})
	key := up.identity()
	// Counting and hashing go by the revision of the stored bytes.
	var hash HashKV
	var keys Keys
	asked := false
	for i, target := range up.targets {
		if target.err != nil {
			continue
		}
		m := &Manifest{
			Format: manifestFormat, Kind: KindFull, ID: id, Timeline: target.timeline.ID, Tool: t.Tool,
			Started: started, Labels: t.Labels,
			Object:         StoredObject{Name: up.names[i], Encoding: up.codec.Description()},
			DatabaseSHA256: up.sum,
			Source: Source{ClusterID: ID(member.ClusterID), Endpoint: member.Endpoint, MemberID: ID(member.MemberID), Name: member.Name,
				Version: member.Version, IsLeader: member.IsLeader, IsLearner: member.IsLearner},
			Barrier: &Barrier{RaftIndex: t.barrier.Index, RaftTerm: t.barrier.Term, Revision: t.barrier.Revision,
				Member: ID(t.barrier.Member.MemberID), Method: t.barrier.Method},
		}
		stored := OpenStored(target.repo, m, key...)
		if target.err = t.readFacts(ctx, stored, m); target.err != nil {
			target.err = errors.Join(target.err, removeObject(target, m.Object.Name))
			continue
		}
		if err := t.checkFacts(member, m.Facts); err != nil {
			return &memberError{err}
		}
		if !asked {
			hash, keys, asked = t.askHash(ctx, member, m.Facts), t.askKeys(ctx, member, m.Facts), true
		}
		m.HashKV, m.Keys = hash, keys
		target.manifest = m
	}
	return t.anyLeft()
}

// readFacts fills in what the stored bytes say, and reads all of them if that
// was asked for.
func (t *taking) readFacts(ctx context.Context, stored *Stored, m *Manifest) error {
	r, err := stored.ReaderAt(ctx)
	if err != nil {
		return fmt.Errorf("read the stored snapshot back: %w", err)
	}
	if m.Facts, err = ReadFacts(ctx, r, stored.Size()); err != nil {
		return fmt.Errorf("read the stored snapshot back: %w", stored.damage(err))
	}
	if !t.ReadBack {
		return nil
	}
	all, err := stored.Open(ctx)
	if err != nil {
		return fmt.Errorf("read the stored snapshot back: %w", err)
	}
	counter := &progressWriter{report: func(n int64) {
		t.Progress(Progress{Phase: "read back", Done: n, Total: stored.Size()})
	}}
	_, err = io.Copy(counter, all)
	if err := errors.Join(err, all.Close()); err != nil {
		return fmt.Errorf("read the stored snapshot back: %w", err)
	}
	m.ReadBack = true
	return nil
}

// checkFacts holds the stored bytes against the barrier, whatever the member
// said of itself: an address may lead to another member each time.
func (t *taking) checkFacts(member client.MemberStatus, f Facts) error {
	// 3.4 keeps consistent_index with changes of keys only, so its bytes can
	// show an index below the one they hold; the revision is exact.
	if t.barrier.Method == client.MethodMemberList && f.RaftIndex < t.barrier.Index {
		return fmt.Errorf("%w: it ends at raft index %d, the cluster was at %d", ErrStale, f.RaftIndex, t.barrier.Index)
	}
	if f.Revision < t.barrier.Revision {
		return fmt.Errorf("%w: it ends at revision %d, the cluster was at %d", ErrStale, f.Revision, t.barrier.Revision)
	}
	known := func(m Member) bool {
		return slices.ContainsFunc(t.survey.Membership, func(s client.MemberInfo) bool { return ID(s.ID) == m.ID })
	}
	if len(f.Members) > 0 && !slices.ContainsFunc(f.Members, known) {
		return fmt.Errorf("the snapshot that %s sent is of another cluster: none of its members (%s, …) is one of this cluster", member.Endpoint, f.Members[0].ID)
	}
	return nil
}

func (t *taking) askHash(ctx context.Context, member client.MemberStatus, f Facts) HashKV {
	if !t.HashKV {
		return HashKV{Obtained: "not asked for: it makes the member pause"}
	}
	h, err := t.Client.HashKV(ctx, member, f.Revision)
	if err != nil {
		return HashKV{Obtained: "not known: " + err.Error()}
	}
	return HashKV{
		Obtained: "from member " + memberName(member) + " after the snapshot",
		Hash:     h.Hash, Revision: f.Revision, CompactedRevision: h.CompactRevision,
	}
}

func (t *taking) askKeys(ctx context.Context, member client.MemberStatus, f Facts) Keys {
	n, err := t.Client.CountKeys(ctx, member, f.Revision)
	if err != nil {
		return Keys{Obtained: "not known: " + err.Error()}
	}
	return Keys{Obtained: "counted by member " + memberName(member) + " after the snapshot", Count: &n}
}

// writeManifests makes the backup exist in every repository that holds the
// object. A repository where that fails is left without the object.
func (t *taking) writeManifests(ctx context.Context) {
	finished := t.Now().UTC()
	t.forTargets(func(target *target) error {
		target.manifest.Finished = finished
		err := target.writeManifest(ctx, finished)
		if err == nil {
			return nil
		}
		return target.settleManifest(fmt.Errorf("write the manifest: %w", err))
	})
}

// settleManifest finds out what became of a manifest whose writing failed. The
// object may go only when no manifest names it for sure: one without its object
// would be a backup that cannot be restored.
func (t *target) settleManifest(failure error) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	m := t.manifest
	name := repository.ManifestName(t.timeline.ID, m.ID)
	there, err := ReadManifest(ctx, t.repo, t.timeline.ID, m.ID)
	counts, errCounts := t.repo.Counts(ctx, name)
	switch {
	case err == nil && there.Object.Name == m.Object.Name: // no two write one object: it is this one
		return nil
	case err == nil:
		t.manifest = nil
		return errors.Join(fmt.Errorf("backup %s in %s: %w, as %s", m.ID, t.sink, ErrTaken, there.Object.Name), removeBackup(t, m))
	case errCounts == nil && !counts: // so it is not this one's
		t.manifest = nil
		return errors.Join(fmt.Errorf("%w; %s is there and is %w: remove it", failure, name, repository.ErrForeign), removeBackup(t, m))
	case errors.Is(err, sinks.ErrNotFound) && !errors.Is(failure, sinks.ErrUncertain):
		t.manifest = nil
		return errors.Join(failure, removeBackup(t, m))
	}
	t.manifest = nil
	return fmt.Errorf("%w; whether backup %s counts is not known: look with 'requorum list' once the repository answers", failure, m.ID)
}

func (t *target) writeManifest(ctx context.Context, now time.Time) error {
	if t.fresh {
		t.timeline.Created = now
		opened, err := t.repo.EnsureTimeline(ctx, t.timeline)
		if err != nil {
			return err
		}
		t.timeline = opened
	}
	// A host that stood still for a day finds its object gone: who prunes takes one
	// without a manifest for abandoned.
	if _, err := t.sink.Stat(ctx, t.manifest.Object.Name); err != nil {
		return fmt.Errorf("look whether the snapshot is still there: %w", err)
	}
	if err := t.manifest.checkBounds(); err != nil {
		return err
	}
	return t.repo.WriteDocument(ctx, repository.ManifestName(t.timeline.ID, t.manifest.ID), t.manifest)
}

// progressWriter counts bytes and throws them away.
type progressWriter struct {
	n      int64
	report func(int64)
}

func (w *progressWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	w.report(w.n)
	return len(p), nil
}
