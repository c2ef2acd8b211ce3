package verify

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/structure"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/walfile"
)

const foreignReason = "the log is of another member than the database: see the rung structure"

// compareOwner holds the member whose log it is against those that the database
// knows. One that is new catches up through states from before it was added: the
// database has to be behind the last entry that speaks of it.
func (d *dataDir) compareOwner(c *report.Check, log *walfile.Summary, db structure.Result) {
	owner := snapshot.ID(log.Identity.MemberID)
	if owner == 0 || len(db.Known) == 0 || db.Facts.RaftIndex < d.changed {
		return
	}
	c.Compared += "; the members that it knows with the one whose log it is"
	if slices.Contains(db.Known, owner) {
		return
	}
	d.foreign = true
	c.Status = report.Damaged
	found(c, report.Finding{Kind: report.KindMembership, Object: d.walDir,
		Text: fmt.Sprintf("the log is of %s, which this database does not know as a member, not even as one that was removed: it is the log of another cluster. Put back the log that was beside this database, or give its folder with --wal-dir; the database alone can be restored with 'requorum restore --file'", log.Identity)})
}

// changesMember tells an entry that may add a member or remove it.
func changesMember(e raftlog.Entry, id uint64) bool {
	switch e.Type {
	case raftpb.EntryConfChange:
		var change raftpb.ConfChange
		return proto.Unmarshal(e.Data, &change) != nil || change.GetNodeId() == id
	case raftpb.EntryConfChangeV2:
		return true
	default:
		return false
	}
}
