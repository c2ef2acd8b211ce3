package restore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"runtime/debug"
	"time"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/version"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
)

// editBytes is more than one edit adds to a database: a few pages for each
// changed bucket, at the largest page size in use.
const editBytes = 4 << 20

// edit is what one transaction changes in a database.
type edit struct {
	// cluster replaces the membership, and sets the raft position that the new
	// log starts from. Nil leaves both.
	cluster *membership.RaftCluster
	bump    *Bump // nil: none
	authOff bool  // authentication is turned off
}

// edited is what the database said, and what became of it.
type edited struct {
	revision       int64 // the highest one before the edit
	alarms         []snapshot.Alarm
	clusterVersion *semver.Version // nil before 3.5
	downgrade      string          // the target of a downgrade that was under way
}

// apply opens the database, changes it in one transaction and closes it. It
// does not sync. bbolt panics on pages that make no sense, and a file cut short
// faults: both come back as errors.
func (e edit) apply(path string) (out edited, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("edit %s: its pages are damaged: %v", path, r)
		}
	}()
	if err := lendFreelist(path); err != nil {
		return out, fmt.Errorf("edit %s: %w", path, err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:        time.Second,
		FreelistType:   bbolt.FreelistMapType,
		NoSync:         true,
		NoGrowSync:     true,
		NoFreelistSync: true,
		// The edit never creates a database.
		OpenFile: func(name string, _ int, _ os.FileMode) (*os.File, error) {
			return safedir.OpenWritable(name)
		},
	})
	if err != nil {
		return out, fmt.Errorf("edit %s: %w", path, err)
	}
	defer func() {
		if closeErr := db.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("edit %s: %w", path, closeErr))
		}
	}()
	if err := db.Update(func(tx *bbolt.Tx) error { return e.change(tx, &out) }); err != nil {
		return out, fmt.Errorf("edit %s: %w", path, err)
	}
	return out, nil
}

func (e edit) change(tx *bbolt.Tx, out *edited) error {
	meta, err := tx.CreateBucketIfNotExists(schema.Meta.Name())
	if err != nil {
		return err
	}
	if out.revision, err = lastRevision(tx, meta); err != nil {
		return err
	}
	if out.alarms, err = clearAlarms(tx); err != nil {
		return err
	}
	if err := e.changeCluster(tx, out); err != nil {
		return err
	}
	if e.cluster != nil {
		if err := changeMembers(tx, e.cluster); err != nil {
			return err
		}
		if err := changePosition(meta, e.cluster); err != nil {
			return err
		}
	}
	if e.authOff {
		if err := turnAuthOff(tx); err != nil {
			return err
		}
	}
	return e.changeRevision(tx, meta, out.revision)
}

// lastRevision is the highest revision in the key bucket, whose keys are
// ordered by it, or the compacted one where that is higher.
func lastRevision(tx *bbolt.Tx, meta *bbolt.Bucket) (int64, error) {
	keys := tx.Bucket(schema.Key.Name())
	if keys == nil {
		return 0, errors.New("it has no key bucket: this is no etcd database")
	}
	last := int64(1)
	for _, k := range [][]byte{lastKey(keys), meta.Get(schema.ScheduledCompactKeyName)} {
		if k == nil {
			continue
		}
		if len(k) < 17 || len(k) > 18 {
			return 0, fmt.Errorf("%x is no revision", k)
		}
		last = max(last, mvcc.BytesToRev(k).Main)
	}
	return last, nil
}

func lastKey(b *bbolt.Bucket) []byte {
	k, _ := b.Cursor().Last()
	return k
}

// clearAlarms empties the alarm bucket: a restored NOSPACE would block writes,
// and the members that raised them are gone.
func clearAlarms(tx *bbolt.Tx) (cleared []snapshot.Alarm, err error) {
	b := tx.Bucket(schema.Alarm.Name())
	if b == nil {
		return nil, nil
	}
	err = b.ForEach(func(k, _ []byte) error {
		var a etcdserverpb.AlarmMember
		if err := proto.Unmarshal(k, &a); err != nil {
			return fmt.Errorf("alarm %x: %w", k, err)
		}
		cleared = append(cleared, snapshot.Alarm{MemberID: snapshot.ID(a.GetMemberID()), Type: a.GetAlarm().String()})
		return nil
	})
	if err != nil || len(cleared) == 0 {
		return nil, err
	}
	return cleared, emptyBucket(tx, schema.Alarm)
}

// turnAuthOff keeps users, roles and passwords, as `etcdctl auth disable` does.
func turnAuthOff(tx *bbolt.Tx) error {
	b := tx.Bucket(schema.Auth.Name())
	if b == nil {
		return nil
	}
	return b.Put(schema.AuthEnabledKeyName, []byte{0})
}

func emptyBucket(tx *bbolt.Tx, b backend.Bucket) error {
	if tx.Bucket(b.Name()) != nil {
		if err := tx.DeleteBucket(b.Name()); err != nil {
			return err
		}
	}
	_, err := tx.CreateBucket(b.Name())
	return err
}

