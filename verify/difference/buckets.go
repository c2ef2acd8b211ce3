package difference

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// bucketNames are the buckets of either side, but for key.
func (c *comparison) bucketNames() ([]string, error) {
	names := map[string]bool{}
	for _, s := range c.sides {
		err := s.db.Root().ForEach(func(name, value []byte) error {
			if value == nil && string(name) != "key" {
				names[string(name)] = true
			}
			return nil
		})
		if err != nil {
			return nil, damage(s.Name, err)
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// bucket compares one that is not key. A bucket that is not there is one without
// rows: each version makes them in its own time.
func (c *comparison) bucket(name string) error {
	var (
		all [2]*rows
		err error
	)
	for i, s := range c.sides {
		if all[i], err = s.rows(name); err != nil {
			return err
		}
	}
	var compared int64
	err = c.join(all, func(_ int, r *rows) error { return r.next() }, func(p pair) error {
		if c.unreplicated(name, p) {
			return nil
		}
		compared++
		switch {
		case name == "lease":
			c.lease(p)
		case p.in[0] && p.in[1] && bytes.Equal(p.values[0], p.values[1]):
		case name == "authUsers" && c.sameButPassword(p):
		default:
			where := fmt.Sprintf("bucket %s, %s", name, rowName(name, p.key))
			c.found(where, c.how(p))
		}
		return nil
	})
	if name == "lease" {
		c.leaseEnd()
	}
	c.rows += compared
	if compared > 0 {
		c.buckets = append(c.buckets, fmt.Sprintf("%s %d", name, compared))
	}
	return err
}

// ofMember are the rows of bucket meta that each member writes for itself.
var ofMember = []string{"confState", "consistent_index", "storageVersion", "term"}

// unreplicated passes over a row that the log does not give, and remembers it
// where the sides differ in it.
func (c *comparison) unreplicated(bucket string, p pair) bool {
	differ := p.in[0] != p.in[1] || !bytes.Equal(p.values[0], p.values[1])
	key := string(p.key)
	switch bucket {
	case "meta":
		if slices.Contains(ofMember, key) {
			if differ {
				c.left.member = append(c.left.member, "meta/"+key)
			}
			return true
		}
		return key == "scheduledCompactRev" || key == "finishedCompactRev" // see compactions
	case "cluster":
		// A version that did not know of it has not written it.
		if (key == "clusterVersion" || key == "downgrade") && p.in[0] != p.in[1] {
			c.left.member = append(c.left.member, "cluster/"+key)
			return true
		}
	}
	return false
}

// sameButPassword tells whether nothing but the hash of a user's password
// differs, and may.
func (c *comparison) sameButPassword(p pair) bool {
	if c.o.OwnPassword == nil || !p.in[0] || !p.in[1] {
		return false
	}
	var (
		users  [2]authpb.User
		hashes [2][]byte
	)
	for i := range users {
		if proto.Unmarshal(p.values[i], &users[i]) != nil || len(users[i].Password) == 0 {
			return false
		}
		hashes[i], users[i].Password = users[i].Password, nil
	}
	if !proto.Equal(&users[0], &users[1]) || !c.o.OwnPassword(string(p.key), hashes[0], hashes[1]) {
		return false
	}
	c.left.passwords++
	return true
}

// rowName says what a row of a bucket is, for people.
func rowName(bucket string, key []byte) string {
	switch bucket {
	case "authUsers":
		return fmt.Sprintf("user %q", key)
	case "authRoles":
		return fmt.Sprintf("role %q", key)
	case "members", "members_removed":
		return fmt.Sprintf("member %s", key)
	case "alarm":
		var m etcdserverpb.AlarmMember
		if proto.Unmarshal(key, &m) == nil {
			return fmt.Sprintf("alarm %s of member %016x", m.Alarm, m.MemberID)
		}
	case "meta", "auth", "cluster":
		return string(key)
	}
	return fmt.Sprintf("row %q", key)
}

// leftOut is what was met and not compared.
type leftOut struct {
	member      []string
	unfinished  []string
	passwords   int
	checkpoints int
	raised      string
}

func (l *leftOut) sentences() []string {
	var all []string
	if len(l.member) > 0 {
		all = append(all, fmt.Sprintf("not compared, because each member writes it by itself: %s", strings.Join(l.member, ", ")))
	}
	all = append(all, l.unfinished...)
	if l.passwords > 0 {
		all = append(all, fmt.Sprintf("the hashes of %d passwords were not compared: each member of etcd 3.4 made its own", l.passwords))
	}
	if l.checkpoints > 0 {
		all = append(all, fmt.Sprintf("the time left of %d leases was not compared: members before etcd 3.6 do not all keep it", l.checkpoints))
	}
	if l.raised != "" {
		all = append(all, l.raised)
	}
	return all
}
