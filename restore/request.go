package restore

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/coreos/go-semver/semver"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// Engines that build a member's files.
const (
	// EngineRequorum writes all members in one pass over the image.
	EngineRequorum = "requorum"
	// EngineEtcdutl goes through etcd's own etcdutl library, one member after
	// the other.
	EngineEtcdutl = "etcdutl"
)

// Request is what a user asks for; NewPlan turns it into a Plan.
type Request struct {
	// Image is what to restore from.
	Image snapshot.Image
	// Repository is the URL, without secrets, that the image was found in, and
	// BackupID its name there. Both are empty for a file.
	Repository, BackupID string
	// Timeline is the backup's there, and is kept in the plan: the new cluster's
	// history goes on from it.
	Timeline repository.TimelineID `json:",omitzero"`
	// Target is the point that was asked for, in the user's words, where the
	// image is one that was rebuilt or chosen for it; Notes are sentences about
	// it for the plan.
	Target string
	Notes  []string

	// InitialCluster lists the members as etcd's flag does:
	// "m1=http://a:2380,m2=http://b:2380". A name may come more than once.
	InitialCluster string
	// Learners are the names in it that do not vote.
	Learners []string
	// ClusterToken is the new cluster's token. A fresh random one when empty,
	// so that members of the old cluster cannot mistake the new one for theirs.
	ClusterToken string

	// DataDir and WALDir are paths, "{name}" stands for the member's name.
	// Without a WALDir the WAL lies in the data directory.
	DataDir, WALDir string
	// SetAside allows to move what an existing data or WAL directory holds
	// aside, within it, on every host. Otherwise such a directory is refused.
	// ExecOptions allow it to one host.
	SetAside bool
	// Owner of the new files. Nil: as found on the directory that is replaced,
	// and who runs this otherwise.
	Owner *Owner

	// Bump says how the revision is to be bumped.
	Bump BumpRequest
	// AuthOff turns authentication off in the result, for when root's password is lost.
	AuthOff bool
	// HighestKnownRevision is the highest revision that anything in the lineage
	// of this image is known to have reached; 0 when nothing is known.
	HighestKnownRevision int64

	// TargetVersion is the oldest etcd that must be able to start the result,
	// such as "3.5". Empty: any that the image allows.
	TargetVersion string
	// Engine is EngineRequorum (also when empty) or EngineEtcdutl.
	Engine string

	// Path, if not empty, asks for one plain snapshot file instead of data directories,
	// for k3s, RKE2, Talos and others that own their directories and restore from a file.
	// All that is about members counts for nothing then.
	Path string

	// Only names the one member that this host builds, without sharing a plan
	// with the others. Every host must then come to the same cluster by itself:
	// ClusterToken and Bump have to be given. Hosts that share a plan leave it
	// empty here and name their member in ExecOptions.
	Only string
}

// check refuses what cannot be planned, before anything is read.
func (r *Request) check() error {
	switch {
	case r.Image == nil:
		return errors.New("restore: no image to restore from")
	case r.Path != "":
		return r.Bump.check()
	case r.InitialCluster == "":
		return errors.New("restore: no members: give --initial-cluster name=peer-url,…")
	case r.DataDir == "":
		return errors.New("restore: no data directory: give --data-dir, with {name} in it for several members on one host")
	}
	switch r.Engine {
	case "", EngineRequorum, EngineEtcdutl:
	default:
		return fmt.Errorf("restore: unknown engine %q: use %s or %s", r.Engine, EngineRequorum, EngineEtcdutl)
	}
	for _, t := range []struct{ flag, path string }{{"--data-dir", r.DataDir}, {"--wal-dir", r.WALDir}} {
		if err := checkTemplate(t.flag, t.path); err != nil {
			return err
		}
	}
	if r.Only != "" {
		var missing []string
		if r.ClusterToken == "" {
			missing = append(missing, "the cluster token (--initial-cluster-token; member and cluster IDs come from it)")
		}
		if r.Bump.Mode == BumpAuto {
			missing = append(missing, "the revision bump, or that there is none (--bump-revision; members with different revisions are corrupt)")
		}
		if len(missing) > 0 {
			return fmt.Errorf("restore: building only member %s without a shared plan needs %s: give them on every host alike, or write a plan (--plan) on one host and read it on all",
				r.Only, strings.Join(missing, " and "))
		}
	}
	return r.Bump.check()
}

// checkTemplate refuses a mistyped {name}, which would be a path that all
// members share.
func checkTemplate(flag, path string) error {
	rest := strings.ReplaceAll(path, "{name}", "")
	start := strings.Index(rest, "{")
	if start < 0 {
		return nil
	}
	end := strings.Index(rest[start:], "}")
	if end < 0 {
		return nil
	}
	return fmt.Errorf("restore: %s %s: only {name} stands for something, %s does not", flag, path, rest[start:start+end+1])
}

// DefaultBump is added to the highest known revision when a restore goes back.
// Clients may have seen revisions that no backup and no log reached; a cluster
// at 10,000 writes a second needs 27 hours to use this many.
const DefaultBump = 1_000_000_000