// changeCluster keeps the cluster version, so that an older etcd refuses to
// start, and ends a downgrade that was under way: with it, 3.5 would skip that
// check.
func (e edit) changeCluster(tx *bbolt.Tx, out *edited) error {
	b, err := tx.CreateBucketIfNotExists(schema.Cluster.Name())
	if err != nil {
		return err
	}
	if v := b.Get(schema.ClusterClusterVersionKeyName); v != nil {
		if out.clusterVersion, err = semver.NewVersion(string(v)); err != nil {
			return fmt.Errorf("cluster version %q: %w", v, err)
		}
	}
	v := b.Get(schema.ClusterDowngradeKeyName)
	if v == nil {
		return nil
	}
	var d version.DowngradeInfo
	if err := json.Unmarshal(v, &d); err != nil {
		return fmt.Errorf("downgrade record %q: %w", v, err)
	}
	if !d.Enabled {
		return nil
	}
	out.downgrade = d.TargetVersion
	return b.Delete(schema.ClusterDowngradeKeyName)
}

// changeMembers replaces the members and forgets which were removed: IDs of the
// new cluster are new.
func changeMembers(tx *bbolt.Tx, cluster *membership.RaftCluster) error {
	for _, b := range []backend.Bucket{schema.Members, schema.MembersRemoved} {
		if err := emptyBucket(tx, b); err != nil {
			return err
		}
	}
	b := tx.Bucket(schema.Members.Name())
	for _, m := range cluster.Members() {
		v, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if err := b.Put(schema.BackendMemberKey(m.ID), v); err != nil {
			return err
		}
	}
	return nil
}

// changePosition says that the database holds the new log's entries up to its
// snapshot: one for each member.
func changePosition(meta *bbolt.Bucket, cluster *membership.RaftCluster) error {
	start := startOf(cluster)
	state, err := json.Marshal(start.conf)
	if err != nil {
		return err
	}
	return errors.Join(
		meta.Put(schema.MetaConsistentIndexKeyName, binary.BigEndian.AppendUint64(nil, start.index)),
		meta.Put(schema.MetaTermKeyName, binary.BigEndian.AppendUint64(nil, start.term)),
		meta.Put(schema.MetaConfStateName, state),
	)
}

// changeRevision writes a record with an empty value at the new revision, as
// etcdutl does, and schedules the compaction of all before it.
func (e edit) changeRevision(tx *bbolt.Tx, meta *bbolt.Bucket, last int64) error {
	if e.bump == nil {
		return nil
	}
	if last != e.bump.From {
		return fmt.Errorf("its last revision is %d, the plan has %d", last, e.bump.From)
	}
	key := mvcc.RevToBytes(mvcc.Revision{Main: e.bump.NewRevision}, mvcc.NewRevBytes())
	return errors.Join(
		tx.Bucket(schema.Key.Name()).Put(key, []byte{}),
		meta.Put(schema.ScheduledCompactKeyName, key),
	)
}

// logStart is where the new cluster's raft log starts.
type logStart struct {
	index, term uint64
	conf        *raftpb.ConfState
}

func startOf(cluster *membership.RaftCluster) logStart {
	s := logStart{term: 1, conf: &raftpb.ConfState{AutoLeave: proto.Bool(false)}}
	for _, m := range cluster.Members() {
		s.index++
		if m.IsLearner {
			s.conf.Learners = append(s.conf.Learners, uint64(m.ID))
		} else {
			s.conf.Voters = append(s.conf.Voters, uint64(m.ID))
		}
	}
	return s
}

// In bbolt's pages: where a meta page, after its header, has the page of the freelist,
// the number of pages and the sum over what is before that.
const (
	pageHeader   = 16
	freelistFlag = 0x10
	metaFreelist = 32
	metaPages    = 40
	metaSum      = 56
	metaLength   = 64
)

// lendFreelist gives a database an empty list of free pages, in a new page at
// its end. etcd's databases have none, so bbolt would go through all pages to
// find the free ones, as slow as the pages are cold, and a damaged one would
// end the process: bbolt does that in a goroutine of its own. The one edit that
// follows puts its pages at the end, and leaves no list behind: etcd finds the
// free pages itself at its next start, this one among them.
func lendFreelist(path string) (err error) {
	f, err := safedir.OpenWritable(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	db, err := boltfile.Open(context.Background(), f, info.Size())
	if err != nil {
		return err
	}
	m, le := db.Meta(), binary.LittleEndian
	page := make([]byte, m.PageSize)
	le.PutUint64(page, m.Pages)
	le.PutUint16(page[8:], freelistFlag)
	if _, err := f.WriteAt(page, db.Size()); err != nil {
		return err
	}
	meta, at := make([]byte, metaLength), int64(m.Page)*int64(m.PageSize)+pageHeader
	if _, err := f.ReadAt(meta, at); err != nil {
		return err
	}
	le.PutUint64(meta[metaFreelist:], m.Pages)
	le.PutUint64(meta[metaPages:], m.Pages+1)
	sum := fnv.New64a()
	sum.Write(meta[:metaSum])
	le.PutUint64(meta[metaSum:], sum.Sum64())
	_, err = f.WriteAt(meta, at)
	return err
}
