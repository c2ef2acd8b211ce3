package structure

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

// bucketRoot is where a bucket's rows are: below a page, or in a page that lies
// inside of another one.
type bucketRoot struct {
	page   uint64
	inline boltfile.Page
	broken bool
}

// bucketNames are etcd's buckets, in the order in which they are looked at: what
// others refer to comes first. Each is made when etcd starts, but for cluster:
// etcdutl removes it when it restores.
var bucketNames = []string{"meta", "cluster", "members", "members_removed", "lease", "alarm", "auth", "authRoles", "authUsers", "key"}

// readRoot finds the buckets.
func (c *check) readRoot() error {
	c.buckets = map[string]bucketRoot{}
	return c.eachRow("root bucket", bucketRoot{page: c.meta.Root}, func(page uint64, e boltfile.Element) error {
		if !e.Bucket {
			c.found.add(report.KindBucket, pageAt(page), "%s stands among the buckets, and is none", shown(e.Key))
			return nil
		}
		root, inline, err := boltfile.ParseBucket(e.Value)
		if err != nil {
			c.found.add(report.KindBucket, fmt.Sprintf("%s, bucket %s", pageAt(page), shown(e.Key)), "%v", err)
			c.incomplete.Store(true)
		}
		c.buckets[string(e.Key)] = bucketRoot{root, inline, err != nil}
		return nil
	})
}

// eachRow calls do for each row of a bucket whose page can be read, in order.
// Buckets inside of it are no rows: etcd makes none; root bucket alone has them.
func (c *check) eachRow(name string, root bucketRoot, do func(page uint64, e boltfile.Element) error) error {
	if root.broken {
		return nil
	}
	isRoot := name == "root bucket"
	rows := func(id uint64, p boltfile.Page, l leaf) error {
		inPlace(&c.found, name, id, p, l)
		for i := range p.Len() {
			e := p.Element(i)
			if e.Bucket && !isRoot {
				c.found.add(report.KindBucket, pageAt(id), "bucket %s has a bucket %s inside", name, shown(e.Key))
				c.incomplete.Store(true)
				continue
			}
			if err := do(id, e); err != nil {
				return err
			}
		}
		return nil
	}
	if root.page == 0 {
		return rows(c.meta.Root, root.inline, leaf{root: true})
	}
	load := loader{src: c.src, meta: c.meta, reuse: true}
	return c.walk(name, root.page, func(s *leafGroup) error {
		c.found.join(&s.faults)
		return c.eachLeaf(&load, &c.found, name, s, func(l leaf, b loaded, p boltfile.Page) error { return rows(b.id, p, l) })
	})
}

// eachLeaf loads the leaves of a group, and calls do for those that can be
// read. The others are faults.
// torn is set in a leaf that comes behind such a one.
func (c *check) eachLeaf(load *loader, f *findings, name string, s *leafGroup, do func(leaf, loaded, boltfile.Page) error) error {
	torn := false
	ids := make([]uint64, len(s.leaves))
	for i, l := range s.leaves {
		ids[i] = l.id
	}
	for done := 0; done < len(ids); {
		all, err := load.load(ids[done:])
		if err != nil {
			return err
		}
		for i, b := range all {
			l := s.leaves[done+i]
			l.torn, torn = l.torn || torn, false
			p, err := b.page()
			if err == nil && !p.Leaf() {
				err = errors.New("it is a branch where a leaf must be")
			}
			if err != nil {
				f.add(report.KindPage, pageAt(b.id), "bucket %s: %v", name, err)
				c.incomplete.Store(true)
				torn = true
				continue
			}
			c.claimMore(f, b)
			if err := do(l, b, p); err != nil {
				return err
			}
		}
		done += len(all)
	}
	if torn {
		s.tornAtEnd = true
	}
	return nil
}

// inPlace checks that the keys of a leaf are in order and where they belong.
func inPlace(f *findings, name string, id uint64, p boltfile.Page, l leaf) bool {
	if p.Len() == 0 && !l.root {
		f.add(report.KindPage, pageAt(id), "bucket %s: a leaf without rows below a branch", name)
		return false
	}
	var before []byte
	for i := range p.Len() {
		key := p.Element(i).Key
		switch {
		case i > 0 && bytes.Compare(before, key) >= 0:
			f.add(report.KindPage, pageAt(id), "bucket %s: key %s follows %s, which is out of order", name, shown(key), shown(before))
			return false
		case i == 0 && l.low != nil && bytes.Compare(key, l.low) < 0:
			f.add(report.KindPage, pageAt(id), "bucket %s: key %s is below %s, with which the page has to begin", name, shown(key), shown(l.low))
			return false
		case i == p.Len()-1 && l.high != nil && bytes.Compare(key, l.high) >= 0:
			f.add(report.KindPage, pageAt(id), "bucket %s: key %s belongs into a later page, that begins with %s", name, shown(key), shown(l.high))
			return false
		}
		before = key
	}
	return true
}

