// Package engine replays a raft log onto a database of etcd.
//
// An Engine has etcd's own applier, of the version that go.mod pins, so that a
// replayed database is the one that the member had: every key, revision, lease, user,
// alarm and member, byte for byte. A Bulk does the same many times as fast, and leaves to
// an Engine what it does not know.
//
// It promises:
//
//  1. After the same entries, every bucket holds what the member's holds, but
//     for what is listed below.
//  2. Nothing is skipped in silence: a kind of entry, a field or a value that
//     this version does not know is an *EntryError with ErrNewer, and so is
//     what would have made a member panic.
//  3. Time does not pass: no lease expires but by an entry that revokes it, and
//     what a checkpoint says of a lease's remaining time stays.
//  4. Indexes follow each other without a hole, and an entry moves the revision
//     by one at most.
//  5. After Close the file holds the state after one entry, and says which; after an
//     entry that cannot be applied it is of no use.
//
// Its caller owes:
//
//  1. A scratch copy of a database that was checked: a damaged one is an error
//     where etcd notices, but may end the process.
//  2. Entries that were committed, from the log of the same cluster.
//  3. Nobody else at the file. Nothing is synced: whoever keeps the file does that.
//
// # What is not replicated
//
// These parts of a member's database do not come from the log, or are written
// in another way by another version. A comparison must leave them out:
//
//   - meta/consistent_index and meta/term: a member's file may lag behind what
//     it has applied.
//   - meta/confState: written with the first membership change after the file
//     was made.
//   - meta/storageVersion: each member from 3.6 on writes it by itself.
//   - meta/scheduledCompactRev, meta/finishedCompactRev and the rows of the key
//     bucket up to the compacted revision, while a member has not finished a
//     compaction: it is finished here before the next entry is applied.
//   - the tombstones at the compacted revision, which etcd up to 3.5.15
//     deletes and later ones keep, as this does.
//   - cluster/clusterVersion and cluster/downgrade where a version did not
//     write them.
//   - the time left of a lease that has a checkpoint, from members before 3.6:
//     see SourceSettings.PersistCheckpoints; and the time that a short lease was
//     granted for, see SourceSettings.MinLeaseTTL.
//   - what was permitted or refused by a member older than 3.5.33, 3.6.14 or 3.7.1
//     with authentication on or no space left, and by its rules only: see
//     SourceSettings.SourceVersion. A log of members of several such versions (a rolling
//     upgrade) cannot be distinguished, nor could the members agree on it.
//   - whether a member is a learner, in the bucket members, once its peer URLs were
//     changed: 3.6 up to 3.6.11 forgot that there (confState has it).
//   - the v2 store of 3.5, which is not in the database: of v2 requests
//     only those are applied that change the database too, which are a member's
//     attributes and the cluster's version. Kind names the others ("v2-put" and
//     so on) for who wants to know.
//
// # Memory and speed
//
// etcd's index takes about 400 bytes a key, that of a Bulk 24; all else is bounded.
// Entries are read and decoded in goroutines beside the one that applies them.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3alarm"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/etcdserver/cindex"
	"go.etcd.io/etcd/server/v3/lease"
	serverstorage "go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"github.com/requorum/requorum/store/safedir"
)

// SourceSettings say how the members were configured whose log is replayed.
type SourceSettings struct {
	// MinLeaseTTL is what the member raises shorter leases to: 1.5 times its
	// election timeout, rounded up to seconds. 0 is DefaultMinLeaseTTL.
	MinLeaseTTL time.Duration `json:"min_lease_ttl_nanoseconds,omitempty"`

	// PersistCheckpoints is for the log of a cluster below 3.6 whose members ran
	// with --experimental-enable-lease-checkpoint-persist. From 3.6 on all
	// members do that, and so does the replay.
	PersistCheckpoints bool `json:"persist_checkpoints,omitempty"`

	// SourceVersion is that of the member which the log is from, such as "3.5.21".
	// Versions before 3.5.33, 3.6.14 and 3.7.1 permitted or refused some requests
	// otherwise while authentication was on or no space was left. Empty is the newest.
	SourceVersion string `json:"source_version,omitempty"`
}

// Options say how to open a database.
type Options struct {
	SourceSettings

	// Logger gets etcd's own warnings and errors; nil drops them. Requests that
	// failed on the member fail here too, and are no reason for a line.
	Logger *slog.Logger

	// spoolBuffer is Bulk's; 0 is the constant: tests have few rows.
	spoolBuffer int
}

// DefaultMinLeaseTTL is what etcd raises shorter leases to at its default
// election timeout of 1 s: 1.5 times that, rounded up to seconds.
const DefaultMinLeaseTTL = 2 * time.Second

const (
	// compactionBatch is how many rows a compaction looks at before it lets
	// others write, and compactionPause how long it does: nobody waits here.
	compactionBatch = 10000
	compactionPause = time.Nanosecond
	// maxLearners is only looked at when a member is added, which was allowed.
	maxLearners = math.MaxInt32
	// lockTimeout is how long to wait for another process to close the file.
	lockTimeout = time.Second
	// bcryptCost is etcd's default. A log has the hashes of passwords, made already.
	bcryptCost = 10
)

