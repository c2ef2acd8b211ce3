package store

import (
	"strings"
	"testing"
	"time"
)

const someMetrics = `# HELP etcd_disk_wal_fsync_duration_seconds The latency distributions of fsync called by WAL.
# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 3
etcd_disk_wal_fsync_duration_seconds_sum 1.5
etcd_disk_wal_fsync_duration_seconds_count 100
etcd_disk_backend_commit_duration_seconds_sum 2.5e+01
etcd_disk_backend_commit_duration_seconds_count 50
etcd_disk_defrag_inflight 0
`

func TestParseDiskMetrics(t *testing.T) {
	want := diskCounters{sync: histogram{1.5, 100}, commit: histogram{25, 50}}
	if got, ok := parseDiskMetrics(strings.NewReader(someMetrics)); !ok || got != want {
		t.Errorf("got %+v, %v", got, ok)
	}
	want.defragmenting = true
	if got, ok := parseDiskMetrics(strings.NewReader(strings.Replace(someMetrics, "inflight 0", "inflight 1", 1))); !ok || got != want {
		t.Errorf("defragmenting: got %+v, %v", got, ok)
	}
	for name, text := range map[string]string{
		"none":                "",
		"a web page":          "<html>not found</html>\n",
		"one counter missing": strings.Replace(someMetrics, "commit_duration_seconds_count", "other", 1),
		"not a number":        strings.Replace(someMetrics, "1.5", "much", 1),
		"an endless line":     strings.Repeat("x", 1<<20) + "\n" + someMetrics,
	} {
		if got, ok := parseDiskMetrics(strings.NewReader(text)); ok {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestDiskLatency(t *testing.T) {
	before := diskCounters{sync: histogram{10, 1000}, commit: histogram{5, 500}}
	for _, tt := range []struct {
		name string
		now  diskCounters
		want DiskLatency
		slow bool
	}{
		{"nothing was written", before, DiskLatency{}, false},
		{"fast now, whatever was before", diskCounters{sync: histogram{10.02, 1010}, commit: histogram{5.05, 510}},
			DiskLatency{true, 2 * time.Millisecond, 5 * time.Millisecond}, false},
		{"slow syncs", diskCounters{sync: histogram{12, 1010}, commit: histogram{5, 500}}, DiskLatency{true, 200 * time.Millisecond, 0}, true},
		{"slow commits", diskCounters{sync: histogram{10, 1000}, commit: histogram{5.25, 502}}, DiskLatency{true, 0, 125 * time.Millisecond}, true},
		{"restarted meanwhile", diskCounters{sync: histogram{3, 5}, commit: histogram{9, 10}}, DiskLatency{}, false},
		{"restarted and busy", diskCounters{sync: histogram{3, 2000}, commit: histogram{1, 600}}, DiskLatency{}, false},
	} {
		got := tt.now.since(before)
		got.Sync, got.Commit = got.Sync.Round(time.Microsecond), got.Commit.Round(time.Microsecond)
		if got != tt.want || got.slow() != tt.slow {
			t.Errorf("%s: got %+v, slow %v", tt.name, got, got.slow())
		}
	}
}
