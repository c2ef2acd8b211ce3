package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"

	"github.com/coreos/go-semver/semver"
	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// ErrNotBulk says that a Bulk does not know something of a database or a log: etcd's
// applier is to replay it from the beginning, and to say what is wrong with it, if anything.
var ErrNotBulk = errors.New("it is for etcd's applier")

func notBulk(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrNotBulk, fmt.Errorf(format, args...))
}

// Bulk replays a log as Engine does, many times as fast. It only reads the database that it
// begins with, which somebody else may change meanwhile, an etcd that goes on with it among
// them: that is an ErrNotBulk then. Close writes the one after the log to another file, page by
// page and without free ones.
//
// Keys and leases, and what changes them, it knows by itself. Of a key it has 24 bytes in
// memory, the rest lies in files that are mapped, but for the newest rows, of 16 MiB. All other
// requests go to an Engine beside it, on a database that has no keys.
//
// Whatever it does not know is an ErrNotBulk: members older or newer than those that it was
// compared with, requests that no member lets into a log, rows that etcd did not write so. It
// promises and asks for what Engine does else, but it cannot be watched.
type Bulk struct {
	out     string
	options Options
	rows    *rows
	index   *keyIndex
	rest    *Engine // applies the requests that are about neither keys nor leases

	applied, term uint64
	revision      int64
	changes       int64 // of the current entry
	compacted     int64 // of the last compaction; -1 without one
	compacts      bool  // rows have to go when the database is written
	leases        map[int64]*bulkLease
	noSpace       bool // the alarms that are raised
	corrupt       bool

	path        []bool   // of the last transaction, see compare
	undo        []undone // of the last entry, the oldest first
	undoMark    mark
	undoRevoked *bulkLease
	undoIndex   uint64
	undoTerm    uint64

	hash        snapshot.HashKV // of what Close has written
	interrupted func() error    // says that Close is to end
	failed      error           // why nothing more can be applied
	keep        bool            // whether Close writes
	closed      bool
}

// bulkLease is a lease with the keys that are attached to it.
type bulkLease struct {
	id, ttl int64
	row     []byte // as the database has it
	keys    map[uint32]struct{}
}

// undone is the row that a key had before the last entry.
type undone struct {
	n    uint32
	at   rowAt
	size uint32
}

// bulkVersions are the minor versions whose logs Bulk was compared with.
var bulkVersions = []int64{5, 6, 7}

// OpenBulk begins to replay onto the database at path. What comes of it is written to out, which
// must not be there, by Close; other files are made beside that and removed.
func OpenBulk(ctx context.Context, path, out string, o Options) (_ *Bulk, err error) {
	if o.SourceVersion != "" {
		if _, err := rulesOf(o.SourceVersion); err != nil {
			return nil, err
		}
		if v := semver.New(o.SourceVersion); !slices.Contains(bulkVersions, v.Minor) {
			return nil, notBulk("etcd %s is not one that it was compared with", o.SourceVersion)
		}
	}
	if o.MinLeaseTTL == 0 {
		o.MinLeaseTTL = DefaultMinLeaseTTL
	}
	b := &Bulk{out: out, options: o, compacted: -1, revision: 1, leases: map[int64]*bulkLease{}, interrupted: func() error { return ctx.Err() }}
	if err := guard(func() error { return b.open(ctx, path) }); err != nil {
		return nil, fmt.Errorf("opening %s to replay onto: %w", path, errors.Join(err, b.abandon()))
	}
	b.keep = true
	return b, nil
}

// guard has a panic of do, or the fault of a mapped page that cannot be read any more, end
// the replay in bulk alone.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = notBulk("it gave up: %v", p)
		}
	}()
	return do()
}

func (b *Bulk) restPath() string { return b.out + ".rest" }