// Open opens a database to replay onto: a member's db file or a full snapshot
// without its SHA-256, which is changed in place, so a copy. It builds etcd's
// index in memory, about 400 bytes a key. An empty file is the database of a
// cluster before its first entry; the path must exist.
//
// Where a compaction was scheduled and not finished, it is finished here.
func Open(ctx context.Context, path string, o Options) (*Engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := safedir.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening a database to replay onto: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("opening a database to replay onto: %s is no regular file", path)
	}
	if o.MinLeaseTTL == 0 {
		o.MinLeaseTTL = DefaultMinLeaseTTL
	}
	r := &Engine{path: path, broken: make(chan struct{})}
	if r.rules, err = rulesOf(o.SourceVersion); err != nil {
		return nil, err
	}
	if err := r.open(path, o); err != nil {
		return nil, fmt.Errorf("opening %s to replay onto: %w", path, errors.Join(err, r.abandon()))
	}
	return r, nil
}

// Has reports whether a key from key on, and before end, has a value; of a nil end, key
// itself.
func (r *Engine) Has(ctx context.Context, key, end []byte) (has bool, err error) {
	if r.closed {
		return false, ErrClosed
	}
	defer r.rescue(&err)
	found, err := r.kv.Range(ctx, key, end, mvcc.RangeOptions{Limit: 1})
	if err != nil {
		return false, err
	}
	return len(found.KVs) > 0, nil
}

// open puts etcd's parts together in the order in which they depend on each
// other: what a member does when it starts.
func (r *Engine) open(path string, o Options) (err error) {
	defer r.rescue(&err)
	lg := newLogger(o.Logger, r)
	r.logger = lg
	r.index = cindex.NewConsistentIndex(nil)
	r.hooks = serverstorage.NewBackendHooks(lg, r.index)
	r.backend = openBackend(path, lg, r.hooks)
	r.index.SetBackend(r.backend)
	schema.CreateMetaBucket(r.backend.BatchTx())
	r.applied, r.term = schema.ReadConsistentIndex(r.backend.ReadTx())

	r.cluster = membership.NewCluster(lg, membership.WithMaxLearners(maxLearners))
	r.cluster.SetBackend(schema.NewMembershipBackend(lg, r.backend))
	r.cluster.UnsafeLoad()
	if err := r.loadVoters(); err != nil {
		return err
	}

	// It is never promoted: so it expires nothing.
	r.lessor = lease.NewLessor(lg, r.backend, r.cluster, lease.LessorConfig{
		MinLeaseTTL:       int64(math.Ceil(o.MinLeaseTTL.Seconds())),
		CheckpointPersist: o.PersistCheckpoints,
	})
	r.kv = mvcc.NewStore(lg, r.backend, r.lessor, mvcc.StoreConfig{
		CompactionBatchLimit: compactionBatch, CompactionSleepInterval: compactionPause,
	})
	if err := r.finishCompaction(); err != nil {
		return err
	}
	tokens, err := auth.NewTokenProvider(lg, "", nil, 0) // nobody logs in
	if err != nil {
		return err
	}
	r.auth = auth.NewAuthStore(lg, schema.NewAuthBackend(lg, r.backend), tokens, bcryptCost)
	if r.alarms, err = v3alarm.NewAlarmStore(lg, schema.NewAlarmBackend(lg, r.backend)); err != nil {
		return err
	}
	r.applier = apply.NewUberApplier(apply.ApplierOptions{
		Logger: lg, KV: r.kv, AlarmStore: r.alarms, AuthStore: r.auth, Lessor: r.lessor, Cluster: r.cluster,
		RaftStatus: status{r}, SnapshotServer: status{r}, ConsistentIndex: r.index, Backend: r.backend,
		TxnModeWriteWithSharedBuffer: true,
		// The quota is looked at before a request goes into the log. An entry over
		// it is applied all the same.
		QuotaBackendBytesCfg: -1,
		WarningApplyDuration: math.MaxInt64,
	})
	r.backend.SetTxPostLockInsideApplyHook(r.advanceIndex)
	r.lookAtRevisions()
	return r.commit()
}

// openBackend opens etcd's own backend; it panics where it cannot. Nothing is synced, and
// nothing is committed by time: a commit that fails ends the goroutine that it is in, and
// would end the process in one of etcd's.
func openBackend(path string, lg *zap.Logger, hooks backend.Hooks) backend.Backend {
	c := backend.DefaultBackendConfig(lg)
	c.Path, c.Hooks, c.UnsafeNoFsync, c.Timeout, c.BatchInterval = path, hooks, true, lockTimeout, math.MaxInt64
	return backend.New(c)
}

// finishCompaction waits for the compaction that mvcc goes on with when it finds
// one that was not finished.
func (r *Engine) finishCompaction() error {
	tx := r.backend.ReadTx()
	tx.RLock()
	scheduled, _ := mvcc.UnsafeReadScheduledCompact(tx)
	tx.RUnlock()
	if scheduled == 0 {
		return nil
	}
	// Compacting at the same revision again is refused, and queued behind it.
	done, _ := r.kv.Compact(traceutil.TODO(), scheduled)
	return r.wait(done)
}
