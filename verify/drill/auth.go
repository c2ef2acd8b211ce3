package drill

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/pages"
)

// root is etcd's name for the user and for the role that may do everything.
const root = "root"

// firstAuthRevision is what etcd gives users and roles that have no revision.
const firstAuthRevision = 1

// authState is who may do what, as the image has it.
type authState struct {
	enabled  bool
	revision uint64
	users    []*authpb.User
	roles    []*authpb.Role

	// password is that of root, and of ordinary, in the copies.
	password string
	// ordinary is a user without the root role; empty where there is none.
	ordinary string
	// rootless says that nobody in the image is root: etcd refuses to turn
	// authentication on then. The copies have one.
	rootless bool
}

func readAuth(r *os.File, size int64) (*authState, error) {
	db, err := pages.Open(r, size)
	if err != nil {
		return nil, err
	}
	a := &authState{}
	if err := each(db, "authUsers", func(v []byte) error {
		u := &authpb.User{}
		a.users = append(a.users, u)
		return proto.Unmarshal(v, u)
	}); err != nil {
		return nil, err
	}
	if err := each(db, "authRoles", func(v []byte) error {
		r := &authpb.Role{}
		a.roles = append(a.roles, r)
		return proto.Unmarshal(v, r)
	}); err != nil {
		return nil, err
	}
	a.revision = firstAuthRevision
	b, err := db.Bucket([]byte("auth"))
	if err != nil || b == nil {
		return a, err
	}
	enabled, err := b.Get([]byte("authEnabled"))
	if err != nil {
		return nil, err
	}
	a.enabled = len(enabled) == 1 && enabled[0] == 1
	revision, err := b.Get([]byte("authRevision"))
	if len(revision) == 8 {
		a.revision = max(a.revision, binary.BigEndian.Uint64(revision))
	}
	return a, err
}

func each(db *pages.File, bucket string, do func(v []byte) error) error {
	b, err := db.Bucket([]byte(bucket))
	if err != nil || b == nil {
		return err
	}
	return b.ForEach(func(k, v []byte) error {
		if err := do(v); err != nil {
			return fmt.Errorf("%q of bucket %s cannot be decoded: %w", k, bucket, err)
		}
		return nil
	})
}

// prepare gives the users that the drill logs in with a password, in every copy:
// those of the image nobody knows here. Where authentication is off there is
// nothing to do.
func (a *authState) prepare(members []restore.Member) error {
	if !a.enabled {
		return nil
	}
	a.password = rand.Text()
	hash, err := bcrypt.GenerateFromPassword([]byte(a.password), bcrypt.MinCost)
	if err != nil {
		return err
	}
	changed := map[string]*authpb.User{}
	for _, u := range a.users {
		isRoot := slices.Contains(u.Roles, root)
		if string(u.Name) != root && (isRoot || a.ordinary != "") {
			continue
		}
		if string(u.Name) != root {
			a.ordinary = string(u.Name)
		}
		c := proto.Clone(u).(*authpb.User)
		c.Password = hash
		if c.Options != nil {
			c.Options.NoPassword = false
		}
		changed[string(u.Name)] = c
	}
	if u := changed[root]; u == nil || !slices.Contains(u.Roles, root) {
		a.rootless = true
		changed[root] = &authpb.User{Name: []byte(root), Password: hash, Roles: []string{root}}
	}
	for _, m := range members {
		if err := putUsers(database(m), changed); err != nil {
			return fmt.Errorf("member %s: %w", m.Name, err)
		}
	}
	return nil
}

// putUsers changes users in a database that nobody has open. bbolt panics on
// pages that make no sense.
func putUsers(path string, users map[string]*authpb.User) (err error) {
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
		b := tx.Bucket([]byte("authUsers"))
		for name, u := range users {
			v, err := proto.Marshal(u)
			if err != nil {
				return err
			}
			if err := b.Put([]byte(name), v); err != nil {
				return err
			}
		}
		return nil
	})
	return cmp.Or(err, db.Close())
}

// randomName is for keys that no image has.
func randomName() string {
	var b [8]byte
	rand.Read(b[:]) // never fails, by its documentation
	return hex.EncodeToString(b[:])
}
