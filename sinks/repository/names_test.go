package repository_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

var logTimeline = repository.TimelineID{ClusterID: 0xcdf818194e3a8c32, N: 3}

const (
	line   = "cdf818194e3a8c32-3"
	backup = "20260102T150405Z-3f9a2c"
	slot   = "20260102T010000Z"
)

// names are all kinds of names, as docs/format.md has them.
var names = map[string]string{
	line + "/l0/0000000000000001":                                           repository.SegmentName{Timeline: logTimeline, First: 1}.String(),
	line + "/l0/ffffffffffffffff":                                           repository.SegmentName{Timeline: logTimeline, First: math.MaxUint64}.String(),
	line + "/l1/0000000000000001-00000000000000ff":                          repository.SegmentName{Timeline: logTimeline, Level: 1, First: 1, Last: 255}.String(),
	line + "/l9/0000000000000001-00000000000000ff-start":                    repository.SegmentName{Timeline: logTimeline, Level: 9, First: 1, Last: 255, Start: true}.String(),
	line + "/marks/00000000000000ff-000000003b9aca05-ffffffffffffffff.json": repository.MarkName{Timeline: logTimeline, Index: 255, Time: time.Unix(1, 5).In(time.FixedZone("", 3600)), Member: math.MaxUint64}.String(),
	line + "/gaps/0000000000000010-000000000000001f.json":                   repository.GapName{Timeline: logTimeline, First: 16, Last: 31}.String(),
	line + "/superseded.json":                                               repository.SupersededName(logTimeline, 1),
	line + "/superseded-12.json":                                            repository.SupersededName(logTimeline, 12),
	line + "/full/" + backup + "/snapshot.zst":                              repository.SnapshotName(logTimeline, backup, 1, false),
	line + "/full/" + backup + "/snapshot.zst.age":                          repository.SnapshotName(logTimeline, backup, 0, true),
	line + "/full/" + backup + "/snapshot-12.zst.age":                       repository.SnapshotName(logTimeline, backup, 12, true),
	line + "/full/" + backup + "/attachments.tar.zst.age":                   repository.AttachmentsName(logTimeline, backup, 1),
	line + "/full/" + backup + "/attachments-13.tar.zst.age":                repository.AttachmentsName(logTimeline, backup, 13),
	"timelines/" + line + ".json":                                           repository.TimelineName(logTimeline),
	"pins/" + line + "/" + backup + ".json":                                 repository.PinName(logTimeline, backup),
	"pruned/" + line + "/" + backup + ".json":                               repository.PrunedName(logTimeline, backup),
	"verdicts/" + line + "/" + backup + "/20260102T150405.000000678Z-ffffffff.json": repository.VerdictName{
		Timeline: logTimeline, Backup: backup, Finished: time.Date(2026, 1, 2, 15, 4, 5, 678, time.UTC), ID: 1<<32 - 1,
	}.String(),
	"jobs/full/" + slot + ".json":                              repository.JobName{Job: "full", Slot: slot}.String(),
	"jobs/full/" + slot + ".failed.json":                       repository.JobName{Job: "full", Slot: slot, Kind: repository.JobFailed}.String(),
	"jobs/full/" + slot + ".stopped-1.json":                    repository.JobName{Job: "full", Slot: slot, Kind: repository.JobStopped, Attempt: 1}.String(),
	"jobs/verify-2/" + slot + "-demand-3f9a2c.attempt-12.json": repository.JobName{Job: "verify-2", Slot: slot + "-demand-3f9a2c", Kind: repository.JobBegun, Attempt: 12}.String(),
	"jobs/full/" + slot + ".beat-1-12.json":                    repository.JobName{Job: "full", Slot: slot, Kind: repository.JobBeat, Attempt: 1, Beat: 12}.String(),
	"jobs/full/" + slot + ".failed-2.json":                     repository.JobName{Job: "full", Slot: slot, Kind: repository.JobFailed, Attempt: 2}.String(),
}

// parsers read a name, and write what they read.
var parsers = map[string]func(string) (string, error){
	"segment": func(s string) (string, error) { n, err := repository.ParseSegmentName(s); return n.String(), err },
	"mark":    func(s string) (string, error) { n, err := repository.ParseMarkName(s); return n.String(), err },
	"gap":     func(s string) (string, error) { n, err := repository.ParseGapName(s); return n.String(), err },
	"verdict": func(s string) (string, error) { n, err := repository.ParseVerdictName(s); return n.String(), err },
	"superseded": func(s string) (string, error) {
		t, n, err := repository.ParseSupersededName(s)
		return repository.SupersededName(t, n), err
	},
	"snapshot": func(s string) (string, error) {
		t, id, n, encrypted, err := repository.ParseSnapshotName(s)
		return repository.SnapshotName(t, id, n, encrypted), err
	},
	"attachments": func(s string) (string, error) {
		t, id, n, err := repository.ParseAttachmentsName(s)
		return repository.AttachmentsName(t, id, n), err
	},
	"timeline": func(s string) (string, error) {
		t, err := repository.ParseTimelineName(s)
		return repository.TimelineName(t), err
	},
	"pin": func(s string) (string, error) {
		t, id, err := repository.ParsePinName(s)
		return repository.PinName(t, id), err
	},
	"pruned": func(s string) (string, error) {
		t, id, err := repository.ParsePrunedName(s)
		return repository.PrunedName(t, id), err
	},
	"job": func(s string) (string, error) {
		n, err := repository.ParseJobName(s)
		return n.String(), err
	},
}