// readSmallBuckets decodes all buckets but key.
func (c *check) readSmallBuckets() error {
	handlers := map[string]func(where string, key, value []byte){
		"meta": c.metaRow, "cluster": c.clusterRow, "members": c.memberRow, "members_removed": c.removedRow, "lease": c.leaseRow,
		"alarm": c.alarmRow, "auth": c.authRow, "authRoles": c.roleRow, "authUsers": c.userRow,
	}
	var rows int64
	for _, name := range bucketNames {
		handle := handlers[name]
		root, exists := c.buckets[name]
		if handle == nil || !exists {
			continue
		}
		err := c.eachRow(name, root, func(page uint64, e boltfile.Element) error {
			rows++
			handle(fmt.Sprintf("%s, bucket %s", pageAt(page), name), e.Key, e.Value)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := c.readUnknownBuckets(); err != nil {
		return err
	}
	c.checkMissingBuckets()
	c.checkCompactions()
	c.checkMembers()
	c.checkAuth()
	c.compared("%d rows of the buckets beside key, each decoded: members with the raft configuration, users with roles", rows)
	return nil
}

// readUnknownBuckets goes through the pages of buckets that a later etcd may
// have made.
func (c *check) readUnknownBuckets() error {
	known := map[string]bool{}
	for _, name := range bucketNames {
		known[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(c.buckets)) {
		if known[name] {
			continue
		}
		quoted := shown([]byte(name)) // as findings call it: anything can be in a name
		c.note("bucket %s is not one of etcd 3.5 to 3.7; etcd does not read it", quoted)
		if err := c.eachRow(quoted, c.buckets[name], func(uint64, boltfile.Element) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// checkMissingBuckets: etcd makes all of its buckets before it applies the first
// entry. A database from before that may have none.
func (c *check) checkMissingBuckets() {
	if c.incomplete.Load() {
		return
	}
	for _, name := range bucketNames {
		_, exists := c.buckets[name]
		if exists || name == "cluster" || name != "key" && name != "meta" && c.db.meta.index == 0 {
			continue
		}
		c.found.add(report.KindBucket, "", "bucket %s is missing: etcd makes it when it starts", name)
	}
}

// shown is a key for people: the revisions of rows as numbers, all else quoted,
// and cut where it is long.
func shown(key []byte) string {
	const most = 64
	if r, err := boltfile.ParseRow(key); err == nil {
		return "revision " + r.String()
	}
	if len(key) > most {
		return strconv.Quote(string(key[:most])) + "…"
	}
	return strconv.Quote(string(key))
}

// metaBucket is what the bucket meta says.
type metaBucket struct {
	index, term uint64
	// The last compactions that were scheduled and finished; 0 for none.
	scheduled, finished int64
	storage             *semver.Version
	conf                *raftpb.ConfState
}

// compacted is the revision up to which rows may be missing.
func (m *metaBucket) compacted() int64 { return max(m.scheduled, m.finished) }

// newestKnown is the newest storage version whose rows this package knows.
var newestKnown = semver.Version{Major: 3, Minor: 7}

func (c *check) metaRow(where string, key, value []byte) {
	m := &c.db.meta
	number := func(to *uint64) {
		if len(value) != 8 {
			c.found.add(report.KindRow, where, "%s has %d bytes, not 8", key, len(value))
			return
		}
		*to = binary.BigEndian.Uint64(value)
	}
	revision := func(to *int64) {
		r, err := boltfile.ParseRow(value)
		if err != nil || r.Deleted || r.Sub != 0 {
			c.found.add(report.KindRow, where, "%s is no revision: %x", key, value)
			return
		}
		*to = r.Main
	}
	switch string(key) {
	case "consistent_index":
		number(&m.index)
	case "term":
		number(&m.term)
	case "scheduledCompactRev":
		revision(&m.scheduled)
	case "finishedCompactRev":
		revision(&m.finished)
	case "storageVersion":
		m.storage = c.version(where, "storageVersion", value)
		if m.isNewer() {
			c.note("the database is of etcd %s; what is newer than %d.%d in it was not looked at", m.storage, newestKnown.Major, newestKnown.Minor)
		}
	case "confState":
		m.conf = &raftpb.ConfState{}
		if err := json.Unmarshal(value, m.conf); err != nil {
			c.found.add(report.KindMembership, where, "confState cannot be decoded: %v", err)
			m.conf = nil
		}
	default:
		c.note("bucket meta has a key %s, which etcd 3.5 to 3.7 do not know", shown(key))
	}
}

// checkCompactions: a compaction is scheduled before it is done.
func (c *check) checkCompactions() {
	// requorum and etcdutl mark a revision as compacted by scheduling it only, so
	// the two differ by any amount.
	if m := c.db.meta; m.finished > m.scheduled {
		c.found.add(report.KindHistory, "bucket meta", "the compaction of revision %d is finished, and the last one that was scheduled is of %d", m.finished, m.scheduled)
	}
}

// checkIndex: each revision is an entry's, and etcd notes the entry's index with
// it. Without, it would apply the whole log a second time.
func (c *check) checkIndex() {
	if c.db.meta.index == 0 && c.result.Facts.Revision > 1 && !c.incomplete.Load() {
		c.found.add(report.KindRow, "bucket meta", "consistent_index is missing or 0, and the database is at revision %d", c.result.Facts.Revision)
	}
}

func (c *check) clusterRow(where string, key, value []byte) {
	switch string(key) {
	case "clusterVersion":
		c.version(where, "clusterVersion", value)
	case "downgrade":
		var d struct {
			Target  string `json:"target-version"`
			Enabled bool   `json:"enabled"`
		}
		if err := json.Unmarshal(value, &d); err != nil {
			c.found.add(report.KindRow, where, "downgrade cannot be decoded: %v", err)
		} else if d.Enabled {
			c.version(where, "the target of the downgrade", []byte(d.Target))
		}
	default:
		c.note("bucket cluster has a key %s, which etcd 3.5 to 3.7 do not know", shown(key))
	}
}

// version reads a version; nil, and a fault, where it is none.
func (c *check) version(where, what string, value []byte) *semver.Version {
	v, err := semver.NewVersion(string(value))
	if err != nil {
		c.found.add(report.KindRow, where, "%s %s is no version", what, shown(value))
		return nil
	}
	return v
}

// isNewer reports whether an etcd wrote the database that this package does not
// know.
func (m *metaBucket) isNewer() bool {
	return m.storage != nil && newestKnown.LessThan(semver.Version{Major: m.storage.Major, Minor: m.storage.Minor})
}

// auth is what the buckets auth, authRoles and authUsers say.
type auth struct {
	enabled bool
	roles   map[string]bool
	root    *authpb.User
}

const rootName = "root" // of the user and of the role that may do everything

func (c *check) authRow(where string, key, value []byte) {
	switch string(key) {
	case "authEnabled":
		if len(value) != 1 || value[0] > 1 {
			c.found.add(report.KindAuth, where, "authEnabled is %x, neither on nor off", value)
			return
		}
		c.db.auth.enabled = value[0] == 1
	case "authRevision":
		if len(value) != 8 {
			c.found.add(report.KindAuth, where, "authRevision has %d bytes, not 8", len(value))
		}
	default:
		c.note("bucket auth has a key %s, which etcd 3.5 to 3.7 do not know", shown(key))
	}
}

func (c *check) roleRow(where string, key, value []byte) {
	var role authpb.Role
	if err := proto.Unmarshal(value, &role); err != nil {
		c.found.add(report.KindAuth, where, "role %s cannot be decoded: %v", shown(key), err)
		return
	}
	if c.db.auth.roles == nil {
		c.db.auth.roles = map[string]bool{}
	}
	c.db.auth.roles[string(key)] = true
	if !bytes.Equal(role.Name, key) {
		c.found.add(report.KindAuth, where, "role %s says that its name is %s", shown(key), shown(role.Name))
	}
	if unknown := role.ProtoReflect().GetUnknown(); len(unknown) > 0 && !c.db.meta.isNewer() {
		c.found.add(report.KindAuth, where, "role %s has fields that etcd does not know", shown(key))
	}
	// etcd looks for a permission by halving.
	if !slices.IsSortedFunc(role.KeyPermission, func(a, b *authpb.Permission) int { return bytes.Compare(a.Key, b.Key) }) {
		c.found.add(report.KindAuth, where, "role %s: its permissions are not in order", shown(key))
	}
	for _, p := range role.KeyPermission {
		if _, known := authpb.Permission_Type_name[int32(p.PermType)]; !known {
			c.found.add(report.KindAuth, where, "role %s: permission of the unknown type %d", shown(key), p.PermType)
		}
	}
}

func (c *check) userRow(where string, key, value []byte) {
	user := &authpb.User{}
	if err := proto.Unmarshal(value, user); err != nil {
		c.found.add(report.KindAuth, where, "user %s cannot be decoded: %v", shown(key), err)
		return
	}
	if !bytes.Equal(user.Name, key) {
		c.found.add(report.KindAuth, where, "user %s says that its name is %s", shown(key), shown(user.Name))
	}
	if unknown := user.ProtoReflect().GetUnknown(); len(unknown) > 0 && !c.db.meta.isNewer() {
		c.found.add(report.KindAuth, where, "user %s has fields that etcd does not know", shown(key))
	}
	// etcd looks for a role by halving.
	if !slices.IsSorted(user.Roles) {
		c.found.add(report.KindAuth, where, "user %s: its roles are not in order", shown(key))
	}
	for _, role := range user.Roles {
		// The role root may be granted without having been added.
		if role != rootName && !c.db.auth.roles[role] && !c.incomplete.Load() {
			c.found.add(report.KindAuth, where, "user %s has the role %s, which does not exist", shown(key), shown([]byte(role)))
		}
	}
	if string(key) == rootName {
		c.db.auth.root = user
	}
}

// checkAuth: etcd refuses what would leave nobody who may turn it off.
func (c *check) checkAuth() {
	if !c.db.auth.enabled || c.incomplete.Load() {
		return
	}
	switch root := c.db.auth.root; {
	case root == nil:
		c.found.add(report.KindAuth, "bucket authUsers", "authentication is on, and there is no user root")
	case !slices.Contains(root.Roles, rootName):
		c.found.add(report.KindAuth, "bucket authUsers", "authentication is on, and the user root has not the role root")
	}
}

// alarmRow decodes an alarm: it is a key, without a value.
func (c *check) alarmRow(where string, key, value []byte) {
	var m etcdserverpb.AlarmMember
	if err := proto.Unmarshal(key, &m); err != nil {
		c.found.add(report.KindRow, where, "an alarm cannot be decoded: %v", err)
		return
	}
	if _, known := etcdserverpb.AlarmType_name[int32(m.Alarm)]; !known || len(value) > 0 || len(m.ProtoReflect().GetUnknown()) > 0 {
		c.found.add(report.KindRow, where, "an alarm of the unknown type %d, with a value of %d bytes", m.Alarm, len(value))
	}
}

// leaseRow decodes a lease and remembers its ID.
func (c *check) leaseRow(where string, key, value []byte) {
	if len(key) != 8 {
		c.found.add(report.KindLease, where, "key %s is no lease's ID", shown(key))
		return
	}
	id := binary.BigEndian.Uint64(key)
	c.db.leases = append(c.db.leases, id)
	where = fmt.Sprintf("%s, lease %x", where, id)
	var l leasepb.Lease
	if err := proto.Unmarshal(value, &l); err != nil {
		c.found.add(report.KindLease, where, "it cannot be decoded: %v", err)
		return
	}
	switch {
	case uint64(l.ID) != id:
		c.found.add(report.KindLease, where, "it says that its ID is %x", uint64(l.ID))
	case id == uint64(lease.NoLease):
		c.found.add(report.KindLease, where, "ID 0 means no lease")
	case l.TTL <= 0 || l.TTL > lease.MaxLeaseTTL:
		c.found.add(report.KindLease, where, "a TTL of %d seconds: etcd grants 1 to %d", l.TTL, lease.MaxLeaseTTL)
	case l.RemainingTTL < 0 || l.RemainingTTL > l.TTL:
		c.found.add(report.KindLease, where, "%d seconds remain, of %d", l.RemainingTTL, l.TTL)
	case len(l.ProtoReflect().GetUnknown()) > 0 && !c.db.meta.isNewer():
		c.found.add(report.KindLease, where, "it has fields that etcd does not know")
	}
}

// hasLease reports whether a lease exists.
func (d *contents) hasLease(id int64) bool {
	_, found := slices.BinarySearch(d.leases, uint64(id))
	return found
}
