package walreplay

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/boltfile"
)

// The fourth comparison of a Relation: the newest rows of a database with what the newest
// entries of a log wrote.

// row is a row of the database, or the row that an entry of the log asks for.
type row struct {
	key     string
	value   uint64 // hash of the key and the value
	at      uint64 // the revision, or the raft index of the entry
	deleted bool   // in the database: the key was deleted
	certain bool   // in the log: nothing but authentication and alarms can have refused it
}

var relationSeed = maphash.MakeSeed()

func hashOfRow(key, value []byte) uint64 {
	return maphash.Comparable(relationSeed, [2]string{string(key), string(value)})
}

// rows compares the database's newest rows with the writes of the log's newest entries up to
// the database's index. The first rule that applies decides:
//
//  1. Lost: a certain put whose key no later entry touches is the last row of its key. A
//     database without that row is unrelated.
//  2. Forked: if the values of two such puts differ, and all newer ones too, the histories
//     differ: unrelated. Any other value that differs may be damaged instead: not shown.
//  3. Foreign, whole log: all entries of a cluster wrote all of its rows. Two rows that they
//     did not write are of another cluster: unrelated. One may be damaged.
//  4. Contradicted: of the puts that something can have refused, as branches of transactions
//     are, more values differ than agree: not shown.
//  5. Explained: the newest put in the database is the log's, or nothing is left of it but a
//     compaction that is the log's, and no row is foreign: related.
//  6. Empty: nothing was written yet, and the whole log shows it: related.
//
// Otherwise nothing shows that the two belong together.
func (r *relating) rows() (Relation, error) {
	w, err := r.writes()
	if err != nil {
		return Relation{}, err
	}
	last, puts, err := r.newestRows()
	if err != nil {
		return Relation{}, err
	}
	t := w.compare(last)
	foreign := w.foreign(puts, r.facts.Revision)
	explained := len(puts) > 0 && w.wrote(puts[len(puts)-1]) ||
		len(puts) == 0 && w.compacted > 0 && w.compacted == r.facts.CompactedRevision
	index, revision := r.facts.RaftIndex, r.facts.Revision
	altered := func() string {
		return fmt.Sprintf("entry %d of the log puts another value at key %q than the database has at revision %d", t.altered.at, t.altered.key, last[t.altered.key].at)
	}
	switch {
	case t.lost != nil:
		return unrelated("entry %d of the log puts the key %q, and the database, which is at raft index %d, lacks this write", t.lost.at, t.lost.key, index), nil
	case t.forked > 1:
		return unrelated("%s", altered()), nil
	case t.altered != nil:
		return notShown("%s: this value is damaged, or the two are of different histories", altered()), nil
	case len(foreign) > 1 && w.whole:
		return unrelated("none of the log's entries, which begin with the cluster's first, wrote the database's row of key %q at revision %d", foreign[0].key, foreign[0].at), nil
	case t.differ > t.agree:
		return notShown("of %d keys that the log's newest entries may have put, the database has other values", t.differ), nil
	case explained && len(foreign) == 0, len(puts) == 0 && w.whole && w.puts == 0 && revision <= 1:
		return Relation{Kind: Related}, nil
	case len(puts) == 0:
		return notShown("neither rows nor a compaction of the database, which is at raft index %d and revision %d, show that the log's entries made them", index, revision), nil
	}
	unexplained := puts[len(puts)-1]
	if explained {
		unexplained = foreign[0]
	}
	return notShown("none of the log's entries up to the database's raft index %d wrote one of its newest rows, key %q at revision %d", index, unexplained.key, unexplained.at), nil
}

// newestRows returns the last row of each key that the newest revisions touch, and the rows of
// their puts, the newest last.
func (r *relating) newestRows() (last map[string]row, puts []row, err error) {
	last = map[string]row{}
	keys, err := r.file.Bucket([]byte("key"))
	if err != nil || keys == nil {
		return last, nil, err
	}
	c := keys.Cursor()
	from := boltfile.Revision{Main: max(0, r.facts.Revision-relationEntries)}
	for k, v, err := c.Seek(from.Bytes()); k != nil || err != nil; k, v, err = c.Next() {
		if err != nil {
			return nil, nil, err
		}
		name, err := boltfile.ParseRow(k)
		if err != nil {
			return nil, nil, err
		}
		var kv mvccpb.KeyValue // the value may be damaged: as lenient as etcd
		if err := proto.Unmarshal(v, &kv); err != nil {
			return nil, nil, fmt.Errorf("revision %s: %w", name.Revision, err)
		}
		one := row{key: string(kv.Key), value: hashOfRow(kv.Key, kv.Value), at: uint64(name.Main), deleted: name.Deleted}
		last[one.key] = one
		if !one.deleted {
			puts = append(puts, one)
		}
	}
	return last, puts, nil
}

// writes is what the newest entries of a log up to the database's index may have written.
type writes struct {
	last      map[string]row  // by key, if the last entry that touches it is a put
	values    map[uint64]bool // hashes of all rows that may have been put
	anyValue  map[string]bool // keys that were put with the value that they had
	compacted int64           // the revision of the last compaction
	whole     bool            // they are all entries of a cluster that began empty
	puts      int64           // how many entries may have put something
	certain   int64           // of these, how many nothing can have refused
	// refusing says that authentication or an alarm was on or changed: any entry may have
	// been refused.
	refusing bool
}

