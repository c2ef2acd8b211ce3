package structure

import (
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/coreos/go-semver/semver"

	"github.com/requorum/requorum/snapshot/rowkey"
	"github.com/requorum/requorum/verify/report"
)

// metaBucket is what the bucket meta says.
type metaBucket struct {
	index, term uint64
	// The last compactions that were scheduled and finished; 0 for none.
	scheduled, finished int64
	storage             *semver.Version
	conf                *confState
}

// compacted is the revision up to which rows may be missing.
func (m *metaBucket) compacted() int64 { return max(m.scheduled, m.finished) }

// confState is raft's configuration as etcd stores it, as JSON, from 3.5 on.
type confState struct {
	Voters         []uint64 `json:"voters"`
	Learners       []uint64 `json:"learners"`
	VotersOutgoing []uint64 `json:"voters_outgoing"`
	LearnersNext   []uint64 `json:"learners_next"`
}

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
		r, err := rowkey.Parse(value)
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
		m.conf = &confState{}
		if err := json.Unmarshal(value, m.conf); err != nil {
			c.found.add(report.KindMembership, where, "confState cannot be decoded: %v", err)
			m.conf = nil
		}
	default:
		c.note("bucket meta has a key %s, which etcd 3.4 to 3.7 do not know", shown(key))
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
		c.note("bucket cluster has a key %s, which etcd 3.4 to 3.7 do not know", shown(key))
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

// isNewer tells whether an etcd wrote the database that this package does not
// know.
func (m *metaBucket) isNewer() bool {
	return m.storage != nil && newestKnown.LessThan(semver.Version{Major: m.storage.Major, Minor: m.storage.Minor})
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
