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
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/boltfile"
)

// ReadFacts reads what the database in r, of size bytes without a trailing
// SHA-256, says of itself. It knows the databases of etcd 3.4 to 3.7, and
// touches the few pages on the way to what it reads, whatever the size.
//
// Bytes that are no etcd database are a *DamagedError; a failure of r is
// returned as such.
func ReadFacts(ctx context.Context, r io.ReaderAt, size int64) (Facts, error) {
	db, err := boltfile.Open(ctx, r, size)
	if err != nil {
		return Facts{}, damage(err)
	}
	facts := Facts{PageSize: db.PageSize()}
	for _, read := range []func(*boltfile.File, *Facts) error{readMeta, readRevision, readMembers, readAlarms, readAuth} {
		if err := read(db, &facts); err != nil {
			return Facts{}, damage(err)
		}
	}
	return facts, nil
}

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

// readMembers reads the members, without those that were removed.
func readMembers(db *boltfile.File, facts *Facts) error {
	removed := map[ID]bool{}
	err := db.ForEach("members_removed", func(key, _ []byte) error {
		id, err := parseMemberID(key)
		removed[id] = true
		return err
	})
	if err != nil {
		return err
	}
	facts.Members = []Member{}
	err = db.ForEach("members", func(key, value []byte) error {
		id, err := parseMemberID(key)
		if err != nil || removed[id] {
			return err
		}
		var m struct {
			Name       string   `json:"name"`
			PeerURLs   []string `json:"peerURLs"`
			ClientURLs []string `json:"clientURLs"`
			IsLearner  bool     `json:"isLearner"`
		}
		if err := json.Unmarshal(value, &m); err != nil {
			return malformed("member %s: %w", key, err)
		}
		facts.Members = append(facts.Members, Member{id, m.Name, m.PeerURLs, m.ClientURLs, m.IsLearner})
		return nil
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

// Lease is a lease of a database, in seconds.
type Lease struct {
	ID  int64 `json:"id"`
	TTL int64 `json:"ttl"` // that a member gives it
	// Left is what it lives from a start on: less than TTL where its cluster noted how
	// much was left (--experimental-enable-lease-checkpoint).
	Left int64 `json:"left"`
}

// MinLeaseTTL is what members raise shorter leases to, in seconds: one and a half
// times etcd's election timeout of a second, rounded up.
const MinLeaseTTL = 2

// EachLease calls do for all leases of a database, by ID. An error of do ends it.
func EachLease(db *boltfile.File, do func(Lease) error) error {
	return db.ForEach("lease", func(k, v []byte) error {
		var l leasepb.Lease
		if err := proto.Unmarshal(v, &l); err != nil || len(k) != 8 {
			return fmt.Errorf("lease %x cannot be decoded: %w", k, err)
		}
		if key := int64(binary.BigEndian.Uint64(k)); key != l.ID {
			return fmt.Errorf("lease %016x is kept as lease %016x", l.ID, key)
		}
		one := Lease{ID: l.ID, TTL: max(l.TTL, MinLeaseTTL)}
		one.Left = one.TTL
		if l.RemainingTTL > 0 {
			one.Left = min(l.RemainingTTL, one.TTL)
		}
		return do(one)
	})
}

// CheckStructure goes through all pages of the database in r, of size bytes
// without a trailing SHA-256, that hold content: for one that came without a
// sum, such as a db file that was copied from a running member and may be torn.
// Damage inside keys and values is not seen. What is found is a *DamagedError
// of the object name; a failure of r is returned as such.
func CheckStructure(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	wrap := func(what string, err error) error {
		if what != "" {
			err = fmt.Errorf("bucket %q: %w", what, err)
		}
		return &DamagedError{Object: name, Offset: -1, Err: err}
	}
	db, err := boltfile.Open(ctx, r, size)
	if err != nil {
		return endOr(ctx, err, wrap("", err))
	}
	root := db.Root().Cursor()
	for key, value, err := root.First(); key != nil || err != nil; key, value, err = root.Next() {
		if err != nil {
			return endOr(ctx, err, wrap("", err))
		}
		if value != nil {
			continue
		}
		b, err := db.Bucket(key)
		if err == nil && b == nil {
			err = malformed("is none")
		}
		if err == nil {
			err = b.ForEach(func(_, _ []byte) error { return ctx.Err() })
		}
		if err != nil {
			return endOr(ctx, err, wrap(string(key), err))
		}
	}
	return nil
}

// endOr is err itself where the context has ended, and damage otherwise.
func endOr(ctx context.Context, err, damage error) error {
	if ctx.Err() != nil {
		return err
	}
	return damage
}
