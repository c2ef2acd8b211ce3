package snapshot

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/boltfile"
)

// ReadFacts reads what the database in r, of size bytes without a trailing
// SHA-256, says of itself. It knows the databases of etcd 3.5 to 3.7, and
// touches the few pages on the way to what it reads, whatever the size.
//
// Bytes that are no etcd database are a *DamagedError, a database of etcd 3.4 is
// ErrTooOld, and a failure of r is returned as such.
func ReadFacts(ctx context.Context, r io.ReaderAt, size int64) (Facts, error) {
	db, err := boltfile.Open(ctx, r, size)
	if err != nil {
		return Facts{}, damage(err)
	}
	facts := Facts{PageSize: db.PageSize()}
	if other := db.OtherMeta(); other != nil {
		facts.DamagedMeta = other.Error()
	}
	for _, read := range []func(*boltfile.File, *Facts) error{readMeta, readRevision, readMembers, readAlarms, readAuth} {
		if err := read(db, &facts); err != nil {
			return Facts{}, damage(err)
		}
	}
	return facts, nil
}

// ErrTooOld says that etcd 3.4 wrote a database.
var ErrTooOld = errors.New("etcd 3.4 wrote it, which is out of support: start etcd 3.5 on a copy of the data directory, and take a snapshot of that")

// contentError is content that etcd cannot have written.
type contentError struct{ err error }

func (e *contentError) Error() string { return e.err.Error() }
func (e *contentError) Unwrap() error { return e.err }

func malformed(format string, args ...any) error {
	return &contentError{fmt.Errorf(format, args...)}
}

// damage turns what is wrong with the bytes into a *DamagedError, and leaves
// failures of the place that they come from as they are.
func damage(err error) error {
	var (
		page    *boltfile.PageError
		content *contentError
	)
	switch {
	case errors.As(err, &page):
		return &DamagedError{Object: "the database", Offset: page.Offset, Err: err}
	case errors.As(err, &content), errors.Is(err, boltfile.ErrNotDatabase):
		return &DamagedError{Object: "the database", Offset: -1, Err: err}
	}
	return err
}

