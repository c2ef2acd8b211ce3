package structure

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// membership is what the buckets members and members_removed say.
type membership struct {
	list    []member
	removed map[snapshot.ID]bool
}

type member struct{ snapshot.StoredMember }

func (m member) id() snapshot.ID { return snapshot.ID(m.ID) }

func (m member) String() string { return fmt.Sprintf("member %s (%q)", m.id(), m.Name) }

func (c *check) memberRow(where string, key, value []byte) {
	id, ok := c.memberID(where, key)
	if !ok {
		return
	}
	var m member
	if err := json.Unmarshal(value, &m); err != nil {
		c.found.add(report.KindMembership, where, "member %s cannot be decoded: %v", id, err)
		return
	}
	if m.id() != id {
		c.found.add(report.KindMembership, where, "member %s says that its ID is %s", id, m.id())
		m.ID = uint64(id)
	}
	c.db.members.list = append(c.db.members.list, m)
}

func (c *check) removedRow(where string, key, _ []byte) {
	if id, ok := c.memberID(where, key); ok {
		if c.db.members.removed == nil {
			c.db.members.removed = map[snapshot.ID]bool{}
		}
		c.db.members.removed[id] = true
	}
}

func (c *check) memberID(where string, key []byte) (id snapshot.ID, ok bool) {
	if err := id.UnmarshalText(key); err != nil {
		c.found.add(report.KindMembership, where, "key %s is no member's ID", shown(key))
		return 0, false
	}
	return id, true
}

// beforeUpgrade is what to do about members that etcd before 3.5.26 left behind.
const beforeUpgrade = `etcd 3.5 does not use this list of members, and 3.6 does: there it fails with "too many learner members in cluster", or takes removed members for members. Upgrade each member to etcd 3.5.26 or later first, which corrects the list`

// checkMembers holds the members against each other, against those that were
// removed, and against the raft configuration.
func (c *check) checkMembers() {
	c.checkURLs()
	// etcd 3.5 reads its members from elsewhere, and leaves some here
	// that were removed.
	odd := func(format string, args ...any) {
		c.found.add(report.KindMembership, "", format, args...)
	}
	if c.db.meta.storage == nil {
		odd = func(format string, args ...any) {
			c.note(format+"; "+beforeUpgrade, args...)
		}
	}
	if c.db.meta.index <= uint64(len(c.db.members.list)) {
		// etcdutl changes the members, counts as many entries as there are, and
		// leaves the raft configuration as it was until the member starts.
		odd = func(format string, args ...any) {
			c.note(format+": a database that was restored, of a member that was not started yet", args...)
		}
	}
	var current []member
	for _, m := range c.db.members.list {
		if c.db.members.removed[m.id()] {
			odd("%s is among the members and among those that were removed", m)
			continue
		}
		current = append(current, m)
	}
	conf := c.db.meta.conf
	if conf == nil {
		return
	}
	if len(conf.Voters) == 0 {
		c.found.add(report.KindMembership, "bucket meta, confState", "no voters")
	}
	// What a change of one member that is under way leaves: etcd stores the raft
	// configuration first and the member after it, and a snapshot can come between.
	var ahead []string
	if !slices.ContainsFunc(current, func(m member) bool { return slices.Contains(conf.Voters, m.ID) || slices.Contains(conf.Learners, m.ID) }) {
		// A started member writes the configuration with its next change only.
		odd = func(format string, args ...any) {
			c.note(format+": a database that etcdutl restored, and no member was changed since", args...)
		}
	}
	for _, m := range current {
		voter, learner := slices.Contains(conf.Voters, m.ID), slices.Contains(conf.Learners, m.ID)
		switch {
		case !voter && !learner:
			ahead = append(ahead, fmt.Sprintf("%s is not in the raft configuration", m))
		case voter && learner:
			c.found.add(report.KindMembership, "bucket meta, confState", "%s is a voter and a learner", m)
		case m.IsLearner && voter:
			ahead = append(ahead, fmt.Sprintf("%s is a learner, and a voter in the raft configuration", m))
		case !m.IsLearner && learner: // nobody is demoted
			odd("%s is a voter, and a learner in the raft configuration", m)
		}
	}
	if c.incomplete.Load() {
		return
	}
	for _, id := range slices.Concat(conf.Voters, conf.Learners) {
		if !slices.ContainsFunc(current, func(m member) bool { return m.ID == id }) {
			ahead = append(ahead, fmt.Sprintf("the raft configuration has member %s, which is not among the members", snapshot.ID(id)))
		}
	}
	if len(ahead) == 1 {
		text := "the database is from the moment in which that member was changed, and the log goes on with it"
		if c.db.meta.storage == nil {
			text += "; or an etcd before 3.5.26 left it so: " + beforeUpgrade
		}
		c.note("%s: %s", ahead[0], text)
		return
	}
	for _, one := range ahead {
		odd("%s", one)
	}
}

func (c *check) checkURLs() {
	owner := map[string]member{}
	for _, m := range c.db.members.list {
		where := "bucket members"
		if len(m.PeerURLs) == 0 {
			c.found.add(report.KindMembership, where, "%s has no peer URL", m)
		}
		for _, u := range m.PeerURLs {
			if other, taken := owner[u]; taken && other.ID != m.ID && !c.db.members.removed[m.id()] && !c.db.members.removed[other.id()] {
				c.found.add(report.KindMembership, where, "%s and %s have the same peer URL %q", other, m, u)
			}
			owner[u] = m
		}
		for _, u := range slices.Concat(m.PeerURLs, m.ClientURLs) {
			if parsed, err := url.Parse(u); err != nil || parsed.Scheme == "" {
				c.found.add(report.KindMembership, where, "%s has the URL %q, which is none", m, u)
			}
		}
	}
}
