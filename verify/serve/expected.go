package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
)

// Expected is what a database holds beside its keys, as far as a cluster that was
// started from it can be held against it. Its JSON form is stable.
type Expected struct {
	// Leases are those of the database, at most MostLeases of them, spread over all;
	// LeaseCount is how many there are.
	Leases     []snapshot.Lease `json:"leases"`
	LeaseCount int              `json:"lease_count"`

	AuthEnabled  bool     `json:"auth_enabled"`
	AuthRevision uint64   `json:"auth_revision"`
	Users        []string `json:"users,omitempty"`
	Roles        []string `json:"roles,omitempty"`

	root bool // there is a user root with the role root
	// keys are some keys with what they hold, nil where they were deleted. A drill
	// reads them; they do not leave the host.
	keys map[string]*keyState
}

// MostLeases is how many leases an Expected names.
const MostLeases = 1000

// firstAuthRevision is what etcd gives users and roles that have no revision.
const firstAuthRevision = 1

// root is etcd's name for the user and for the role that may do everything.
const root = "root"

// ReadExpected reads what an Expected needs from the bytes of a database. A damaged
// one is an error that names the page.
func ReadExpected(ctx context.Context, r io.ReaderAt, size int64) (*Expected, error) {
	db, err := boltfile.Open(ctx, r, size)
	if err != nil {
		return nil, err
	}
	e := &Expected{Leases: []snapshot.Lease{}, AuthRevision: firstAuthRevision}
	// One in every: whenever there are too many, every second one goes.
	every := 1
	err = snapshot.EachLease(db, func(l snapshot.Lease) error {
		if e.LeaseCount%every == 0 {
			e.Leases = append(e.Leases, l)
		}
		e.LeaseCount++
		if n := len(e.Leases); n > MostLeases {
			for k := range (n + 1) / 2 {
				e.Leases[k] = e.Leases[2*k]
			}
			e.Leases, every = e.Leases[:(n+1)/2], 2*every
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return e, e.readAuth(db)
}

func (e *Expected) readAuth(db *boltfile.File) error {
	err := each(db, "authUsers", func(k, v []byte) error {
		e.Users = append(e.Users, string(k))
		u := &authpb.User{}
		err := proto.Unmarshal(v, u)
		e.root = e.root || string(k) == root && slices.Contains(u.Roles, root)
		return err
	})
	if err != nil {
		return err
	}
	if err := each(db, "authRoles", func(k, _ []byte) error {
		e.Roles = append(e.Roles, string(k))
		return nil
	}); err != nil {
		return err
	}
	enabled, err := db.Get("auth", "authEnabled")
	if err != nil {
		return err
	}
	e.AuthEnabled = len(enabled) == 1 && enabled[0] == 1
	revision, err := db.Get("auth", "authRevision")
	if len(revision) == 8 {
		e.AuthRevision = max(e.AuthRevision, binary.BigEndian.Uint64(revision))
	}
	return err
}

// each calls do for the rows of a bucket, which need not be there, and says which one
// cannot be decoded.
func each(db *boltfile.File, bucket string, do func(k, v []byte) error) error {
	return db.ForEach(bucket, func(k, v []byte) error {
		if err := do(k, v); err != nil {
			return fmt.Errorf("%q of bucket %s cannot be decoded: %w", k, bucket, err)
		}
		return nil
	})
}

// mostKeys is how many keys are read of the cluster of a drill: enough that a fault
// in one of a hundred is found all but surely, and a second's work.
const mostKeys = 1000

// keyState is what a client sees of a key, with the value's sum instead of the
// value.
type keyState struct {
	create, mod, version, lease int64
	size                        int
	sum                         [sha256.Size]byte
}

func stateOf(kv *mvccpb.KeyValue) *keyState {
	return &keyState{
		create: kv.CreateRevision, mod: kv.ModRevision, version: kv.Version, lease: kv.Lease,
		size: len(kv.Value), sum: sha256.Sum256(kv.Value),
	}
}

func (s *keyState) String() string {
	if s == nil {
		return "nothing"
	}
	return fmt.Sprintf("version %d, created at revision %d, modified at %d, with lease %016x and %d bytes of SHA-256 %x…", s.version, s.create, s.mod, s.lease, s.size, s.sum[:4])
}

// sampleKeys keeps the newest state of random keys: of those whose hash is below a
// limit, which is halved whenever there are too many.
func (e *Expected) sampleKeys(ctx context.Context, r io.ReaderAt, size int64) error {
	db, err := boltfile.Open(ctx, r, size)
	if err != nil {
		return err
	}
	if b, err := db.Bucket([]byte("key")); err != nil || b == nil {
		return cmp.Or(err, fmt.Errorf("the database has no bucket key"))
	}
	e.keys = map[string]*keyState{}
	seed, limit := maphash.MakeSeed(), uint64(math.MaxUint64)
	return each(db, "key", func(k, v []byte) error {
		at, err := boltfile.ParseRow(k)
		if err != nil {
			return err
		}
		key, err := boltfile.KeyOf(v)
		// Rows without a key raise the revision, and no client sees them.
		if err != nil || len(key) == 0 || maphash.Bytes(seed, key) > limit {
			return err
		}
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(v, &kv); err != nil {
			return err
		}
		e.keys[string(key)] = nil
		if !at.Deleted {
			// What the row says of its revision has to agree when it is served.
			e.keys[string(key)] = stateOf(&kv)
			e.keys[string(key)].mod = at.Main
		}
		for len(e.keys) > mostKeys {
			limit /= 2
			for key := range e.keys {
				if maphash.String(seed, key) > limit {
					delete(e.keys, key)
				}
			}
		}
		return ctx.Err()
	})
}

// setRootPassword gives root a password in every copy: that of the image nobody
// knows here.
func setRootPassword(members []restore.Member) (string, error) {
	password := rand.Text()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		return "", err
	}
	for _, m := range members {
		if err := putRootPassword(database(m), hash); err != nil {
			return "", fmt.Errorf("member %s: %w", m.Name, err)
		}
	}
	return password, nil
}

// putRootPassword changes a database that nobody has open. bbolt panics on pages
// that make no sense.
func putRootPassword(path string, hash []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &snapshot.DamagedError{Object: path, Offset: -1, Err: fmt.Errorf("its pages make no sense: %v", r)}
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, NoSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, u := tx.Bucket([]byte("authUsers")), &authpb.User{}
		if err := proto.Unmarshal(b.Get([]byte(root)), u); err != nil {
			return err
		}
		u.Password = hash
		if u.Options != nil {
			u.Options.NoPassword = false
		}
		v, err := proto.Marshal(u)
		if err != nil {
			return err
		}
		return b.Put([]byte(root), v)
	})
	return cmp.Or(err, db.Close())
}