func (b *Bulk) open(ctx context.Context, path string) (err error) {
	if b.rows, err = openRows(ctx, path, b.out+".rows", cmp.Or(b.options.spoolBuffer, spoolBuffer)); err != nil {
		return err
	}
	b.index = newKeyIndex(b.rows)
	if err := b.splitOff(); err != nil {
		return err
	}
	if b.rest, err = Open(ctx, b.restPath(), b.options); err != nil {
		return notBulk("what is beside its keys: %w", err)
	}
	b.applied, b.term = b.rest.Applied()
	b.lookAtAlarms()
	return b.load(ctx)
}

// splitOff makes the database without keys and leases, and learns the leases and compactions.
func (b *Bulk) splitOff() (err error) {
	f, err := safedir.Create(b.restPath())
	if err != nil {
		return err
	}
	from := b.rows.db // not by bbolt, which trusts what pages say
	if err := f.Close(); err != nil || from == nil {
		return err
	}
	to, err := bolt.Open(b.restPath(), 0o600, &bolt.Options{Timeout: lockTimeout, NoSync: true, NoGrowSync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	scheduled, finished := int64(-1), int64(-1)
	err = to.Update(func(into *bolt.Tx) error {
		return from.Root().ForEach(func(name, _ []byte) error {
			bucket, err := from.Bucket(name)
			if err != nil || bucket == nil {
				return notBulk("bucket %s: %w", name, cmp.Or(err, errors.New("it is not a bucket")))
			}
			if string(name) == string(keyBucket) {
				return nil
			}
			copied, err := into.CreateBucket(name)
			if err != nil {
				return err
			}
			return bucket.ForEach(func(k, v []byte) error {
				switch {
				case v == nil:
					return notBulk("bucket %s has another one in it", name)
				case string(name) == schema.Lease.String():
					return b.loadLease(k, v)
				case string(name) == schema.Meta.String() && bytes.Equal(k, schema.ScheduledCompactKeyName):
					scheduled, err = compactedAt(v)
					return err
				case string(name) == schema.Meta.String() && bytes.Equal(k, schema.FinishedCompactKeyName):
					finished, err = compactedAt(v)
					return err
				}
				return copied.Put(k, bytes.Clone(v))
			})
		})
	})
	if err != nil {
		return leftToEtcd(err)
	}
	b.compacted, b.compacts = scheduled, scheduled != finished
	if b.compacts && scheduled <= max(finished, 0) {
		// It was not finished, which etcd does when it starts, but for one up to revision 0.
		return notBulk("compactions are scheduled up to revision %d and finished up to %d", scheduled, finished)
	}
	return nil
}

func compactedAt(v []byte) (int64, error) {
	r, err := boltfile.ParseRow(v)
	if err != nil || r.Deleted || r.Sub != 0 {
		return 0, notBulk("the revision of a compaction is %x", v)
	}
	return r.Main, nil
}

func (b *Bulk) loadLease(name, row []byte) error {
	var l leasepb.Lease
	if err := proto.Unmarshal(row, &l); err != nil {
		return notBulk("lease %x: %w", name, err)
	}
	if !bytes.Equal(name, leaseName(l.ID)) || l.ID == 0 {
		return notBulk("lease %x says that it is %x", name, l.ID)
	}
	b.leases[l.ID] = &bulkLease{id: l.ID, ttl: max(l.TTL, b.minLeaseTTL()), row: bytes.Clone(row)}
	return nil
}

// persist has the database say what a lease is.
func (l *bulkLease) persist(remaining int64) (err error) {
	l.row, err = proto.Marshal(&leasepb.Lease{ID: l.id, TTL: l.ttl, RemainingTTL: remaining})
	return err
}

func leaseName(id int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

func (b *Bulk) minLeaseTTL() int64 { return int64(math.Ceil(b.options.MinLeaseTTL.Seconds())) }

// load indexes the keys of the base.
func (b *Bulk) load(ctx context.Context) error {
	var before boltfile.Row
	count := 0
	err := b.rows.eachOfBase(func(r bulkRow) error {
		if count++; count%10_000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if r.Main < 1 || r.Main < before.Main || r.Main == before.Main && r.Sub <= before.Sub {
			return fmt.Errorf("row %s follows row %s", r.Revision, before.Revision)
		}
		before = r.Row
		kv, err := boltfile.ParseKeyValue(r.value)
		if err == nil && kv.Unknown != 0 {
			err = fmt.Errorf("unknown field %d", kv.Unknown)
		}
		if err != nil {
			return fmt.Errorf("row %s: %w", r.Revision, err)
		}
		n, hash, known := b.index.lookup(kv.Key)
		if !known {
			n = b.index.add(hash)
		}
		if err := b.follows(n, r, &kv); err != nil {
			return err
		}
		b.index.set(n, r.at, r.size)
		b.revision = r.Main
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrNotBulk) {
		return err
	}
	if err != nil {
		return notBulk("its keys: %w", err)
	}
	b.revision = max(b.revision, b.compacted)
	for n, k := range b.index.keys {
		if !k.live() {
			continue
		}
		_, value := b.rows.get(k.at, k.size)
		kv, _ := boltfile.ParseKeyValue(value)
		if l := b.leases[kv.Lease]; l != nil {
			l.attach(uint32(n))
		}
	}
	return nil
}

// follows checks that a row of the base says of its key what etcd's index, which counts, comes to.
func (b *Bulk) follows(n uint32, r bulkRow, kv *boltfile.KeyValue) error {
	k := b.index.keys[n]
	switch {
	case r.Deleted && (k.at == noRow || k.live()):
		return nil
	case r.Deleted:
		return fmt.Errorf("row %s deletes a key that is gone", r.Revision)
	case len(r.value) == 0:
		return nil // it raises the revision, and etcd takes it for one of the empty key, which no request can name
	case kv.Modified != r.Main:
		return fmt.Errorf("row %s says that it is of revision %d", r.Revision, kv.Modified)
	case k.at == noRow && kv.Version >= 1 && kv.Created <= kv.Modified:
		return nil // those before it were compacted
	case k.live():
		_, value := b.rows.get(k.at, k.size)
		if before, _ := boltfile.ParseKeyValue(value); kv.Created == before.Created && kv.Version == before.Version+1 {
			return nil
		}
	case kv.Created == r.Main && kv.Version == 1:
		// Deleted and put in one transaction, which no client can ask for, confuses etcd's compactions.
		if name, _ := b.rows.get(k.at, k.size); !bytes.HasPrefix(name, r.name[:8]) {
			return nil
		}
	}
	return fmt.Errorf("row %s says version %d, created at %d, which does not follow", r.Revision, kv.Version, kv.Created)
}

func (b *Bulk) lookAtAlarms() {
	b.noSpace, b.corrupt = len(b.rest.alarms.Get(pb.AlarmType_NOSPACE)) > 0, len(b.rest.alarms.Get(pb.AlarmType_CORRUPT)) > 0
}

// Applied is the index and the term of the entry that was applied last.
func (b *Bulk) Applied() (index, term uint64) { return b.applied, b.term }

// Revision is the newest one.
func (b *Bulk) Revision() int64 { return b.revision }

// Has reports whether a key from key on, and before end, has a value; of a nil end, key
// itself.
func (b *Bulk) Has(_ context.Context, key, end []byte) (has bool, err error) {
	if b.closed {
		return false, ErrClosed
	}
	err = guard(func() error {
		if end == nil {
			has = b.live(key)
		} else {
			has = b.index.hasAny(key, end)
		}
		return nil
	})
	return has, err
}

// Apply applies the entry after the one applied last; any other is an *OrderError, and
// changes nothing. After any other error it can only be closed, and writes nothing.
func (b *Bulk) Apply(e raftlog.Entry) error {
	return b.apply(decode(e))
}

func (b *Bulk) apply(d *decoded) (err error) {
	if b.failed != nil {
		return b.failed
	}
	if d.entry.Index != b.applied+1 {
		return &OrderError{Applied: b.applied, Index: d.entry.Index}
	}
	err = b.rows.tidy(b.index, b.compacted)
	b.changes, b.undo, b.undoMark, b.undoRevoked, b.undoIndex, b.undoTerm = 0, b.undo[:0], b.rows.mark(), nil, b.applied, b.term
	if err != nil {
		// It could not write.
	} else if err = d.err; err != nil {
		err = notBulk("%w", err) // which will say the same
	} else if err = b.execute(d); err == nil && b.changes > 0 && !d.moves() {
		err = notBulk("it changed %d keys", b.changes)
	}
	if err != nil {
		b.keep, b.failed = false, fmt.Errorf("entry %d (%s): %w", d.entry.Index, d.kind, err)
		return b.failed
	}
	if b.changes > 0 {
		b.revision++
	}
	b.applied, b.term = d.entry.Index, d.entry.Term
	return nil
}

// Rollback takes back the last entry, which put or deleted keys. Bulk can only be closed afterwards.
func (b *Bulk) Rollback() error {
	if b.failed != nil {
		return b.failed
	}
	b.index.ordered = nil // it cannot find a key that has no row any more
	for _, u := range slices.Backward(b.undo) {
		b.index.set(u.n, u.at, u.size)
	}
	b.rows.cut(b.undoMark)
	if l := b.undoRevoked; l != nil {
		b.leases[l.id] = l
	}
	if b.changes > 0 {
		b.revision--
	}
	b.applied, b.term, b.failed = b.undoIndex, b.undoTerm, ErrClosed
	return nil
}

func (b *Bulk) watch(uint64, func(Change) error) error {
	b.keep, b.failed = false, notBulk("a replay that is watched")
	return b.failed
}

func (b *Bulk) execute(d *decoded) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { // as guard does, which would cost a tenth of a replay
		if p := recover(); p != nil { // etcd's parts end a member so
			err = notBulk("it gave up: %v", p)
		}
	}()
	q := d.request
	if b.rest.auth.IsAuthEnabled() && !b.permitted(d) {
		return nil // refused, on the member too
	}
	switch o := &d.operation; {
	case o.kind == txnOperation:
		if b.corrupt || b.noSpace && b.rest.rules.takesSpace(d.byProtobuf().Txn) {
			return nil
		}
		return b.txn(o.txn)
	case o.kind != noOperation:
		if b.corrupt || o.kind == putOperation && (b.noSpace || !b.putAllowed(o)) {
			return nil
		}
		return b.operate(o)
	case d.change != nil:
		return b.others(d)
	case q == nil:
		return nil
	case q.Put != nil || q.DeleteRange != nil || q.Txn != nil:
		return notBulk("it is not encoded as members do it")
	case q.Compaction != nil:
		if rev := q.Compaction.Revision; !b.corrupt && rev > b.compacted && rev <= b.revision {
			b.compacted, b.compacts = rev, true
		}
		return nil
	case q.LeaseGrant != nil:
		id, ttl := q.LeaseGrant.ID, q.LeaseGrant.TTL
		if !b.noSpace && !b.corrupt && id != 0 && ttl <= lease.MaxLeaseTTL && b.leases[id] == nil {
			l := &bulkLease{id: id, ttl: max(ttl, b.minLeaseTTL())}
			b.leases[id] = l
			return l.persist(0)
		}
		return nil
	case q.LeaseRevoke != nil:
		if l := b.leases[q.LeaseRevoke.ID]; l != nil && !b.corrupt {
			return b.revoke(l)
		}
		return nil
	case q.LeaseCheckpoint != nil:
		return b.checkpoint(q.LeaseCheckpoint.Checkpoints)
	}
	return b.others(d)
}

// noLeases has etcd's check of permissions leave the leases to whoever knows them.
var noLeases = &lease.FakeLessor{}

// permitted reports whether the member permitted a request about keys or leases to the user who made it.
// Other requests are checked by who applies them.
func (b *Bulk) permitted(d *decoded) bool {
	if d.operation.kind == putOperation && !d.named {
		return false
	}
	q := d.byProtobuf()
	if q == nil || q.Put == nil && q.DeleteRange == nil && q.Txn == nil && q.LeaseRevoke == nil {
		return true
	}
	who, t := user(q), q.Txn
	switch {
	case q.LeaseRevoke != nil:
		return b.leasePermitted(who, q.LeaseRevoke.ID, b.rest.rules.revokeByKey)
	case t != nil && b.rest.rules.txnPutFree:
		return b.rest.permitTxn(who, t)
	case q.Put != nil:
		t = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: q.Put}}}}
	case q.DeleteRange != nil:
		t = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: q.DeleteRange}}}}
	}
	return apply.CheckTxnAuth(b.rest.auth, who, noLeases, t) == nil && b.leasesPermitted(who, t)
}

