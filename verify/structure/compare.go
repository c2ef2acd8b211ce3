package structure

import (
	"crypto/sha256"
	"reflect"

	"github.com/coreos/go-semver/semver"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// manifestCompaction is the compacted revision of the manifest's HashKV, when
// there is one that can be held against the database. The member that answered
// may have compacted meanwhile.
func (c *check) manifestCompaction() (int64, bool) {
	m := c.options.Manifest
	if m == nil || m.HashKV.Revision == 0 || m.HashKV.Revision != c.result.Facts.Revision {
		return 0, false
	}
	compacted := max(0, m.HashKV.CompactedRevision)
	return compacted, compacted >= c.db.meta.compacted() && compacted <= m.HashKV.Revision
}

// hash computes HashKV, and holds it against the manifest's.
func (c *check) hash(h *history, anyKey bool, rest long) {
	compacted := c.db.meta.compacted()
	c.result.HashKV = snapshot.HashKV{Obtained: "computed from the database", Hash: h.pieces.sum(compacted, anyKey, rest),
		Revision: c.result.Facts.Revision, CompactedRevision: compacted}
	if compacted == 0 {
		c.result.HashKV.CompactedRevision = -1 // as etcd has it
	}
	m := c.options.Manifest
	if m == nil || m.HashKV.Revision == 0 {
		c.compared("HashKV %d of revision %d was computed, with nothing to hold it against", c.result.HashKV.Hash, c.result.HashKV.Revision)
		return
	}
	other, ok := c.manifestCompaction()
	if !ok {
		c.found.add(report.KindHash, "", "the manifest's HashKV is of revision %d, compacted at %d: the database is at %d, compacted at %d",
			m.HashKV.Revision, m.HashKV.CompactedRevision, c.result.HashKV.Revision, c.result.HashKV.CompactedRevision)
		return
	}
	got := h.pieces.sum(other, anyKey, rest)
	switch {
	case got == m.HashKV.Hash:
		c.compared("HashKV %d of revision %d against the manifest's, which was obtained %s", got, m.HashKV.Revision, m.HashKV.Obtained)
	case !anyKey && hashesOtherwise(m.Source.Version):
		c.note("HashKV was not held against the manifest's: etcd %s hashes a database without keys in another way", m.Source.Version)
	default:
		c.found.add(report.KindHash, "", "HashKV at revision %d, compacted at %d, is %d: the manifest has %d, obtained %s",
			m.HashKV.Revision, m.HashKV.CompactedRevision, got, m.HashKV.Hash, m.HashKV.Obtained)
	}
}

// hashesOtherwise tells whether an etcd hashes deletions at the compacted
// revision as etcd does no more from 3.5.16 and 3.4.34 on.
func hashesOtherwise(version string) bool {
	v, err := semver.NewVersion(version)
	if err != nil {
		return false
	}
	return v.LessThan(semver.Version{Major: 3, Minor: 4, Patch: 34}) ||
		v.Minor == 5 && v.LessThan(semver.Version{Major: 3, Minor: 5, Patch: 16})
}

// compareManifest holds what the database says of itself against the manifest.
func (c *check) compareManifest() {
	m := c.options.Manifest
	if m == nil {
		return
	}
	differs := func(what string, found, said any) {
		if !reflect.DeepEqual(found, said) {
			c.found.add(report.KindFacts, "", "%s is %v, and the manifest has %v", what, found, said)
		}
	}
	if raw := m.Object.RawSize; raw != c.size+sha256.Size {
		differs("the database's size with its SHA-256", c.size+sha256.Size, raw)
	}
	if c.incomplete.Load() || c.unread != nil {
		return
	}
	found, said := reflect.ValueOf(c.result.Facts), reflect.ValueOf(m.Facts)
	for i := range found.NumField() {
		if found.Field(i).Kind() == reflect.Slice && found.Field(i).Len() == 0 && said.Field(i).Len() == 0 {
			continue // none is none, as null and as an empty list
		}
		differs(found.Type().Field(i).Tag.Get("json"), found.Field(i).Interface(), said.Field(i).Interface())
	}
	if n := m.Keys.Count; n != nil && !c.found.any() {
		differs("the number of keys", c.result.Keys, *n)
	}
	c.compared("revision, compacted revision, raft index and term, versions, members, alarms and authentication, size and number of keys against the manifest")
}