// BumpMode says how the revision of the new cluster is chosen.
type BumpMode string

const (
	// BumpAuto goes DefaultBump beyond the highest known revision.
	BumpAuto BumpMode = ""
	// BumpBy adds BumpRequest.Amount to the image's revision.
	BumpBy BumpMode = "by"
	// BumpOff keeps the image's revision. It is right only when no client saw a
	// later one, and refused where a later one is known.
	BumpOff BumpMode = "off"
	// BumpNone keeps the image's revision, which is known to be the last that any
	// client saw: a recovery that lost nothing.
	BumpNone BumpMode = "none"
)

// BumpRequest asks for a bump of the revision.
type BumpRequest struct {
	Mode   BumpMode `json:"mode,omitempty"`
	Amount int64    `json:"amount,omitempty"` // for BumpBy
}

func (b BumpRequest) check() error {
	switch {
	case b.Mode != BumpAuto && b.Mode != BumpBy && b.Mode != BumpOff && b.Mode != BumpNone:
		return fmt.Errorf("restore: unknown bump mode %q", b.Mode)
	case b.Mode == BumpBy && b.Amount <= 0:
		return fmt.Errorf("restore: a revision bump of %d: want a positive amount, or none at all", b.Amount)
	case b.Mode != BumpBy && b.Amount != 0:
		return fmt.Errorf("restore: a revision bump of %d was given without asking for it", b.Amount)
	}
	return nil
}

// Bump is how the revision rises, and why. All revisions up to the new one are
// marked compacted: a watch or a list from the past ends with "compacted", and
// its client lists anew.
type Bump struct {
	// Mode is how it was asked for.
	Mode BumpMode `json:"mode,omitempty"`
	// From is the image's own revision, HighestKnown that of its lineage (0 if
	// unknown). NewRevision is From + Amount.
	From          int64  `json:"from"`
	HighestKnown  int64  `json:"highest_known,omitempty"`
	Amount        int64  `json:"amount"`
	NewRevision   int64  `json:"new_revision"`
	MarkCompacted bool   `json:"mark_compacted"`
	Reason        string `json:"reason"`
}

// planBump decides the bump, nil for none, and what the user should know of it.
func planBump(req BumpRequest, facts snapshot.Facts, highest int64) (*Bump, []string, error) {
	if req.Mode == BumpNone {
		return nil, nil, nil
	}
	if req.Mode == BumpOff && highest > facts.Revision {
		return nil, nil, badRequest("restore: the image's revision %d cannot be kept (--bump-revision off): its lineage is known to have reached %d, so clients that saw a later revision would keep watches that stay silent and caches that stay wrong: --bump-revision auto goes beyond it",
			facts.Revision, highest)
	}
	if req.Mode == BumpOff {
		note := "the revision is not bumped, as asked: clients that saw a revision after " +
			fmt.Sprint(facts.Revision) + " keep watches that stay silent and caches that stay wrong; restart all of them"
		return nil, []string{note}, nil
	}
	b := &Bump{Mode: req.Mode, From: facts.Revision, HighestKnown: highest, MarkCompacted: true}
	base := max(facts.Revision, highest)
	if req.Mode == BumpBy {
		b.Amount, b.Reason = req.Amount, "asked for by amount"
		base = facts.Revision
	} else {
		b.Amount = base - facts.Revision + DefaultBump
		b.Reason = "clients may have seen revisions after " + fmt.Sprint(base)
		if highest > facts.Revision {
			b.Reason = fmt.Sprintf("the cluster may have gone on to revision %d, and %s", highest, b.Reason)
		}
	}
	if req.Mode == BumpBy && req.Amount <= highest-facts.Revision {
		return nil, nil, badRequest("restore: --bump-revision %d bumps revision %d to %d, and its lineage is known to have reached %d: clients would miss changes: give more than %d, or --bump-revision auto",
			req.Amount, facts.Revision, facts.Revision+req.Amount, highest, highest-facts.Revision)
	}
	if base > math.MaxInt64-max(b.Amount, DefaultBump) {
		return nil, nil, badRequest("restore: revision %d cannot be bumped by %d: it would overflow: give --bump-revision with a smaller amount", facts.Revision, b.Amount)
	}
	b.NewRevision = facts.Revision + b.Amount
	return b, nil, nil
}

// Timeline describes the new cluster's history, and where it leaves the one that it
// was restored from; without Created. It is false for a plan whose image did not come
// from a timeline of a repository.
func (p *Plan) Timeline() (repository.Timeline, bool) {
	if p.Source.Timeline.N == 0 {
		return repository.Timeline{}, false
	}
	facts := p.Source.Facts
	t := repository.Timeline{
		ID:     repository.TimelineID{ClusterID: uint64(p.ClusterID), N: 1},
		Reason: fmt.Sprintf("restored from backup %s by plan %s", p.Source.BackupID, p.ID),
		Parent: &repository.Branch{Timeline: p.Source.Timeline, Backup: p.Source.BackupID, RaftIndex: facts.RaftIndex, Revision: facts.Revision},
	}
	if r := p.Source.Recipe; r != nil {
		t.Reason = fmt.Sprintf("restored from backup %s and the log to raft index %d by plan %s", p.Source.BackupID, r.Index, p.ID)
		if r.Chain != nil {
			t.Parent.Chain = r.Chain.String()
		}
	}
	for _, m := range p.Members {
		t.Members = append(t.Members, m.Name)
	}
	return t, true
}

