package replaying

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/verify/report"
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
		case name == "authUsers" && sameButPassword(p):
			c.passwords = append(c.passwords, string(p.key))
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

// sameButPassword reports whether nothing but the hash of a user's password differs.
func sameButPassword(p pair) bool {
	var users [2]authpb.User
	for i := range users {
		if !p.in[i] || proto.Unmarshal(p.values[i], &users[i]) != nil || len(users[i].Password) == 0 {
			return false
		}
		users[i].Password = nil
	}
	return proto.Equal(&users[0], &users[1])
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
	checkpoints int
	raised      string
}

func (l *leftOut) sentences() []string {
	var all []string
	if len(l.member) > 0 {
		all = append(all, fmt.Sprintf("not compared, because each member writes it by itself: %s", strings.Join(l.member, ", ")))
	}
	all = append(all, l.unfinished...)
	if l.checkpoints > 0 {
		all = append(all, fmt.Sprintf("the time left of %d leases was not compared: members before etcd 3.6 do not all keep it", l.checkpoints))
	}
	if l.raised != "" {
		all = append(all, l.raised)
	}
	return all
}

// mostMinTTL is the most that a cluster raises a short lease to, in seconds: 1.5
// times etcd's longest election timeout.
const mostMinTTL = 75

// leaseTimes is what is known of leases whose granted times differ. A cluster
// raises short leases to a minimum that follows from its members' election
// timeout, which the log does not tell. All that were raised then have that
// minimum on one side, and no lease of that side has less.
type leaseTimes struct {
	longer   [2]int64 // how many are longer on this side
	value    [2]int64 // what the first of them has there
	several  bool     // they have several values there
	least    [2]int64 // the shortest of all leases of a side
	findings []report.Finding
	count    int64
}

// lease compares a row of bucket lease.
func (c *comparison) lease(p pair) {
	where := "bucket lease, " + leaseName(p.key)
	var leases [2]leasepb.Lease
	for i := range leases {
		if !p.in[i] {
			continue
		}
		if err := proto.Unmarshal(p.values[i], &leases[i]); err != nil {
			if !bytes.Equal(p.values[0], p.values[1]) {
				c.found(where, fmt.Sprintf("the row of %s cannot be decoded, and %s", c.sides[i].Name, c.how(p)))
			}
			return
		}
		if l := &c.leases.least[i]; *l == 0 || leases[i].TTL < *l {
			*l = leases[i].TTL
		}
	}
	switch {
	case !p.in[1]:
		c.missing(where, 0, "this lease")
	case !p.in[0]:
		c.missing(where, 1, "this lease")
	case !bytes.Equal(p.values[0], p.values[1]):
		c.leaseFields(where, &leases[0], &leases[1])
	}
}

func (c *comparison) leaseFields(where string, a, b *leasepb.Lease) {
	var all []string
	say := func(what string, a, b int64) {
		all = append(all, fmt.Sprintf("%s is %d in %s, and %d in %s", what, a, c.sides[0].Name, b, c.sides[1].Name))
	}
	if a.ID != b.ID {
		say("the lease's ID", a.ID, b.ID)
	}
	if a.RemainingTTL != b.RemainingTTL {
		if c.sides[0].storage || c.sides[1].storage {
			say("the time left, in seconds,", a.RemainingTTL, b.RemainingTTL)
		} else {
			c.left.checkpoints++
		}
	}
	switch {
	case len(all) > 0 && a.TTL != b.TTL:
		say("the granted time, in seconds,", a.TTL, b.TTL)
	case a.TTL != b.TTL:
		say("the granted time, in seconds,", a.TTL, b.TTL)
		c.leases.differ(a.TTL, b.TTL)
		if c.leases.count++; len(c.leases.findings) < maxFindings {
			c.leases.findings = append(c.leases.findings, report.Finding{Where: where, Text: strings.Join(all, "; ")})
		}
		return
	}
	if len(all) > 0 {
		c.found(where, strings.Join(all, "; "))
	}
}

func (l *leaseTimes) differ(a, b int64) {
	i, ttl := 0, a
	if b > a {
		i, ttl = 1, b
	}
	if l.longer[i]++; l.longer[i] == 1 {
		l.value[i] = ttl
	}
	l.several = l.several || l.value[i] != ttl
}

// leaseEnd decides whether the leases' times differ because short ones were
// raised to another minimum.
func (c *comparison) leaseEnd() {
	l := &c.leases
	i := 0
	if l.longer[1] > 0 {
		i = 1
	}
	if l.count > 0 && l.longer[1-i] == 0 && !l.several && l.value[i] <= mostMinTTL && l.least[i] == l.value[i] {
		c.left.raised = fmt.Sprintf("%d short leases were granted %d s in %s and less in %s, as if its members had raised them to their minimum, 1.5 times the election timeout: if that is not what they are configured to, these leases differ",
			l.count, l.value[i], c.sides[i].Name, c.sides[1-i].Name)
		return
	}
	for _, f := range l.findings {
		c.found(f.Where, f.Text)
	}
	c.differences += l.count - int64(len(l.findings))
}

func leaseName(key []byte) string {
	if len(key) != 8 {
		return fmt.Sprintf("row %x", key)
	}
	return fmt.Sprintf("lease %016x", binary.BigEndian.Uint64(key))
}
