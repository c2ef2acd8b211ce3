package web

import (
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

var (
	shown   = time.Date(2026, 11, 21, 10, 33, 33, 0, time.UTC) // when the pages are
	first   = repository.TimelineID{ClusterID: 0x5e0a1c94b7d2f386, N: 1}
	second  = repository.TimelineID{ClusterID: 0x9c41f0b2a7735d18, N: 1}
	million = uint64(1_000_000)
)

// healthy is a cluster half a year old that was restored once.
func healthy() *Status {
	restored := shown.Add(-41 * day)
	s := &Status{
		Time: shown, Started: shown.Add(-9 * day), Agent: "etcd-1", Tool: "requorum 1.0.0", Writer: true,
		Cluster: Cluster{
			ID: "9c41f0b2a7735d18", Asked: shown.Add(-4 * time.Second), Divergent: []string{},
			Compared: shown.Add(-30 * time.Hour), ComparedRevision: 48_112_004,
			Members: []Member{
				{ID: "8e9e05c52164694d", Name: "etcd-1", Endpoint: "https://10.4.0.11:2379", Version: "3.6.16", Role: "follower", Local: true, Revision: 48_903_117, Applied: 51_204_899, DBSize: 1_486_000_000},
				{ID: "91bc3c398fb3c146", Name: "etcd-2", Endpoint: "https://10.4.0.12:2379", Version: "3.6.16", Role: "leader", Revision: 48_903_117, Applied: 51_204_899, DBSize: 1_490_100_000},
				{ID: "fd422379fda50e48", Name: "etcd-3", Endpoint: "https://10.4.0.13:2379", Version: "3.6.16", Role: "follower", Revision: 48_903_116, Applied: 51_204_898, DBSize: 1_485_700_000},
			},
		},
		Archive: &archive.State{
			Role: archive.Writer, Timeline: second, Archived: 51_204_870, Recoverable: 51_204_870, Applied: 51_204_899, Released: 51_204_899, Read: 51_204_899,
			SpoolLimit: 2 << 30, Behind: 1400 * time.Millisecond, BehindEntries: 29, Segments: 18_204, Bytes: 6_200_000_000, ArchivedTime: shown.Add(-2 * time.Second),
		},
		RPO:        RPO{Known: true, Until: shown.Add(-2 * time.Second), Seconds: 2, Text: "Nothing older than 2 s would be lost."},
		RTO:        RTO{Known: true, Seconds: 48, Measured: shown.Add(-6 * day), Text: "48 s from the repository to the first write on a new cluster of three, in the last drill."},
		Objectives: Objectives{RecoveryPoint: 60, VerifiedWithin: 48 * 3600, CertificateNotice: 14 * 86400},
		Certificates: []Certificate{
			{Use: "etcd client", Place: "/etc/requorum/client.crt", Expires: shown.Add(212 * day)},
			{Use: "etcd server", Place: "https://10.4.0.11:2379", Expires: shown.Add(212 * day)},
		},
		Problems: []Problem{},
	}
	s.Repository = Repository{
		URL: "s3://backups/etcd-prod?region=eu-central-1", ID: "01J9ZK4Q7", Listed: shown.Add(-95 * time.Second),
		Timeline: second, FullBytes: 21_900_000_000, LogBytes: 9_400_000_000,
		Timelines: []repository.Timeline{
			{ID: first, Created: shown.Add(-190 * day), Reason: "first backup"},
			{ID: second, Created: restored, Reason: "restored after a lost quorum", Parent: &repository.Branch{Timeline: first, RaftIndex: 39_118_402}},
		},
	}
	add := func(t repository.TimelineID, at time.Time, level report.Level) {
		index := 51*million - uint64(shown.Sub(at)/time.Second)*4
		b := Backup{
			ID: at.Format("20060102T150405Z") + "-4be1c0", Timeline: t, Time: at, Finished: at.Add(19 * time.Second),
			Revision: int64(index) - 2_000_000, Index: index, Stored: 402_000_000, Raw: 1_480_000_000, Source: "etcd-1",
			Proved: level,
		}
		if level != "" {
			b.ProvedAt = at.Add(3 * time.Hour)
		}
		if level == report.Drill {
			b.ProvedAt = at.Add(4*time.Hour + 20*time.Minute)
		}
		s.Repository.Backups = append(s.Repository.Backups, b)
	}
	for m := 6; m >= 2; m-- { // monthly ones of before
		add(first, time.Date(2026, time.Month(11-m), 15, 1, 12, 0, 0, time.UTC), report.Replay)
	}
	at := time.Date(2026, 11, 21, 1, 12, 0, 0, time.UTC)
	for d := 35; d >= 0; d-- {
		level := report.Replay
		switch {
		case d == 0:
			level = report.Structure
		case d%7 == 6:
			level = report.Drill
		}
		add(second, at.Add(-time.Duration(d)*day), level)
		if d < 7 {
			for h := 6; h < 24 && at.Add(-time.Duration(d)*day+time.Duration(h)*time.Hour).Before(shown); h += 6 {
				add(second, at.Add(-time.Duration(d)*day+time.Duration(h)*time.Hour), report.Checksum)
			}
		}
	}
	s.Repository.Backups[9].Pinned = true
	s.Repository.Backups[len(s.Repository.Backups)-9].Pinned = true
	for _, b := range s.Repository.Backups {
		if b.Timeline == first || shown.Sub(b.Time) > 9*day {
			// What lies outside of any-point is recoverable at the snapshot only.
			s.Repository.Ranges = append(s.Repository.Ranges, walreplay.Range{Timeline: b.Timeline, FirstBackup: b.ID, FirstIndex: b.Index, LastIndex: b.Index, From: b.Time, To: b.Finished})
		}
	}
	from := at.Add(-8 * day)
	s.Repository.Ranges = append(s.Repository.Ranges, walreplay.Range{Timeline: second, FirstIndex: 48_200_000, LastIndex: 51_204_870, From: from, To: shown.Add(-90 * time.Second)})
	s.Jobs = shownJobs()
	s.Repository.Seen = shown.Add(-3 * time.Second)
	s.Agents = []Agent{
		{Name: "etcd-1", Host: "etcd-1.example.com", Tool: s.Tool, Seen: shown, Role: "writer", Self: true},
		{Name: "etcd-2", Host: "etcd-2.example.com", Tool: s.Tool, Seen: shown.Add(-2 * time.Minute), Role: "follower"},
		{Name: "etcd-3", Host: "etcd-3.example.com", Tool: s.Tool, Seen: shown.Add(-40 * time.Second), Role: "follower", Lease: true, Jobs: []string{"checksum"}},
		{Name: "verifier", Seen: shown.Add(-6 * time.Hour)},
	}
	for i := range s.Repository.Backups {
		s.Repository.Backups[i].Encrypted = true
		s.Repository.Backups[i].SignedBy = &signing.SignedBy{Name: "backup@example.com", Key: "SHA256:ulPP", Checked: true}
	}
	return s
}

func shownJobs() []job.Status {
	run := func(ago, took time.Duration, text string) *job.Run {
		at := shown.Add(-ago)
		return &job.Run{Slot: at.Format("20060102T150405Z"), Agent: "etcd-3", Attempt: 1, Started: at.Add(-took), Finished: at, OK: true, Text: text}
	}
	one := func(name, schedule string, next time.Duration, last *job.Run) job.Status {
		return job.Status{Name: name, Schedule: schedule, Next: shown.Add(next), Last: last, LastSuccess: last}
	}
	all := []job.Status{
		one("full", "0 */6 * * *", 87*time.Minute, run(3*time.Hour+21*time.Minute, 19*time.Second, "383 MiB stored of 1.4 GiB, from etcd-1")),
		one("checksum", "30 3 * * *", 17*time.Hour, run(7*time.Hour, 70*time.Second, "6 new full snapshots and 2,204 segments are what was stored")),
		one("structure", "", 0, run(9*time.Hour+20*time.Minute, 40*time.Second, "20261121T011200Z-4be1c0 is sound")),
		one("replay", "0 4 * * *", 17*time.Hour+27*time.Minute, run(6*time.Hour+28*time.Minute, 4*time.Minute, "the snapshot is what the one before and 344,006 entries give")),
		one("drill", "0 5 * * 0", 18*time.Hour+27*time.Minute, run(6*day+5*time.Hour, 48*time.Second, "three members served after 48 s")),
		one("prune", "0 6 * * *", 19*time.Hour+27*time.Minute, run(4*time.Hour+33*time.Minute, 9*time.Second, "1 full snapshot and 1,980 segments pruned")),
		one("merge", "@hourly", 27*time.Minute, run(33*time.Minute, 6*time.Second, "311 segments into 4")),
		one("divergence", "0 3 * * 6", 6*day+16*time.Hour, run(7*time.Hour+33*time.Minute, 2*time.Second, "three members, one hash")),
	}
	all[3].Next = time.Time{}
	all[0].LastFailure = &job.Run{Slot: "20261112T011200Z", Agent: "etcd-2", Attempt: 1, Started: shown.Add(-9 * day), Finished: shown.Add(-9*day + time.Minute), Text: "etcd-2 closed the stream after 211 MiB: connection reset by peer"}
	return all
}

// gone cannot see its repository, and etcd-1's database is full.
func gone() *Status {
	s := healthy()
	since := shown.Add(-3*time.Minute - 20*time.Second)
	s.Writer, s.Archive.Role, s.Archive.Spooled = false, archive.Spooling, 12<<20
	s.RPO = RPO{Unknown: since, Until: since.Add(-2 * time.Second), Text: "It is not known what would be lost: the repository does not answer since 10:30:13 UTC. Everything until 10:30:11 UTC could be restored from it then."}
	s.Repository.Seen, s.Repository.Error = since, "read requorum.json in s3://backups/etcd-prod?region=eu-central-1: bucket backups does not exist: create it, or correct the URL"
	s.Agents[0].Role = "spooling"
	s.Cluster.Members[0].Full = true
	s.Problems = []Problem{
		{Kind: KindRepository, Severity: Critical, Since: since, Text: "s3://backups/etcd-prod?region=eu-central-1 does not answer since 10:30:13 UTC: bucket backups does not exist: create it, or correct the URL", Next: "check the repository and the way there: 'requorum doctor' tries each operation; https://github.com/requorum/requorum/blob/main/docs/runbooks/RequorumRepositoryGone.md"},
		{Kind: KindNoSpace, Severity: Critical, Since: shown.Add(-83 * time.Minute), Text: "etcd's alarm NOSPACE is raised for etcd-1: the database has reached its quota, and etcd refuses writes", Next: "compact, defragment, clear the alarm: https://github.com/requorum/requorum/blob/main/docs/kubernetes-mistakes.md#etcd-is-full"},
	}
	return s
}

// gapped lost entries while the repository was away, and a snapshot is due.
func gapped() *Status {
	s := healthy()
	last := &s.Repository.Ranges[len(s.Repository.Ranges)-1]
	begun, ended := shown.Add(-31*time.Hour), shown.Add(-26*time.Hour)
	last.To, last.LastIndex = begun, 50_100_000
	reason := "the spool was full for 4 h 50 min, and the member purged 371,204 entries meanwhile"
	s.Repository.Ranges = append(s.Repository.Ranges,
		walreplay.Range{Timeline: second, FirstIndex: 50_100_001, LastIndex: 50_471_204, Gap: true, Reason: reason},
		walreplay.Range{Timeline: second, FirstIndex: 50_471_205, LastIndex: 51_100_000, From: ended, To: shown.Add(-42 * time.Minute)},
		walreplay.Range{Timeline: second, FirstIndex: 51_100_001, LastIndex: 51_204_870, Gap: true, Reason: "12 entries are missing, and no full snapshot is after them yet"},
	)
	s.RPO = RPO{Known: true, Until: shown.Add(-42 * time.Minute), Seconds: 42 * 60, Text: "What was written since cannot be restored: 12 entries before it are missing."}
	s.Archive.Recoverable, s.Archive.Behind, s.Archive.BehindEntries = 51_100_000, 42*time.Minute, 104_899
	s.Archive.SnapshotDue = "12 entries are missing after index 51,100,000"
	s.Jobs[0].Running = &job.Run{Slot: "20261121T103301Z-demand-5b11f0", Agent: "etcd-1", Attempt: 1, Started: shown.Add(-32 * time.Second), Phase: "reading etcd-1", Done: 620, Total: 1480}
	s.Jobs[7].Waiting = "etcd-3 is at it"
	s.Problems = []Problem{
		{Kind: KindRecoveryPoint, Severity: Critical, Since: shown.Add(-41 * time.Minute), Text: "42 minutes of writes would be lost; the objective is 1 minute.", Next: "A full snapshot is being taken and ends this. Should it fail, see the job full below."},
		{Kind: "gap", Severity: Critical, Since: shown.Add(-42 * time.Minute), Text: "12 entries after index 51,100,000 are missing in the archive: etcd-1 was rebuilt from the leader's snapshot, and no other agent holds them.", Next: "Nothing between the gap and the next full snapshot can be restored. Leave the full snapshot that is running alone."},
		{Kind: "spool", Severity: Warning, Since: shown.Add(-26 * time.Hour), Text: "The spool reached 4/5 of 2 GiB yesterday.", Next: "Give it more room (archive.spool-limit), or find out why the repository was away for five hours."},
	}
	return s
}

// failed has a full snapshot that a verification found damaged.
func failed() *Status {
	s := healthy()
	b := s.Repository.Backups
	bad := &b[len(b)-6]
	for i := range b {
		if b[i].Time.Equal(time.Date(2026, 11, 19, 1, 12, 0, 0, time.UTC)) {
			bad = &b[i]
		}
	}
	bad.Proved, bad.Failed = report.Checksum, report.Structure
	bad.Damaged = "page 88,213 of bucket key is reached twice"
	other := &b[len(b)-22]
	other.Failed, other.Proved, other.Damaged = report.Checksum, "", "snapshot.zst: 1 of 92 frames differs from its sum"
	j := &s.Jobs[3]
	j.LastFailure = &job.Run{Slot: "20261121T072600Z", Agent: "etcd-2", Attempt: 1, Started: shown.Add(-3 * time.Hour), Finished: shown.Add(-179 * time.Minute), Text: "20261119T011200Z-4be1c0: page 88,213 of bucket key is reached twice"}
	j.Last = j.LastFailure
	d := &s.Jobs[4]
	d.LastFailure = &job.Run{Slot: "20261119T050000Z", Agent: "etcd-2", Attempt: 1, Started: shown.Add(-54 * time.Hour), Finished: shown.Add(-53 * time.Hour), Text: "member drill-2 did not serve within 2 minutes: bucket key is damaged"}
	d.Last = d.LastFailure
	s.Problems = []Problem{
		{Kind: KindVerify, Severity: Critical, Since: shown.Add(-179 * time.Minute), Text: "Full snapshot 20261119T011200Z-4be1c0 is damaged (structure): page 88,213 of bucket key is reached twice.", Next: "It was read from etcd-1: run requorum doctor there and look at its disk. Backups before and after it are sound; nothing that is restored starts from it."},
		{Kind: KindCertificate, Severity: Warning, Since: shown.Add(-day), Text: "The etcd client certificate expires in 6 days.", Next: "Put a new one in its place; the agent reads it by itself."},
	}
	s.Certificates[0].Expires = shown.Add(6 * day)
	return s
}

// empty has just been installed.
func empty() *Status {
	s := healthy()
	s.Started = shown.Add(-20 * time.Second)
	s.Repository = Repository{URL: "file:///var/backups/etcd", Listed: shown.Add(-8 * time.Second)}
	s.Archive = &archive.State{Role: archive.Starting}
	s.Agents = s.Agents[:1]
	s.RPO = RPO{Text: "There is no full snapshot yet: everything would be lost. The first one is due within minutes."}
	s.RTO = RTO{Text: "There is nothing to restore from yet, and no drill has measured it."}
	for i := range s.Jobs {
		s.Jobs[i].Last, s.Jobs[i].LastSuccess, s.Jobs[i].LastFailure = nil, nil, nil
		switch s.Jobs[i].Name {
		case "replay", "drill":
			s.Jobs[i].Off, s.Jobs[i].Next = "not enabled", time.Time{}
		}
	}
	s.Cluster.Compared = time.Time{}
	s.Problems = []Problem{{Kind: KindUnverified, Severity: Critical, Since: s.Started, Text: "There is no backup.", Next: "The first full snapshot is taken within minutes; 'requorum backup' takes one now."}}
	return s
}

// young is a quarter of an hour old, and one of its members is ill.
func young() *Status {
	s := healthy()
	begun := shown.Add(-14*time.Minute - 20*time.Second)
	s.Repository.Backups = []Backup{
		{ID: "a", Timeline: second, Time: begun, Finished: begun.Add(time.Second), Source: "etcd-1", Index: 5, Revision: 2},
		{ID: "b", Timeline: second, Time: begun.Add(9 * time.Minute), Source: "etcd-1", Index: 900, Revision: 800, Proved: report.Structure, ProvedAt: shown},
	}
	s.Repository.Timelines = []repository.Timeline{{ID: second, Created: begun, Reason: "first backup"}}
	s.Repository.Ranges = []walreplay.Range{{Timeline: second, FirstBackup: "a", FirstIndex: 5, LastIndex: 1000, From: begun, To: shown.Add(-20 * time.Second)}}
	s.RTO = RTO{Text: "No drill has measured it yet."}
	s.Cluster.Members[0].Unfit = "catching up: 41,000 entries behind the leader"
	s.Cluster.Members[1].Error = "context deadline exceeded"
	s.Cluster.Divergent = []string{"etcd-3"}
	for i := range s.Jobs {
		if s.Jobs[i].Name == string(report.Drill) {
			s.Jobs[i].Last, s.Jobs[i].LastSuccess, s.Jobs[i].LastFailure = nil, nil, nil
		}
	}
	return s
}

// evil is what somebody may write into a name that the page shows.
const evil = `"><script>document.title='owned'</script><img src=x onerror=alert(1)>'{{.}}</title></style></svg>`

// hostile has it in every string.
func hostile() *Status {
	s := failed()
	s.Agent, s.Tool, s.Cluster.ID, s.Cluster.Error = evil, evil, evil, evil
	s.RPO.Text, s.RTO.Text = evil, evil
	s.Repository.URL, s.Repository.ID, s.Repository.Error = evil, evil, evil
	s.Archive.LastError, s.Archive.SnapshotDue, s.Archive.Role = evil, evil, evil
	for i := range s.Repository.Timelines {
		s.Repository.Timelines[i].Reason = evil
	}
	for i := range s.Repository.Ranges {
		s.Repository.Ranges[i].Reason = evil
		s.Repository.Ranges[i].Gap = i%2 == 0
	}
	for i := range s.Repository.Backups {
		b := &s.Repository.Backups[i]
		b.ID, b.Source, b.Damaged, b.Proved, b.Failed = evil, evil, evil, evil, evil
	}
	for i := range s.Cluster.Members {
		m := &s.Cluster.Members[i]
		m.Name, m.ID, m.Endpoint, m.Version, m.Role = evil, evil, "javascript:alert(1)//"+evil, evil, evil
		m.Error, m.Unfit = []string{evil, "", ""}[i], []string{"", evil, ""}[i]
	}
	for i := range s.Jobs {
		run := &job.Run{Slot: evil, Agent: evil, Attempt: 2, Started: shown, Finished: shown, Text: evil, Phase: evil, Backup: evil}
		s.Jobs[i] = job.Status{Name: evil, Schedule: evil, Off: evil, Waiting: evil, Running: run, Last: run, LastSuccess: run, LastFailure: run}
	}
	s.Problems = []Problem{{Kind: evil, Severity: evil, Since: shown, Text: evil, Next: evil}}
	s.Certificates = []Certificate{{Use: evil, Place: evil, Error: evil}}
	return s
}