// leasesPermitted looks at the leases of all puts.
func (b *Bulk) leasesPermitted(who *auth.AuthInfo, t *pb.TxnRequest) bool {
	return !slices.ContainsFunc(slices.Concat(t.Success, t.Failure), func(op *pb.RequestOp) bool {
		put, inner := op.GetRequestPut(), op.GetRequestTxn()
		return put != nil && !b.leasePermitted(who, put.Lease, false) || inner != nil && !b.leasesPermitted(who, inner)
	})
}

// leasePermitted reports whether a user may write each key of a lease, or is an administrator
// where that is enough.
func (b *Bulk) leasePermitted(who *auth.AuthInfo, id int64, byKey bool) bool {
	l := b.leases[id]
	if l == nil || !byKey && b.rest.auth.IsAdminPermitted(who) == nil {
		return true
	}
	for n := range l.keys {
		if b.rest.auth.IsPutPermitted(who, b.index.key(n)) != nil {
			return false
		}
	}
	return true
}

// others has etcd apply what is about neither keys nor leases.
func (b *Bulk) others(d *decoded) error {
	b.rest.applied = d.entry.Index - 1
	if err := b.rest.apply(d); err != nil {
		return notBulk("%w", err)
	}
	b.lookAtAlarms()
	return nil
}

