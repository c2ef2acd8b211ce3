package serve

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// root is etcd's name for the user and for the role that may do everything.
const root = "root"

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
		if b == nil || proto.Unmarshal(b.Get([]byte(root)), u) != nil || !slices.Contains(u.Roles, root) {
			// Etcd refuses to turn authentication on then.
			return fault(report.KindServe, "authentication is enabled, and no user root with the role root exists: nobody could administer the cluster")
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
