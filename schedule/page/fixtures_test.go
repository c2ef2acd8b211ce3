package page_test

import (
	"fmt"
	"time"

	"github.com/requorum/requorum/schedule/status"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

var (
	now     = time.Date(2026, 11, 21, 10, 33, 33, 0, time.UTC)
	day     = 24 * time.Hour
	first   = repository.TimelineID{ClusterID: 0x5e0a1c94b7d2f386, N: 1}
	second  = repository.TimelineID{ClusterID: 0x9c41f0b2a7735d18, N: 1}
	million = uint64(1_000_000)
)

// healthy is a cluster half a year old that was restored once.
func healthy() *status.Status {
	restored := now.Add(-41 * day)
	s := &status.Status{
		Time: now, Started: now.Add(-9 * day), Agent: "etcd-1", Tool: "requorum 1.0.0", Writer: true,
		Cluster: status.Cluster{
			ID: "9c41f0b2a7735d18", Asked: now.Add(-4 * time.Second), Divergent: []string{},
			Compared: now.Add(-30 * time.Hour), ComparedRevision: 48_112_004,
			Members: []status.Member{
				{ID: "8e9e05c52164694d", Name: "etcd-1", Endpoint: "https://10.4.0.11:2379", Version: "3.6.16", Role: "follower", Local: true, Revision: 48_903_117, Applied: 51_204_899, DBSize: 1_486_000_000},
				{ID: "91bc3c398fb3c146", Name: "etcd-2", Endpoint: "https://10.4.0.12:2379", Version: "3.6.16", Role: "leader", Revision: 48_903_117, Applied: 51_204_899, DBSize: 1_490_100_000},
				{ID: "fd422379fda50e48", Name: "etcd-3", Endpoint: "https://10.4.0.13:2379", Version: "3.6.16", Role: "follower", Revision: 48_903_116, Applied: 51_204_898, DBSize: 1_485_700_000},
			},
		},
		Archive: &archive.State{
			Role: archive.Writer, Timeline: second, Archived: 51_204_870, Recoverable: 51_204_870, Applied: 51_204_899, Released: 51_204_899, Read: 51_204_899,
			SpoolLimit: 2 << 30, Behind: 1400 * time.Millisecond, BehindEntries: 29, Segments: 18_204, Bytes: 6_200_000_000, ArchivedTime: now.Add(-2 * time.Second),
		},
		RPO:        status.RPO{Known: true, Until: now.Add(-2 * time.Second), Seconds: 2, Text: "Nothing older than 2 s would be lost."},
		RTO:        status.RTO{Known: true, Seconds: 48, Measured: now.Add(-6 * day), Text: "48 s from the repository to the first write on a new cluster of three, in the last drill."},
		Objectives: status.Objectives{RecoveryPoint: 60, VerifiedWithin: 48 * 3600, CertificateNotice: 14 * 86400},
		Certificates: []status.Certificate{
			{Use: "etcd client", Place: "/etc/requorum/client.crt", Expires: now.Add(212 * day)},
			{Use: "etcd server", Place: "https://10.4.0.11:2379", Expires: now.Add(212 * day)},
		},
		Problems: []status.Problem{},
	}
	s.Repository = status.Repository{
		URL: "s3://backups/etcd-prod?region=eu-central-1", ID: "01J9ZK4Q7", Listed: now.Add(-95 * time.Second),
		Timeline: second, FullBytes: 21_900_000_000, LogBytes: 9_400_000_000,
		Timelines: []repository.Timeline{
			{ID: first, Created: now.Add(-190 * day), Reason: "first backup"},
			{ID: second, Created: restored, Reason: "restored after a lost quorum", Parent: &repository.Branch{Timeline: first, RaftIndex: 39_118_402}},
		},
	}
	add := func(t repository.TimelineID, at time.Time, synthetic bool, rung report.Rung) {
		index := 51*million - uint64(now.Sub(at)/time.Second)*4
		b := status.Backup{
			ID: at.Format("20060102T150405Z") + "-4be1c0", Timeline: t, Time: at, Finished: at.Add(19 * time.Second),
			Revision: int64(index) - 2_000_000, Index: index, Stored: 402_000_000, Raw: 1_480_000_000, Source: "etcd-1", Synthetic: synthetic,
			Proved: rung,
		}
		if synthetic {
			b.Source = "synthetic"
		}
		if rung != "" {
			b.ProvedAt = at.Add(3 * time.Hour)
		}
		if rung == report.Drill {
			b.ProvedAt = at.Add(4*time.Hour + 20*time.Minute)
		}
		s.Repository.Backups = append(s.Repository.Backups, b)
	}
	for m := 6; m >= 2; m-- { // monthly ones of before
		add(first, time.Date(2026, time.Month(11-m), 15, 1, 12, 0, 0, time.UTC), false, report.Replay)
	}
	at := time.Date(2026, 11, 21, 1, 12, 0, 0, time.UTC)
	for d := 35; d >= 0; d-- {
		rung := report.Replay
		switch {
		case d == 0:
			rung = report.Structure
		case d%7 == 6:
			rung = report.Drill
		}
		add(second, at.Add(-time.Duration(d)*day), false, rung)
		if d < 7 {
			for h := 6; h < 24 && at.Add(-time.Duration(d)*day+time.Duration(h)*time.Hour).Before(now); h += 6 {
				add(second, at.Add(-time.Duration(d)*day+time.Duration(h)*time.Hour), true, report.Checksum)
			}
		}
	}
	s.Repository.Backups[9].Pinned = true
	s.Repository.Backups[len(s.Repository.Backups)-9].Pinned = true
	for _, b := range s.Repository.Backups {
		if b.Timeline == first || now.Sub(b.Time) > 9*day {
			// What lies outside of any-point is recoverable at the snapshot only.
			s.Repository.Ranges = append(s.Repository.Ranges, walreplay.Range{Timeline: b.Timeline, FirstBackup: b.ID, FirstIndex: b.Index, LastIndex: b.Index, From: b.Time, To: b.Finished})
		}
	}
	from := at.Add(-8 * day)
	s.Repository.Ranges = append(s.Repository.Ranges, walreplay.Range{Timeline: second, FirstIndex: 48_200_000, LastIndex: 51_204_870, From: from, To: now.Add(-90 * time.Second)})
	s.Jobs = jobs()
	return s
}

func jobs() []status.Job {
	run := func(ago, took time.Duration, text string) *status.Run {
		at := now.Add(-ago)
		return &status.Run{Slot: at.Format("20060102T150405Z"), Agent: "etcd-3", Attempt: 1, Started: at.Add(-took), Finished: at, OK: true, Text: text}
	}
	job := func(name, schedule string, next time.Duration, last *status.Run) status.Job {
		return status.Job{Name: name, Schedule: schedule, Next: now.Add(next), Last: last, LastSuccess: last}
	}
	all := []status.Job{
		job("full", "0 1 * * *", 14*time.Hour+39*time.Minute, run(9*time.Hour+21*time.Minute, 19*time.Second, "383 MiB stored of 1.4 GiB, from etcd-1")),
		job("synthetic", "0 */6 * * *", 87*time.Minute, run(3*time.Hour+20*time.Minute, 2*time.Minute, "from 20261121T011200Z-4be1c0 and 412,881 entries")),
		job("checksum", "30 3 * * *", 17*time.Hour, run(7*time.Hour, 70*time.Second, "6 new full snapshots and 2,204 segments are what was stored")),
		job("structure", "", 0, run(9*time.Hour+20*time.Minute, 40*time.Second, "20261121T011200Z-4be1c0 is sound")),
		job("replay", "0 4 * * *", 17*time.Hour+27*time.Minute, run(6*time.Hour+28*time.Minute, 4*time.Minute, "the snapshot is what the one before and 344,006 entries give")),
		job("drill", "0 5 * * 0", 18*time.Hour+27*time.Minute, run(6*day+5*time.Hour, 48*time.Second, "three members served after 48 s")),
		job("prune", "0 6 * * *", 19*time.Hour+27*time.Minute, run(4*time.Hour+33*time.Minute, 9*time.Second, "1 full snapshot and 1,980 segments let go")),
		job("merge", "@hourly", 27*time.Minute, run(33*time.Minute, 6*time.Second, "311 segments into 4")),
		job("divergence", "0 3 * * 6", 6*day+16*time.Hour, run(7*time.Hour+33*time.Minute, 2*time.Second, "three members, one hash")),
	}
	all[3].Next = time.Time{}
	all[0].LastFailure = &status.Run{Slot: "20261112T011200Z", Agent: "etcd-2", Attempt: 1, Started: now.Add(-9 * day), Finished: now.Add(-9*day + time.Minute), Text: "etcd-2 closed the stream after 211 MiB: connection reset by peer"}
	return all
}

// gapped lost entries while the repository was away, and a snapshot is due.
func gapped() *status.Status {
	s := healthy()
	last := &s.Repository.Ranges[len(s.Repository.Ranges)-1]
	begun, ended := now.Add(-31*time.Hour), now.Add(-26*time.Hour)
	last.To, last.LastIndex = begun, 50_100_000
	reason := "the spool was full for 4 h 50 min, and the member purged 371,204 entries meanwhile"
	s.Repository.Ranges = append(s.Repository.Ranges,
		walreplay.Range{Timeline: second, FirstIndex: 50_100_001, LastIndex: 50_471_204, Gap: true, Reason: reason},
		walreplay.Range{Timeline: second, FirstIndex: 50_471_205, LastIndex: 51_100_000, From: ended, To: now.Add(-42 * time.Minute)},
		walreplay.Range{Timeline: second, FirstIndex: 51_100_001, LastIndex: 51_204_870, Gap: true, Reason: "12 entries are missing, and no full snapshot is behind them yet"},
	)
	s.RPO = status.RPO{Known: true, Until: now.Add(-42 * time.Minute), Seconds: 42 * 60, Text: "What was written since cannot be restored: 12 entries before it are missing."}
	s.Archive.Recoverable, s.Archive.Behind, s.Archive.BehindEntries = 51_100_000, 42*time.Minute, 104_899
	s.Archive.SnapshotDue = "12 entries are missing behind index 51,100,000"
	s.Archive.Holes = []archive.Hole{{First: 51_100_001, Last: 51_100_012, Due: true}}
	s.Jobs[0].Running = &status.Run{Slot: "20261121T103301Z-demand-5b11f0", Agent: "etcd-1", Attempt: 1, Started: now.Add(-32 * time.Second), Phase: "reading etcd-1", Done: 620, Total: 1480}
	s.Jobs[7].Waiting = "etcd-3 is at it"
	s.Problems = []status.Problem{
		{Kind: status.KindRecoveryPoint, Severity: status.Critical, Since: now.Add(-41 * time.Minute), Text: "42 minutes of writes would be lost; the objective is 1 minute.", Next: "A full snapshot is being taken and ends this. Should it fail, see the job full below."},
		{Kind: "gap", Severity: status.Critical, Since: now.Add(-42 * time.Minute), Text: "12 entries behind index 51,100,000 are missing in the archive: etcd-1 was rebuilt from the leader's snapshot, and no other agent holds them.", Next: "Nothing between the gap and the next full snapshot can be restored. Leave the full snapshot that is running alone."},
		{Kind: "spool", Severity: status.Warning, Since: now.Add(-26 * time.Hour), Text: "The spool reached 4/5 of 2 GiB yesterday.", Next: "Give it more room (archive.spool-limit), or find out why the repository was away for five hours."},
	}
	return s
}

// failed has a full snapshot that a verification found damaged.
func failed() *status.Status {
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
	j.LastFailure = &status.Run{Slot: "20261121T072600Z", Agent: "etcd-2", Attempt: 1, Started: now.Add(-3 * time.Hour), Finished: now.Add(-179 * time.Minute), Text: "20261119T011200Z-4be1c0: page 88,213 of bucket key is reached twice"}
	j.Last = j.LastFailure
	d := &s.Jobs[5]
	d.LastFailure = &status.Run{Slot: "20261119T050000Z", Agent: "etcd-2", Attempt: 1, Started: now.Add(-54 * time.Hour), Finished: now.Add(-53 * time.Hour), Text: "member drill-2 did not serve within 2 minutes: bucket key is damaged"}
	d.Last = d.LastFailure
	s.Problems = []status.Problem{
		{Kind: status.KindVerify, Severity: status.Critical, Since: now.Add(-179 * time.Minute), Text: "Full snapshot 20261119T011200Z-4be1c0 is damaged (structure): page 88,213 of bucket key is reached twice.", Next: "It was read from etcd-1: run requorum doctor there and look at its disk. Backups before and after it are sound; nothing that is restored starts from it."},
		{Kind: status.KindCertificate, Severity: status.Warning, Since: now.Add(-day), Text: "The etcd client certificate expires in 6 days.", Next: "Put a new one in its place; the agent reads it by itself."},
	}
	s.Certificates[0].Expires = now.Add(6 * day)
	return s
}

// empty has just been installed.
func empty() *status.Status {
	s := healthy()
	s.Started = now.Add(-20 * time.Second)
	s.Repository = status.Repository{URL: "file:///var/backups/etcd", Listed: now.Add(-8 * time.Second)}
	s.Archive = &archive.State{Role: archive.Starting}
	s.RPO = status.RPO{Text: "There is no full snapshot yet: everything would be lost. The first one is due within minutes."}
	s.RTO = status.RTO{Text: "There is nothing to restore from yet, and no drill has measured it."}
	for i := range s.Jobs {
		s.Jobs[i].Last, s.Jobs[i].LastSuccess, s.Jobs[i].LastFailure = nil, nil, nil
		switch s.Jobs[i].Name {
		case "synthetic", "replay", "drill":
			s.Jobs[i].Off, s.Jobs[i].Next = "not enabled", time.Time{}
		}
	}
	s.Cluster.Compared = time.Time{}
	s.Problems = []status.Problem{{Kind: status.KindUnverified, Severity: status.Critical, Since: s.Started, Text: "There is no backup.", Next: "The first full snapshot is taken within minutes; POST /api/v1/jobs/full takes one now."}}
	return s
}

// young is a quarter of an hour old, and one of its members is ill.
func young() *status.Status {
	s := healthy()
	begun := now.Add(-14*time.Minute - 20*time.Second)
	s.Repository.Backups = []status.Backup{
		{ID: "a", Timeline: second, Time: begun, Finished: begun.Add(time.Second), Source: "etcd-1", Index: 5, Revision: 2},
		{ID: "b", Timeline: second, Time: begun.Add(9 * time.Minute), Source: "etcd-1", Index: 900, Revision: 800, Proved: report.Structure, ProvedAt: now},
	}
	s.Repository.Timelines = []repository.Timeline{{ID: second, Created: begun, Reason: "first backup"}}
	s.Repository.Ranges = []walreplay.Range{{Timeline: second, FirstBackup: "a", FirstIndex: 5, LastIndex: 1000, From: begun, To: now.Add(-20 * time.Second)}}
	s.RTO = status.RTO{Text: "No drill has measured it yet."}
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
func hostile() *status.Status {
	s := failed()
	s.Agent, s.Tool, s.Waiting, s.Cluster.ID, s.Cluster.Error = evil, evil, evil, evil, evil
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
		run := &status.Run{Slot: evil, Agent: evil, Attempt: 2, Started: now, Finished: now, Text: evil, Phase: evil, Backup: evil}
		s.Jobs[i] = status.Job{Name: evil, Schedule: evil, Off: evil, Waiting: evil, Running: run, Last: run, LastSuccess: run, LastFailure: run}
	}
	s.Problems = []status.Problem{{Kind: evil, Severity: evil, Since: now, Text: evil, Next: evil}}
	s.Certificates = []status.Certificate{{Use: evil, Place: evil, Error: evil}}
	return s
}

// crowded has a year of hourly full snapshots, and long names without a space.
func crowded() *status.Status {
	s := healthy()
	for h := range 365 * 24 {
		at := now.Add(-time.Duration(h) * time.Hour)
		s.Repository.Backups = append(s.Repository.Backups, status.Backup{ID: fmt.Sprint(h), Timeline: second, Time: at})
	}
	long := "a-member-with-a-name-that-somebody-generated-" + fmt.Sprintf("%0150d", 7)
	s.Cluster.Members[1].Name, s.Cluster.Members[1].Endpoint = long, "https://"+long+":2379"
	s.Repository.URL = "s3://" + long
	return s
}