// live reports whether a key has a value.
func (b *Bulk) live(key []byte) bool {
	n, ok := b.index.find(key)
	return ok && b.index.keys[n].live()
}

// read is what a key has; it must have a value.
func (b *Bulk) read(n uint32) boltfile.KeyValue {
	_, value := b.rows.get(b.index.keys[n].at, b.index.keys[n].size)
	kv, _ := boltfile.ParseKeyValue(value) // it was read before, or written here
	return kv
}

// putAllowed reports whether the member took the put: its lease must be there, and its key
// where that is to keep something.
func (b *Bulk) putAllowed(o *operation) bool {
	p := &o.put
	return (p.lease == 0 || b.leases[p.lease] != nil) && (!p.ignoreValue && !p.ignoreLease || b.live(o.key))
}

func (b *Bulk) put(key []byte, p *put) error {
	n, hash, known := b.index.lookup(key)
	if !known {
		n = b.index.add(hash)
	}
	revision := b.revision + 1
	kv := boltfile.KeyValue{Key: key, Value: p.value, Created: revision, Modified: revision, Version: 1, Lease: p.lease}
	var attached *bulkLease
	if b.index.keys[n].live() {
		before := b.read(n)
		kv.Created, kv.Version = before.Created, before.Version+1
		if p.ignoreValue {
			kv.Value = before.Value
		}
		if p.ignoreLease {
			kv.Lease = before.Lease
		}
		attached = b.attached(n, before.Lease)
	} else if p.ignoreValue || p.ignoreLease {
		return notBulk("a transaction deletes a key and keeps something of it") // a member ends
	} else if k := b.index.keys[n]; k.at != noRow && b.changed(n) {
		return notBulk("a transaction deletes a key and puts it") // members refuse that before it is logged
	}
	if err := b.write(n, &kv, false); err != nil {
		return err
	}
	if attached != nil && attached.id == kv.Lease {
		return nil
	}
	if attached != nil {
		delete(attached.keys, n)
	}
	if kv.Lease != 0 {
		l := b.leases[kv.Lease]
		if l == nil {
			return notBulk("lease %x of a key is gone", kv.Lease) // a member ends
		}
		l.attach(n)
	}
	return nil
}