// number returns a value of eight bytes, 0 where there is none.
func number(db *boltfile.File, bucket, key string) (uint64, error) {
	v, err := db.Get(bucket, key)
	if err != nil || v == nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, malformed("%s of bucket %s has %d bytes, not 8", key, bucket, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// readMeta reads where the image stands in the raft log, and its versions.
func readMeta(db *boltfile.File, facts *Facts) error {
	b, err := db.Bucket([]byte("meta"))
	if err != nil {
		return err
	}
	if b == nil {
		return malformed("no bucket meta: a bbolt database, but not one of etcd")
	}
	if facts.RaftIndex, err = number(db, "meta", "consistent_index"); err != nil {
		return err
	}
	if facts.RaftTerm, err = number(db, "meta", "term"); err != nil {
		return err
	}
	if facts.RaftIndex > 0 && facts.RaftTerm == 0 {
		return ErrTooOld // later versions keep the term of the last entry
	}
	storage, err := db.Get("meta", "storageVersion")
	if err != nil {
		return err
	}
	cluster, err := db.Get("cluster", "clusterVersion")
	if err != nil {
		return err
	}
	facts.StorageVersion, facts.ClusterVersion = string(storage), string(cluster)
	return nil
}

// readRevision reads what etcd's store would find when it opened the database
// (mvcc's restore): the newest revision in the key bucket or, where compaction
// has deleted that, the compacted one. A compaction that was scheduled and not
// finished counts, as etcd finishes it first of all.
func readRevision(db *boltfile.File, facts *Facts) error {
	scheduled, err := compaction(db, "scheduledCompactRev")
	if err != nil {
		return err
	}
	finished, err := compaction(db, "finishedCompactRev")
	if err != nil {
		return err
	}
	b, err := db.Bucket([]byte("key"))
	if err != nil {
		return err
	}
	if b == nil {
		return malformed("no bucket key: a bbolt database, but not one of etcd")
	}
	last, _, err := b.Last()
	if err != nil {
		return err
	}
	newest := boltfile.Row{Revision: boltfile.Revision{Main: 1}} // of an empty store
	if last != nil {
		if newest, err = boltfile.ParseRow(last); err != nil {
			return malformed("last key of bucket key: %w", err)
		}
	}
	facts.CompactedRevision = max(scheduled, finished)
	facts.Revision = max(newest.Main, facts.CompactedRevision, 1)
	return nil
}

// compaction returns the revision of a compaction, 0 where there was none.
func compaction(db *boltfile.File, key string) (int64, error) {
	v, err := db.Get("meta", key)
	if err != nil || v == nil {
		return 0, err
	}
	r, err := boltfile.ParseRow(v)
	if err != nil {
		return 0, malformed("%s: %w", key, err)
	}
	return r.Main, nil
}

// StoredMember is a row of the bucket members, as etcd stores it.
type StoredMember struct {
	ID         uint64   `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner"`
}

// eachMember calls do for the members, without those that were removed.
func eachMember(db *boltfile.File, do func(ID, StoredMember)) error {
	removed := map[ID]bool{}
	err := db.ForEach("members_removed", func(key, _ []byte) error {
		id, err := parseMemberID(key)
		removed[id] = true
		return err
	})
	if err != nil {
		return err
	}
	return db.ForEach("members", func(key, value []byte) error {
		id, err := parseMemberID(key)
		if err != nil || removed[id] {
			return err
		}
		var m StoredMember
		if err := json.Unmarshal(value, &m); err != nil {
			return malformed("member %s: %w", key, err)
		}
		do(id, m)
		return nil
	})
}

// ReadConfState reads raft's configuration, which etcd stores before it changes a member's
// row; nil if there is none.
func ReadConfState(db *boltfile.File) (*raftpb.ConfState, error) {
	raw, err := db.Get("meta", "confState")
	if err != nil || raw == nil {
		return nil, err
	}
	conf := &raftpb.ConfState{}
	if json.Unmarshal(raw, conf) != nil {
		return nil, malformed("raft's configuration (confState in bucket meta) cannot be decoded")
	}
	return conf, nil
}

func readMembers(db *boltfile.File, facts *Facts) error {
	conf, err := ReadConfState(db)
	if err != nil {
		return err
	}
	facts.Members = []Member{}
	err = eachMember(db, func(id ID, m StoredMember) {
		// etcd 3.5.1 to 3.5.19 leaves a promoted learner as a learner in the bucket.
		learner := m.IsLearner && !slices.Contains(conf.GetVoters(), uint64(id))
		facts.Members = append(facts.Members, Member{id, m.Name, m.PeerURLs, m.ClientURLs, learner})
	})
	slices.SortFunc(facts.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return err
}

func parseMemberID(key []byte) (id ID, err error) {
	if err := id.UnmarshalText(key); err != nil {
		return 0, malformed("member: %w", err)
	}
	return id, nil
}

// readAlarms reads the alarms that are raised: each is a key, without a value.
func readAlarms(db *boltfile.File, facts *Facts) error {
	return db.ForEach("alarm", func(key, _ []byte) error {
		var m etcdserverpb.AlarmMember
		if err := proto.Unmarshal(key, &m); err != nil {
			return malformed("alarm %x: %w", key, err)
		}
		facts.Alarms = append(facts.Alarms, Alarm{ID(m.MemberID), m.Alarm.String()})
		return nil
	})
}

// readAuth reads whether users and roles are enforced.
func readAuth(db *boltfile.File, facts *Facts) error {
	v, err := db.Get("auth", "authEnabled")
	facts.AuthEnabled = len(v) == 1 && v[0] == 1
	return err
}

// CheckStructure goes through all pages of the database in r, of size bytes
// without a trailing SHA-256, that hold content: for one that came without a
// sum, such as a db file that was copied from a running member and may be torn.
// Damage inside keys and values is not seen. What is found is a *DamagedError
// of the object name; a failure of r is returned as such.
func CheckStructure(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	bucket := "" // that is being read
	db, err := boltfile.Open(ctx, r, size)
	if err == nil {
		err = db.Root().EachElement(func(e boltfile.Element, _ int64) error {
			if !e.Bucket {
				return nil
			}
			bucket = string(e.Key)
			b, err := db.Bucket(e.Key)
			if err == nil && b == nil {
				err = malformed("is none")
			}
			if err == nil {
				err = b.ForEach(func(_, _ []byte) error { return ctx.Err() })
			}
			if err == nil {
				bucket = ""
			}
			return err
		})
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	if bucket != "" {
		err = fmt.Errorf("bucket %q: %w", bucket, err)
	}
	return &DamagedError{Object: name, Offset: -1, Err: err}
}
