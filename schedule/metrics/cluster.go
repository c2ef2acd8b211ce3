package metrics

import (
	"github.com/requorum/requorum/schedule/status"
)

// cluster are the cluster's members, as this agent sees them.
func cluster() []metric {
	each := func(value func(status.Member) float64) func(*status.Status, emit) {
		return func(s *status.Status, emit emit) {
			for _, m := range s.Cluster.Members {
				emit(value(m), m.Name, m.ID)
			}
		}
	}
	// answering leaves out members whose numbers nobody knows.
	answering := func(value func(status.Member) float64) func(*status.Status, emit) {
		return func(s *status.Status, emit emit) {
			for _, m := range s.Cluster.Members {
				if m.Error == "" {
					emit(value(m), m.Name, m.ID)
				}
			}
		}
	}
	return []metric{
		gauge("cluster_asked_timestamp_seconds", "When the cluster last answered. 0: never.",
			one(func(s *status.Status) float64 { return timestamp(s.Cluster.Asked) })),
		gauge("cluster_members", "Members of the cluster, as far as this agent knows.",
			one(func(s *status.Status) float64 { return float64(len(s.Cluster.Members)) })),
		gauge("cluster_member_up", "1 where the member answers this agent.",
			each(func(m status.Member) float64 { return yes(m.Error == "") }), "member", "member_id"),
		gauge("cluster_member_fit", "1 where backups may be read from the member now: it answers, is not catching up or defragmenting, and its disk is not slow.",
			each(func(m status.Member) float64 { return yes(m.Error == "" && m.Unfit == "") }), "member", "member_id"),
		gauge("cluster_member_revision", "The member's revision.",
			answering(func(m status.Member) float64 { return float64(m.Revision) }), "member", "member_id"),
		gauge("cluster_member_applied_index", "Raft index of the last entry that the member applied.",
			answering(func(m status.Member) float64 { return float64(m.Applied) }), "member", "member_id"),
		gauge("cluster_member_db_bytes", "Size of the member's database file.",
			answering(func(m status.Member) float64 { return float64(m.DBSize) }), "member", "member_id"),
		gauge("cluster_divergent_members", "Members whose history differs from the others'.",
			one(func(s *status.Status) float64 { return float64(len(s.Cluster.Divergent)) })),
		gauge("cluster_compared_timestamp_seconds", "When the members' histories were last held against each other. 0: never.",
			one(func(s *status.Status) float64 { return timestamp(s.Cluster.Compared) })),
	}
}