// changed reports whether the current entry changed a key.
func (b *Bulk) changed(n uint32) bool {
	return slices.ContainsFunc(b.undo, func(u undone) bool { return u.n == n })
}

// write adds a row of a key.
func (b *Bulk) write(n uint32, kv *boltfile.KeyValue, deleted bool) error {
	at, size, err := b.rows.add(n, b.changes, deleted, kv)
	if err != nil {
		return err
	}
	k := b.index.keys[n]
	b.undo = append(b.undo, undone{n, k.at, k.size})
	b.rows.supersede(k.at, kv.Modified)
	b.index.set(n, at, size)
	b.changes++
	return nil
}

func (l *bulkLease) attach(n uint32) {
	if l.keys == nil {
		l.keys = map[uint32]struct{}{}
	}
	l.keys[n] = struct{}{}
}

// attached is the lease that a key is attached to: the one that its row names, unless that
// was not there then.
func (b *Bulk) attached(n uint32, id int64) *bulkLease {
	l := b.leases[id]
	if l == nil {
		return nil
	}
	if _, ok := l.keys[n]; !ok {
		return nil
	}
	return l
}

// gone deletes a key that has a value.
func (b *Bulk) gone(n uint32) error {
	before := b.read(n)
	if l := b.attached(n, before.Lease); l != nil {
		delete(l.keys, n)
	}
	return b.write(n, &boltfile.KeyValue{Key: before.Key, Modified: b.revision + 1}, true)
}

