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

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/store/client"
)

// Manifest describes one full snapshot. It is written after everything that it
// describes, so a backup exists once its manifest does. docs/format.md has
// every field. describe fills them in.
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
	// Attachments is the tar of files that were stored with the snapshot.
	Attachments *StoredObject `json:"attachments,omitempty"`
	// DatabaseSHA256 is the sum over the database alone, as etcd appended it
	// to the stream; Object.RawSHA256 covers the database and this trailer.
	DatabaseSHA256 string `json:"database_sha256"`
	// Facts were read out of the stored bytes through the repository, after
	// they were written.
	Facts Facts `json:"facts"`

	Source  Source   `json:"source"`
	Barrier *Barrier `json:"barrier,omitempty"`
	HashKV  HashKV   `json:"hashkv"`
	Keys    Keys     `json:"keys"`
	// ReadBack says that the whole object was read back and matched before
	// this manifest was written.
	ReadBack bool `json:"read_back"`

	// Stored is the manifest's own object, of which ReadManifest made it; zero in
	// one that was not read.
	Stored StoredManifest `json:"-"`
}

// StoredManifest is a manifest's object as it is stored.
type StoredManifest struct {
	Size     int64
	SHA256   string
	SignedBy *signing.SignedBy // nil: nobody did
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
	case m.Format > manifestFormat:
		return nil, fmt.Errorf("%s in %s: %w: kind %q, format %d; this one reads kind %q, format %d", name, repo, ErrNewerFormat, m.Kind, m.Format, KindFull, manifestFormat)
	case m.Format != manifestFormat || m.Kind != KindFull:
		return nil, &DamagedError{Object: name + " in " + repo.String(), Offset: -1, Err: fmt.Errorf("kind %q, format %d, which no version writes", m.Kind, m.Format)}
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
	m.Stored = StoredManifest{Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:]), SignedBy: repo.SignedBy(data)}
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
	maxListed     = 256  // members, alarms, recipients
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
	if n := max(len(m.Facts.Members), len(m.Facts.Alarms), len(m.Object.Recipients)); n > maxListed {
		return fmt.Errorf("it lists %d members, alarms or recipients: more than %d", n, maxListed)
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

// describe makes the manifest from the bytes that the repository gives back. A member
// whose bytes are not what the cluster had committed is a memberError.
func (t *taking) describe(ctx context.Context, member client.MemberStatus, up *upload, id string, started time.Time) (*Manifest, error) {
	m := t.manifestOf(up, id, started)
	m.Source = Source{ClusterID: ID(member.ClusterID), Endpoint: member.Endpoint, MemberID: ID(member.MemberID), Name: member.Name,
		Version: member.Version, IsLeader: member.IsLeader, IsLearner: member.IsLearner}
	m.Barrier = &Barrier{RaftIndex: t.barrier.Index, RaftTerm: t.barrier.Term, Revision: t.barrier.Revision,
		Member: ID(t.barrier.Member.MemberID)}
	if err := t.readFacts(ctx, up, m); err != nil {
		return nil, err
	}
	if err := t.checkFacts(member, m.Facts); err != nil {
		return nil, &memberError{err}
	}
	// Counting and hashing go by the revision of the stored bytes.
	m.HashKV, m.Keys = t.askHash(ctx, member, m.Facts), t.askKeys(ctx, member, m.Facts)
	return m, nil
}

// manifestOf returns the manifest with all that does not depend on the snapshot's origin
// and content.
func (t *taking) manifestOf(up *upload, id string, started time.Time) *Manifest {
	return &Manifest{
		Format: manifestFormat, Kind: KindFull, ID: id, Timeline: t.timeline.ID, Tool: t.Tool,
		Started: started, Labels: t.Labels,
		Object:         StoredObject{Name: up.name, Encoding: up.codec.Description()},
		DatabaseSHA256: up.sum,
	}
}

// readFacts fills in what the stored bytes say, and reads all of them if that
// was asked for.
func (t *taking) readFacts(ctx context.Context, up *upload, m *Manifest) error {
	t.Progress(Progress{Phase: "check"})
	stored := OpenStored(t.repo, m, up.identity()...)
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
	counter := CountBytes(func(n int64) {
		t.Progress(Progress{Phase: "read back", Done: n, Total: stored.Size()})
	})
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
	if f.RaftIndex < t.barrier.Index {
		return fmt.Errorf("%w: it ends at raft index %d, the cluster was at %d", ErrStale, f.RaftIndex, t.barrier.Index)
	}
	if f.Revision < t.barrier.Revision {
		return fmt.Errorf("%w: it ends at revision %d, the cluster was at %d", ErrStale, f.Revision, t.barrier.Revision)
	}
	known := func(m Member) bool {
		return slices.ContainsFunc(t.survey.Membership, func(s *etcdserverpb.Member) bool { return ID(s.ID) == m.ID })
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

// keepManifest makes the backup exist. If that fails, the repository is left without the
// backup's objects.
func (t *taking) keepManifest(ctx context.Context, m *Manifest) error {
	m.Finished = t.Now().UTC()
	if err := t.writeManifest(ctx, m); err != nil {
		if err := t.settleManifest(m, fmt.Errorf("write the manifest: %w", err)); err != nil {
			return err
		}
	}
	t.result.Manifest, t.result.NewTimeline = m, t.fresh
	return nil
}

// settleManifest finds out what became of a manifest whose writing failed. The
// objects may go only when no manifest names them for sure: one without its object
// would be a backup that cannot be restored.
func (t *taking) settleManifest(m *Manifest, failure error) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	name := repository.ManifestName(t.timeline.ID, m.ID)
	there, err := ReadManifest(ctx, t.repo, t.timeline.ID, m.ID)
	counts, errCounts := t.repo.Counts(ctx, name)
	switch {
	case err == nil && there.Object.Name == m.Object.Name: // no two write one object: it is this one
		return nil
	case err == nil:
		failure = fmt.Errorf("backup %s in %s: %w, as %s", m.ID, t.repo, ErrTaken, there.Object.Name)
	case errCounts == nil && !counts: // so it is not this one's
		failure = fmt.Errorf("%w; %s is there and is %w: remove it", failure, name, repository.ErrUnsigned)
	case errors.Is(err, sinks.ErrNotFound) && !errors.Is(failure, sinks.ErrUncertain):
	default:
		return fmt.Errorf("%w; whether backup %s counts is not known: look with 'requorum list' once the repository answers", failure, m.ID)
	}
	return errors.Join(failure, t.removeBackup(m))
}

func (t *taking) writeManifest(ctx context.Context, m *Manifest) error {
	if t.fresh {
		t.timeline.Created = m.Finished
		opened, err := t.repo.EnsureTimeline(ctx, t.timeline)
		if err != nil {
			return err
		}
		t.timeline = opened
	}
	// A host that stood still for a day finds its object gone: who prunes takes one
	// without a manifest for abandoned.
	if _, err := t.Sink.Stat(ctx, m.Object.Name); err != nil {
		return fmt.Errorf("look whether the snapshot is still there: %w", err)
	}
	if err := m.checkBounds(); err != nil {
		return err
	}
	return t.repo.WriteDocument(ctx, repository.ManifestName(t.timeline.ID, m.ID), m)
}

// CountBytes returns a writer that reports how many bytes were written to it, and throws
// them away.
func CountBytes(report func(int64)) io.Writer { return &progressWriter{report: report} }

type progressWriter struct {
	n      int64
	report func(int64)
}

func (w *progressWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	w.report(w.n)
	return len(p), nil
}
