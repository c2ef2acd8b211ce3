package verify

import (
	"context"
	"fmt"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/walfile"
)

// The messages with which etcd fails on a data directory. Operators search for the message
// that they see, so each finding or note has the one that belongs to it.
const (
	noDatabase = `etcd fails with "failed to recover v3 backend from snapshot" (failed to find database snapshot file), or starts with an empty database`
	noLog      = `do not start etcd on it: it would begin a new cluster, or fail with "member ... has already been bootstrapped" or "cluster ID mismatch"`
)

// etcdFails are the messages that belong to a kind of finding.
var etcdFails = map[report.Kind]string{
	report.KindLogCorrupt: `a log that is damaged or lacks a file: etcd fails with "walpb: crc mismatch", "wal: max entry size limit exceeded", "slice bounds out of range" or "wal: file not found"; or it deletes the rest of the log without an error (NAME.wal.broken), and acknowledged writes with it`,
	report.KindLogCut:     `a log without its end: etcd fails with "tocommit(N) is out of range [lastIndex(M)]" when a leader contacts it, or starts and lacks acknowledged writes`,
	report.KindPage:       `broken pages, mostly after a power cut or by the disk: etcd fails with "freepages: failed to get all reachable pages", "page already freed", "invalid page type", "Page expected to be: N, but self identifies as M", "invalid database" or "slice bounds out of range"`,
	report.KindMembership: `members that do not fit: etcd 3.6 and later fails with "too many learner members in cluster", or waits for members that were removed`,
}

// noteEtcdFails relates the findings to etcd's messages, and adds the commands that help.
func (d *dataDir) noteEtcdFails() {
	noted := map[report.Kind]bool{}
	for _, f := range d.report.Findings() {
		if text := etcdFails[f.Kind]; text != "" && !noted[f.Kind] {
			d.note("%s: %s", f.Kind, text)
			noted[f.Kind] = true
		}
	}
	for _, a := range d.facts.Alarms {
		if a.Type == "NOSPACE" {
			d.note(`the alarm NOSPACE of member %s is raised: etcd refuses writes with "mvcc: database space exceeded". Compact and defragment, or raise --quota-backend-bytes; then: etcdctl alarm disarm`, a.MemberID)
		}
	}
	dir, member := shell.Quote(d.dir), "MEMBER-ID"
	if id := snapshot.ID(d.log.Identity.MemberID); id != 0 {
		member = id.String()
	}
	readd := fmt.Sprintf("etcdctl member remove %s; move %s away; etcdctl member add NAME --peer-urls=URL; start etcd with --initial-cluster-state=existing", member, dir)
	others := fmt.Sprintf("requorum recover --local NAME=%s,NAME=DIR --data-dir NEW/{name} --dry-run", dir)
	if d.report.Status() == report.Damaged {
		d.noteNextStep(fmt.Sprintf("if the other members have a quorum: %s. If they do not: %s. For a single member: requorum restore --from-data-dir %s --data-dir NEW --initial-cluster NAME=URL", readd, others, dir))
	}
}

// noteOldRequests looks for requests of etcd 3.5 that etcd 3.7 reads again when it starts: those
// after the raft snapshot that it starts at. A member that was upgraded soon has them, since it
// takes a snapshot after 10,000 entries only.
func (d *dataDir) noteOldRequests(ctx context.Context) error {
	var v semver.Version
	if v.Set(d.facts.ClusterVersion) != nil || v.LessThan(semver.Version{Major: 3, Minor: 6}) {
		return nil // it runs 3.5, which the upgrade to 3.6 comes before
	}
	start, err := walreplay.StartIndex(d.dir, d.log)
	if err != nil {
		return err
	}
	log, err := walfile.Open(d.walDir)
	if err != nil {
		return nil // the level checksum reports it
	}
	for e, err := range log.Entries(ctx, max(start+1, d.log.FirstIndex)) {
		if err != nil {
			return ctx.Err() // a log with a hole or damage, which the level checksum reports
		}
		if e.Type != raftpb.EntryNormal || proto.Unmarshal(e.Data, &etcdserverpb.InternalRaftRequest{}) == nil {
			continue
		}
		d.note(`entry %d of the log is a request of etcd 3.5, and no raft snapshot is newer: etcd 3.7 fails with "unmarshal should never fail (proto: cannot parse invalid wire-format data)". Nothing is damaged. Start etcd 3.6 with --snapshot-count 10, write ten keys, and start 3.7 again; or build a new data directory: requorum restore --from-data-dir %s --data-dir NEW --initial-cluster NAME=URL`, e.Index, shell.Quote(d.dir))
		break
	}
	return nil
}