// inRange gives the keys that have a value, as etcd understands the end of a range.
func (b *Bulk) inRange(key, end []byte) (all []uint32) {
	switch {
	case len(end) == 0:
		if n, ok := b.index.find(key); ok && b.index.keys[n].live() {
			all = append(all, n)
		}
		return all
	case len(end) == 1 && end[0] == 0:
		end = nil
	}
	b.index.between(key, end, func(n uint32) bool {
		all = append(all, n)
		return true
	})
	return all
}

func (b *Bulk) deleteRange(key, end []byte) error {
	for _, n := range b.inRange(key, end) {
		if err := b.gone(n); err != nil {
			return err
		}
	}
	return nil
}

// revoke deletes a lease and its keys, in their order.
func (b *Bulk) revoke(l *bulkLease) error {
	var all []uint32
	for n := range l.keys {
		all = append(all, n)
	}
	slices.SortFunc(all, func(x, y uint32) int { return bytes.Compare(b.index.key(x), b.index.key(y)) })
	for _, n := range all {
		if err := b.gone(n); err != nil {
			return err
		}
	}
	delete(b.leases, l.id)
	b.undoRevoked = l
	return nil
}

// checkpoint matters only where members persist it: leases do not expire here.
func (b *Bulk) checkpoint(all []*pb.LeaseCheckpoint) error {
	if v := b.rest.cluster.Version(); !b.options.PersistCheckpoints && (v == nil || version.LessThan(*v, version.V3_6)) {
		return nil
	}
	for _, c := range all {
		if l := b.leases[c.ID]; l != nil {
			if err := l.persist(c.Remaining_TTL); err != nil {
				return err
			}
		}
	}
	return nil
}

// txn applies a transaction: first all its comparisons, then all that may be refused, then
// what it does.
func (b *Bulk) txn(t *transaction) error {
	b.path = b.compare(t, b.path[:0])
	if _, ok := b.txnAllowed(t, b.path); !ok {
		return nil
	}
	_, err := b.executeTxn(t, b.path)
	return err
}