// Origin says what a member's cluster was restored from: by the record that a
// restore leaves in the data directory, where it is of that cluster.
func Origin(dataDir string, clusterID uint64) (repository.Timeline, bool) {
	r, err := readRecord(filepath.Join(dataDir, "member", recordName))
	if err != nil || r == nil || uint64(r.Plan.ClusterID) != clusterID {
		return repository.Timeline{}, false
	}
	return r.Plan.Timeline()
}

// oldestBuilt is the oldest etcd that the directories built here are made for.
const oldestBuilt = "3.5"

// planTarget says which is the oldest etcd that can start the result, and
// refuses a target below it. A database is served by the storage version that
// it was written in and newer ones: 3.6 and 3.7 refuse a newer one, 3.5 would
// boot it and break at its next upgrade.
func planTarget(target string, facts snapshot.Facts) (oldest string, err error) {
	v := mustVersion(oldestBuilt)
	for what, s := range map[string]string{"storage": facts.StorageVersion, "cluster": facts.ClusterVersion} {
		if s == "" {
			continue
		}
		w, err := parseVersion(s)
		if err != nil {
			return "", fmt.Errorf("restore: the image's %s version: %w", what, err)
		}
		if v.LessThan(w) {
			v = w
		}
	}
	oldest = fmt.Sprintf("%d.%d", v.Major, v.Minor)
	if target == "" {
		return oldest, nil
	}
	t, err := parseVersion(target)
	if err != nil {
		return "", badRequest("restore: --target-version: %w", err)
	}
	if !t.LessThan(v) {
		return oldest, nil
	}
	next := fmt.Sprintf("start the result with etcd %[1]s, then lower the running cluster by one minor version at a time (etcdctl downgrade enable %[2]d.%[3]d, restart each member with etcd %[2]d.%[3]d); etcdutl migrate is not enough, because it leaves the cluster version as it is", oldest, v.Major, v.Minor-1)
	if facts.StorageVersion == "" && t.LessThan(mustVersion(oldestBuilt)) {
		next = "write a snapshot file (--to-snapshot) and restore it with that version's own etcdctl"
	}
	return "", fmt.Errorf("restore: etcd %d.%d from an image of %s: %w: %s", t.Major, t.Minor, oldest, ErrTooOld, next)
}

// parseVersion takes "3.5", "3.5.1" and "v3.5"; only major and minor count.
func parseVersion(s string) (semver.Version, error) {
	full := strings.TrimPrefix(s, "v")
	if strings.Count(full, ".") == 1 {
		full += ".0"
	}
	v, err := semver.NewVersion(full)
	if err != nil {
		return semver.Version{}, fmt.Errorf("%q is no version such as 3.6: %w", s, err)
	}
	return semver.Version{Major: v.Major, Minor: v.Minor}, nil
}

func mustVersion(s string) semver.Version {
	v, err := parseVersion(s)
	if err != nil {
		panic(err)
	}
	return v
}

// ClusterID is the ID that a cluster of these members and this token gets: the
// same that a plan has. initialCluster is as in Request.
func ClusterID(initialCluster, token string) (snapshot.ID, error) {
	cluster, err := newCluster(initialCluster, token, nil)
	if err != nil {
		return 0, &RequestError{err}
	}
	return snapshot.ID(cluster.ID()), nil
}

// Errors to distinguish, wrapped with the object, the place and the next step.
var (
	// ErrExists says that a directory or file is there already and that the
	// request does not allow to set it aside.
	ErrExists = errors.New("exists already")
	// ErrInUse says that a running etcd, or another restore, holds a directory.
	ErrInUse = errors.New("is in use")
	// ErrNoSpace says that a file system has not the room that the plan needs.
	ErrNoSpace = errors.New("not enough space")
	// ErrTooOld says that the target version cannot serve the image.
	ErrTooOld = errors.New("the target version is older than the data")
	// ErrOtherImage says that a plan was made for another image.
	ErrOtherImage = errors.New("the plan was made for another image")
	// ErrUnfinished says that a run ended when members were in place already, and
	// that the same request completes it.
	ErrUnfinished = errors.New("run again to complete it")
	// ErrCannot says that the etcdutl engine has no way to do what is asked.
	ErrCannot = errors.New("the etcdutl engine cannot do this")
)

// RequestError says that a request contradicts itself, lacks something, or asks
// for what must not be: it has to be put in other words. No data was changed.
type RequestError struct{ Err error }

func (e *RequestError) Error() string { return e.Err.Error() }
func (e *RequestError) Unwrap() error { return e.Err }

// badRequest is a RequestError with these words.
func badRequest(format string, args ...any) error {
	return &RequestError{fmt.Errorf(format, args...)}
}