// writes reads the newest entries.
func (r *relating) writes() (*writes, error) {
	first := r.summary.FirstIndex
	for _, g := range r.summary.Gaps {
		if g.Next <= r.facts.RaftIndex {
			first = g.Next
		}
	}
	if r.facts.RaftIndex > relationEntries {
		first = max(first, r.facts.RaftIndex-relationEntries)
	}
	restored, err := RestoredAt(r.ctx, r.log, r.summary)
	if err != nil {
		return nil, err
	}
	w := &writes{
		last: map[string]row{}, values: map[uint64]bool{}, anyValue: map[string]bool{},
		whole: first == 1 && restored == 0, refusing: r.facts.AuthEnabled || len(r.facts.Alarms) > 0,
	}
	for e, err := range r.log.Entries(r.ctx, first) {
		if err != nil {
			return nil, err
		}
		if e.Index > r.facts.RaftIndex {
			break
		}
		var request etcdserverpb.InternalRaftRequest
		if e.Type == raftpb.EntryNormal && proto.Unmarshal(e.Data, &request) == nil {
			w.add(e.Index, &request)
		}
	}
	if w.refusing {
		w.certain = 0
	}
	return w, nil
}

func (w *writes) add(index uint64, q *etcdserverpb.InternalRaftRequest) {
	alarm := q.Alarm != nil && q.Alarm.Action != etcdserverpb.AlarmRequest_GET // a health check gets them
	w.refusing = w.refusing || alarm || q.AuthEnable != nil || q.AuthDisable != nil
	switch {
	case q.Put != nil:
		certain := q.Put.Lease == 0 && !q.Put.IgnoreLease && !q.Put.IgnoreValue
		w.put(index, q.Put, certain)
		w.puts++
		if certain {
			w.certain++
		}
	case q.DeleteRange != nil:
		w.remove(q.DeleteRange)
	case q.Txn != nil:
		w.transact(index, q.Txn)
		w.puts++
	case q.Compaction != nil:
		w.compacted = q.Compaction.Revision
	}
}

func (w *writes) put(index uint64, p *etcdserverpb.PutRequest, certain bool) {
	key, value := string(p.Key), hashOfRow(p.Key, p.Value)
	w.last[key] = row{key: key, value: value, at: index, certain: certain}
	if p.IgnoreValue {
		w.anyValue[key] = true
	} else {
		w.values[value] = true
	}
}

func (w *writes) remove(d *etcdserverpb.DeleteRangeRequest) {
	if len(d.RangeEnd) == 0 {
		delete(w.last, string(d.Key))
		return
	}
	maps.DeleteFunc(w.last, func(key string, _ row) bool {
		return key >= string(d.Key) && (string(d.RangeEnd) == "\x00" || key < string(d.RangeEnd))
	})
}

func (w *writes) transact(index uint64, t *etcdserverpb.TxnRequest) {
	for _, op := range slices.Concat(t.Success, t.Failure) {
		switch {
		case op.GetRequestPut() != nil:
			w.put(index, op.GetRequestPut(), false)
		case op.GetRequestDeleteRange() != nil:
			w.remove(op.GetRequestDeleteRange())
		case op.GetRequestTxn() != nil:
			w.transact(index, op.GetRequestTxn())
		}
	}
}

// wrote reports whether an entry may have written a row.
func (w *writes) wrote(r row) bool { return w.values[r.value] || w.anyValue[r.key] }

// tally is how the log's last put of each key compares with the database's last row of it.
type tally struct {
	lost    *row // the newest certain put whose key has no value
	altered *row // the newest certain put whose key has another value
	forked  int  // certain puts whose keys have other values, newer than each whose key has its value
	// agree and differ count the puts that something can have refused: a value of any put of
	// the key agrees. A key without a value says nothing: its lease may have ended.
	agree, differ int
}

func (w *writes) compare(last map[string]row) (t tally) {
	newestFirst := slices.SortedFunc(maps.Values(w.last), func(a, b row) int { return cmp.Compare(b.at, a.at) })
	matched := false
	for _, put := range newestFirst {
		have, ok := last[put.key]
		there := ok && !have.deleted
		switch certain := put.certain && !w.refusing; {
		case !certain && !there:
		case !certain && w.wrote(have):
			t.agree++
		case !certain:
			t.differ++
		case !there:
			t.lost = cmp.Or(t.lost, &put)
		case have.value == put.value:
			matched = true
		default:
			t.altered = cmp.Or(t.altered, &put)
			if !matched {
				t.forked++
			}
		}
	}
	return t
}

// uncertainMade is how many of the newest revisions at most are held to be made by entries
// that something can have refused, and uncertainShare the share of them that was not refused:
// one in so many.
const uncertainMade, uncertainShare = 100, 4

// foreign returns those of the newest rows that no entry wrote, although the entries made
// their revisions: of all entries of a cluster all rows, otherwise as many revisions as there
// are certain puts, or a few for the others. Services that register again after a restore,
// locks and heartbeats write the same in every history, so one row shows little.
func (w *writes) foreign(puts []row, revision int64) (rows []row) {
	made := max(w.certain, min(uncertainMade, w.puts/uncertainShare))
	for _, p := range puts {
		if (w.whole || int64(p.at) > revision-made) && !w.wrote(p) {
			rows = append(rows, p)
		}
	}
	return rows
}