func (t *transaction) chosen(ok bool) []operation {
	if ok {
		return t.success
	}
	return t.failure
}

// compare appends the outcome of a transaction's comparisons, and of those in it, in the order
// in which they are executed.
func (b *Bulk) compare(t *transaction, path []bool) []bool {
	ok := true
	for i := range t.compare {
		ok = ok && b.holds(&t.compare[i])
	}
	path = append(path, ok)
	for _, o := range t.chosen(ok) {
		if o.kind == txnOperation {
			path = b.compare(o.txn, path)
		}
	}
	return path
}

// holds reports whether a comparison does, for all keys that it is about.
func (b *Bulk) holds(c *comparison) bool {
	all := b.inRange(c.key, c.end)
	if len(all) == 0 {
		return c.target != pb.Compare_VALUE && c.compared(&boltfile.KeyValue{})
	}
	for _, n := range all {
		kv := b.read(n)
		if !c.compared(&kv) {
			return false
		}
	}
	return true
}

func (c *comparison) compared(kv *boltfile.KeyValue) bool {
	var order int
	switch c.target {
	case pb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.value)
	case pb.Compare_CREATE:
		order = cmp.Compare(kv.Created, c.number)
	case pb.Compare_MOD:
		order = cmp.Compare(kv.Modified, c.number)
	case pb.Compare_VERSION:
		order = cmp.Compare(kv.Version, c.number)
	case pb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.number)
	}
	switch c.result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	default:
		return order < 0 // no other is read
	}
}

// txnAllowed reports whether the member executed the transaction, and how many outcomes of path those in it took.
func (b *Bulk) txnAllowed(t *transaction, path []bool) (inner int, ok bool) {
	all := t.chosen(path[0])
	for i := range all {
		switch o := &all[i]; o.kind {
		case rangeOperation:
			if rev := o.revision; rev != 0 && (rev > b.revision || rev < b.compacted) {
				return 0, false
			}
		case putOperation:
			if !b.putAllowed(o) {
				return 0, false
			}
		case txnOperation:
			n, ok := b.txnAllowed(o.txn, path[1:])
			if !ok {
				return 0, false
			}
			path = path[n+1:]
			inner += n + 1
		case deleteOperation, noOperation:
		}
	}
	return inner, true
}

func (b *Bulk) executeTxn(t *transaction, path []bool) (inner int, err error) {
	all := t.chosen(path[0])
	for i := range all {
		if o := &all[i]; o.kind == txnOperation {
			var n int
			n, err = b.executeTxn(o.txn, path[1:])
			path = path[n+1:]
			inner += n + 1
		} else {
			err = b.operate(o)
		}
		if err != nil {
			return 0, err
		}
	}
	return inner, nil
}

// operate does what is no transaction.
func (b *Bulk) operate(o *operation) error {
	switch o.kind {
	case rangeOperation:
		return nil
	case putOperation:
		return b.put(o.key, &o.put)
	case deleteOperation:
		return b.deleteRange(o.key, o.end)
	default:
		return notBulk("an operation of a transaction is nothing") // a member ends
	}
}

// Close writes the database that the entries led to, and frees all else. It is not synced. After an error of
// Apply, or of its own, out is not there.
func (b *Bulk) Close() error {
	if b.closed {
		return ErrClosed
	}
	var err error
	if b.keep {
		if err = guard(b.writeOut); err != nil {
			err = fmt.Errorf("writing %s: %w", b.out, errors.Join(err, removeIfThere(b.out)))
		}
	}
	return errors.Join(err, b.abandon())
}

// HashKV is that of the database that Close has written, computed of the rows while they were
// written. It is what snapshot.ReadHashKV reads there.
func (b *Bulk) HashKV() snapshot.HashKV { return b.hash }
