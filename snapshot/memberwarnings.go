package snapshot

import (
	"context"
	"fmt"
	"slices"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
)

const (
	// warningTries bounds how often a database is read that its member changes meanwhile.
	warningTries = 3
	// uncompacted is how many revisions a cluster that is compacted seldom keeps:
	// Kubernetes compacts every five minutes.
	uncompacted = 5_000_000
)

// Warnings are about what the member's database shows, and what would stop an upgrade or
// the member itself one day. A database that cannot be read has none.
func (l *LocalMember) Warnings(ctx context.Context) []string {
	for range warningTries {
		if found, err := databaseWarnings(ctx, l.Database); err == nil || ctx.Err() != nil {
			return found
		}
	}
	return nil
}

func databaseWarnings(ctx context.Context, path string) ([]string, error) {
	f, err := safedir.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	db, err := boltfile.Open(ctx, f, info.Size())
	if err != nil {
		return nil, err
	}
	var facts Facts
	for _, read := range []func(*boltfile.File, *Facts) error{readMeta, readRevision, readMembers} {
		if err := read(db, &facts); err != nil {
			return nil, err
		}
	}
	warnings, err := membershipWarnings(db, facts)
	if n := facts.Revision - facts.CompactedRevision; n > uncompacted {
		warnings = append(warnings, fmt.Sprintf("%d revisions since the last compaction (%d): unless Kubernetes compacts, set etcd's --auto-compaction-retention; the database grows until it is full", n, facts.CompactedRevision))
	}
	return warnings, err
}

// membershipWarnings compares the members in the database with the raft configuration.
// etcd 3.5 goes by the latter and 3.6 by the former; 3.5.1 to 3.5.19 did not store that a
// learner was promoted, and old ones left members that were removed.
func membershipWarnings(db *boltfile.File, facts Facts) (warnings []string, err error) {
	conf, err := ReadConfState(db)
	if err != nil || conf == nil || facts.StorageVersion != "" { // the latter from 3.6 on
		return nil, err
	}
	in := func(m Member) bool {
		return slices.Contains(conf.Voters, uint64(m.ID)) || slices.Contains(conf.Learners, uint64(m.ID))
	}
	if !slices.ContainsFunc(facts.Members, in) {
		return nil, nil // as etcdutl restores it: the configuration is the old cluster's
	}
	const next = "before an upgrade to 3.6, upgrade every member to etcd 3.5.26 or newer, which corrects it"
	learner := map[ID]bool{} // in the bucket; facts go by raft's configuration
	if err := eachMember(db, func(id ID, m StoredMember) { learner[id] = m.IsLearner }); err != nil {
		return nil, err
	}
	for _, m := range facts.Members {
		switch {
		case learner[m.ID] && slices.Contains(conf.Voters, uint64(m.ID)):
			warnings = append(warnings, fmt.Sprintf("member %s (%s) votes, and the database still has it as a learner: etcd 3.6 would start it as one: %s", m.Name, m.ID, next))
		case !in(m):
			warnings = append(warnings, fmt.Sprintf("member %s (%s) was removed, and is still in the database: etcd 3.6 would bring it back: %s", m.Name, m.ID, next))
		}
	}
	return warnings, nil
}
