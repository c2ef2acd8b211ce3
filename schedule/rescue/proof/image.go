package proof

import (
	"context"
	"encoding/binary"
	"io"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/pages"
)

// Image is what a database holds beside its keys, as far as a cluster that was
// started from it can be held against it. Its JSON form is stable.
type Image struct {
	// Leases are those of the database, at most MostLeases of them, spread over all;
	// LeaseCount is how many there are.
	Leases     []snapshot.Lease `json:"leases"`
	LeaseCount int              `json:"lease_count"`

	AuthEnabled  bool     `json:"auth_enabled"`
	AuthRevision uint64   `json:"auth_revision"`
	Users        []string `json:"users,omitempty"`
	Roles        []string `json:"roles,omitempty"`
}

// MostLeases is how many leases an Image names.
const MostLeases = 1000

// firstAuthRevision is what etcd gives users and roles that have no revision.
const firstAuthRevision = 1

// ReadImage reads what an Image needs from the bytes of a database. A damaged one
// is an error that names the page.
func ReadImage(ctx context.Context, r io.ReaderAt, size int64) (*Image, error) {
	db, err := pages.Open(r, size)
	if err != nil {
		return nil, err
	}
	i := &Image{Leases: []snapshot.Lease{}, AuthRevision: firstAuthRevision}
	// One in every: whenever there are too many, every second one goes.
	every := 1
	err = snapshot.EachLease(db, func(l snapshot.Lease) error {
		if i.LeaseCount%every == 0 {
			i.Leases = append(i.Leases, l)
		}
		i.LeaseCount++
		if n := len(i.Leases); n > MostLeases {
			for k := range (n + 1) / 2 {
				i.Leases[k] = i.Leases[2*k]
			}
			i.Leases, every = i.Leases[:(n+1)/2], 2*every
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	for bucket, names := range map[string]*[]string{"authUsers": &i.Users, "authRoles": &i.Roles} {
		if err := eachName(db, bucket, names); err != nil {
			return nil, err
		}
	}
	return i, i.readAuth(db)
}

func eachName(db *pages.File, bucket string, names *[]string) error {
	b, err := db.Bucket([]byte(bucket))
	if err != nil || b == nil {
		return err
	}
	return b.ForEach(func(k, _ []byte) error {
		*names = append(*names, string(k))
		return nil
	})
}

func (i *Image) readAuth(db *pages.File) error {
	b, err := db.Bucket([]byte("auth"))
	if err != nil || b == nil {
		return err
	}
	enabled, err := b.Get([]byte("authEnabled"))
	if err != nil {
		return err
	}
	i.AuthEnabled = len(enabled) == 1 && enabled[0] == 1
	revision, err := b.Get([]byte("authRevision"))
	if len(revision) == 8 {
		i.AuthRevision = max(i.AuthRevision, binary.BigEndian.Uint64(revision))
	}
	return err
}