// readAs are the kinds that a name is read as, and a name has one spelling.
func readAs(t *testing.T, name string) (kinds []string) {
	t.Helper()
	for kind, parse := range parsers {
		again, err := parse(name)
		if err != nil {
			continue
		}
		if kinds = append(kinds, kind); again != name || sinks.ValidName(name) != nil || len(kinds) > 1 {
			t.Errorf("%q is read as %q, as %v", name, again, kinds)
		}
	}
	return kinds
}

// Each name is read as it was written, as one kind, and no other spelling is; and none is a
// folder of another one, because some stores cannot keep both.
func TestNames(t *testing.T) {
	for want, name := range names {
		require.Equal(t, want, name)
		require.Len(t, readAs(t, name), 1, name)
		for other := range names {
			require.False(t, strings.HasPrefix(other, name+"/"), "%s is a folder of %s", name, other)
		}
		for at := range name {
			readAs(t, name[:at])
			readAs(t, name[at:])
			for _, more := range []string{"0", "-", "+", "/", ".", "x", "F", "1", " "} {
				readAs(t, name[:at]+more+name[at:])
				readAs(t, name[:at]+more+name[at+1:])
			}
		}
	}
	for _, bad := range []string{
		line + "/l1/0000000000000002-0000000000000001", line + "/l10/0000000000000001-0000000000000001", "cdf818194e3a8c32-0/l0/0000000000000001",
		line + "/marks/00000000000000ff-ffffffffffffffff-ffffffffffffffff.json", // before 1970
		line + "/gaps/0000000000000002-0000000000000001.json", line + "/superseded-1.json", line + "/superseded-0.json",
		line + "/full/" + backup + "/snapshot-1.zst", line + "/full/" + backup + "/snapshot-0.zst", line + "/full/today/snapshot.zst", line + "/full/" + backup + "/attachments-1.tar.zst.age",
		"verdicts/" + line + "/latest/20260102T150405.000000000Z-00000002.json", "verdicts/" + line + "/" + backup + "/20261302T150405.000000000Z-00000002.json",
		"pins/" + line + "/latest.json", "pruned/" + line + "/20260102.json", "jobs/full/x.json", "jobs/full/" + slot + ".attempt-0.json", "jobs/full/" + slot + ".attempt.json", "jobs/full/" + slot + "..json", "jobs/full/" + slot + ".beat-1.json", "jobs/full/" + slot + ".stopped-1-1.json",
	} {
		require.Empty(t, readAs(t, bad), bad)
	}
}

// FuzzNames reads arbitrary names. What is read has no second spelling.
func FuzzNames(f *testing.F) {
	for name := range names {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) { readAs(t, name) })
}

func TestTimelineID(t *testing.T) {
	for _, bad := range []string{"", "-", "cdf818194e3a8c32", "cdf818194e3a8c32-0", "cdf818194e3a8c32-01", "cdf818194e3a8c32-+1", "CDF818194E3A8C32-1", "df818194e3a8c32-1", line + "/", "zzzzzzzzzzzzzzzz-1"} {
		_, err := repository.ParseTimelineID(bad)
		require.Error(t, err, bad)
	}
}

func TestBackupID(t *testing.T) {
	id := repository.NewBackupID(time.Date(2026, 1, 2, 15, 4, 5, 0, time.FixedZone("", 3600)))
	at, err := repository.BackupTime(id)
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 1, 2, 14, 4, 5, 0, time.UTC), at, id)
	for _, bad := range []string{"", "latest", "20260102T140405Z", "20260102T140405Z-", "20260102T140405Z-3F9A2C", "20260102T140405Z-3f9a2", "20261302T140405Z-3f9a2c"} {
		require.Error(t, repository.ValidBackupID(bad), bad)
	}
}

// Names of segments sort by what they name.
func TestSegmentNamesSort(t *testing.T) {
	last := ""
	for level, all := range [][]uint64{{1, 9, 10, 255, 1 << 40, math.MaxUint64}, {1, 9, 10, 255, 1 << 40}} {
		for _, i := range all {
			name := repository.SegmentName{Timeline: logTimeline, Level: level, First: i, Last: []uint64{0, 1 << 41}[level]}.String()
			require.Less(t, last, name)
			last = name
		}
	}
}
