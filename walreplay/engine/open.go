package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
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
)

const (
	// compactionBatch is how many rows a compaction looks at before it lets
	// others write, and compactionPause how long it does: nobody waits here.
	compactionBatch = 10000
	compactionPause = time.Nanosecond
	// maxLearners is only looked at when a member is added, which was allowed.
	maxLearners = math.MaxInt32
	// bcryptCost is etcd's default, for the passwords in the logs of 3.4.
	bcryptCost = 10
)

// Open opens a database to replay onto: a member's db file or a full snapshot
// without its SHA-256, which is changed in place, so a copy. It builds etcd's
// index in memory, about 400 bytes a key. An empty file is the database of a
// cluster before its first entry; the path must exist.
//
// Where a compaction was scheduled and not finished, it is finished here.
func Open(ctx context.Context, path string, o Options) (Engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening a database to replay onto: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("opening a database to replay onto: %s is no regular file", path)
	}
	if o.MinLeaseTTL == 0 {
		o.MinLeaseTTL = defaultMinLeaseTTL
	}
	r := &replay{broken: make(chan struct{})}
	if r.rules, err = rulesOf(o.SourceVersion); err != nil {
		return nil, err
	}
	if err := r.open(path, o); err != nil {
		return nil, fmt.Errorf("opening %s to replay onto: %w", path, errors.Join(err, r.abandon()))
	}
	return r, nil
}

// open puts etcd's parts together in the order in which they depend on each
// other: what a member does when it starts.
func (r *replay) open(path string, o Options) (err error) {
	defer rescue(&err)
	lg := newLogger(o.Logger, r.gaveUp)
	r.logger = lg
	r.index = cindex.NewConsistentIndex(nil)
	r.hooks = serverstorage.NewBackendHooks(lg, r.index)
	if err := r.openBackend(path, o.Backend); err != nil {
		return err
	}
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
	r.quiet = quietTrace()
	r.traced = context.WithValue(context.Background(), traceutil.TraceKey{}, &r.trace)
	r.lookAtAlarms()
	r.lookAtRevisions()
	return r.commit()
}

func (r *replay) openBackend(path, kind string) error {
	switch kind {
	case "", BackendDirect:
		d, err := openDirect(path, r.hooks)
		if err != nil {
			return err
		}
		r.direct, r.backend = d, d
	case BackendEtcd:
		c := backend.DefaultBackendConfig(r.logger)
		c.Path, c.Hooks, c.UnsafeNoFsync, c.Timeout = path, r.hooks, true, lockTimeout
		r.backend = backend.New(c)
	default:
		return fmt.Errorf("backend %q: want %q or %q", kind, BackendDirect, BackendEtcd)
	}
	return nil
}

// finishCompaction waits for the compaction that mvcc goes on with when it finds
// one that was not finished.
func (r *replay) finishCompaction() error {
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
