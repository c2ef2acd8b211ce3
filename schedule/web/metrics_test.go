package web

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/archive"
)

var update = flag.Bool("update", false, "write generated files anew")

// now is the moment of every Status of these tests.
var now = time.Date(2026, time.November, 21, 10, 0, 0, 0, time.UTC)

var timeline = repository.TimelineID{ClusterID: 0xabc, N: 2}

// full is the Status of an agent for which everything happened once.
func full() *Status {
	run := func(ok bool, at time.Time) *job.Run {
		return &job.Run{Slot: "20261121T010000Z", Agent: "m2", Attempt: 2, Started: at, Finished: at.Add(42 * time.Second), OK: ok, Bytes: 7000}
	}
	old := repository.TimelineID{ClusterID: 0xabc, N: 1}
	return &Status{
		Time: now, Started: now.Add(-time.Hour), Agent: "m1", Tool: "requorum 1.2.3", Writer: true,
		Cluster: Cluster{
			ID: "0000000000000abc", Asked: now.Add(-time.Second), Compared: now.Add(-24 * time.Hour), Divergent: []string{"m3"},
			Members: []Member{
				{ID: "01", Name: "m1", Revision: 100, Applied: 120, DBSize: 4096, Role: "leader"},
				{ID: "02", Name: "m2", Revision: 99, Applied: 119, DBSize: 8192, Unfit: "catching up"},
				{ID: "03", Name: "m3", Error: "connection refused"},
			},
		},
		Repository: Repository{
			URL: "s3://secret-bucket/etcd", ID: "f00d", Listed: now.Add(-2 * time.Minute), Seen: now, Timeline: timeline, FullBytes: 5000, LogBytes: 600,
			Backups: []Backup{
				{ID: "x", Timeline: old, Time: now.Add(-time.Minute), Finished: now, Proved: report.Drill, ProvedAt: now},
				{ID: "a", Timeline: timeline, Time: now.Add(-50 * time.Hour), Proved: report.Drill, ProvedAt: now.Add(-49 * time.Hour), Pinned: true},
				{ID: "b", Timeline: timeline, Time: now.Add(-26 * time.Hour), Proved: report.Structure, ProvedAt: now.Add(-20 * time.Hour)},
				{ID: "c", Timeline: timeline, Time: now.Add(-2 * time.Hour), Finished: now.Add(-2 * time.Hour).Add(90 * time.Second), Stored: 1000, Raw: 3000, Revision: 90, Proved: report.Checksum, ProvedAt: now.Add(-time.Hour), Failed: report.Structure},
			},
			Ranges: []walreplay.Range{{Timeline: old}, {Timeline: timeline}, {Timeline: timeline, Gap: true}, {Timeline: timeline}},
		},
		Archive: &archive.State{
			Role: archive.Writer, Applied: 120, Read: 119, Released: 118, Archived: 117, Recoverable: 116, ArchivedRevision: 98,
			ArchivedTime: now.Add(-3 * time.Second), BehindEntries: 4, Queued: 10, Spooled: 20, Pinned: 30, SpoolLimit: 1000,
			Checked:  now.Add(-30 * time.Minute),
			Alarms:   []archive.RaisedAlarm{{Alarm: archive.AlarmBehind, Since: now}},
			Segments: 11, Bytes: 2200, Requests: archive.Requests{Puts: 12, Gets: 13, Lists: 14}, Gaps: make([]archive.Gap, 1), Dropped: 2,
		},
		RPO:        RPO{Known: true, Until: now.Add(-2500 * time.Millisecond)},
		RTO:        RTO{Known: true, Seconds: 12.5, Measured: now.Add(-72 * time.Hour)},
		Objectives: Objectives{RecoveryPoint: 60, VerifiedWithin: 172800, CertificateNotice: 1209600},
		Agents:     []Agent{{Name: "m1", Seen: now, Self: true}, {Name: "m2", Seen: now.Add(-time.Minute)}},
		Jobs: []job.Status{
			{Name: "full", Schedule: "0 1 * * *", Next: now.Add(15 * time.Hour), Last: run(true, now.Add(-9*time.Hour)), LastSuccess: run(true, now.Add(-9*time.Hour)), LastFailure: run(false, now.Add(-33*time.Hour)), Running: &job.Run{Started: now.Add(-time.Minute)}},
			{Name: "drill", Schedule: "0 5 * * 0", Off: "not enabled"},
			{Name: "structure"},
		},
		Problems: []Problem{
			{Kind: KindVerify, Severity: Critical}, {Kind: KindJob, Severity: Warning}, {Kind: KindJob, Severity: Warning},
			{Kind: "of-the-future", Severity: Warning},
		},
		Certificates: []Certificate{
			{Use: "etcd client", Place: "/pki/client.crt", Expires: now.Add(240 * time.Hour)},
			{Use: "etcd client", Place: "/pki/client.crt", Expires: now.Add(24 * time.Hour)},
			{Use: "api", Place: "/pki/api.crt", Expires: now},
			{Use: "api", Place: "/pki/api.crt", Expires: now.Add(time.Hour), Error: "permission denied"},
		},
	}
}

func gather(t *testing.T, s *Status) []*dto.MetricFamily {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, NewMetrics(reg, func() *Status { return s }))
	families, err := reg.Gather()
	require.NoError(t, err, "a scrape fails")
	return families
}

func exposition(t *testing.T, families []*dto.MetricFamily) string {
	t.Helper()
	var text bytes.Buffer
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&text, f)
		require.NoError(t, err)
	}
	return text.String()
}

// currentFile compares a file with what it should hold, or writes it with -update.
func currentFile(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	if string(got) != want {
		t.Errorf("%s is not current: run this test with -update and look at the difference", path)
	}
}

// The whole exposition, of an agent for which everything happened, and of one
// that has just started.
func TestExposition(t *testing.T) {
	for name, s := range map[string]*Status{"full": full(), "started": {}} {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(exposition(t, gather(t, s)), goVersion(), "GO")
			currentFile(t, filepath.Join("testdata", name+".prom"), text)
			if strings.Contains(text, "secret-bucket") {
				t.Error("the repository's URL is shown")
			}
		})
	}
}

func goVersion() string {
	var version string
	for _, m := range all() {
		if m.name == "requorum_build_info" {
			m.collect(&Status{}, func(_ float64, labels ...string) { version = labels[1] })
		}
	}
	return version
}

// Names, units and help as Prometheus wants them.
func TestLint(t *testing.T) {
	found, err := promlint.NewWithMetricFamilies(gather(t, full())).Lint()
	require.NoError(t, err)
	for _, p := range found {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, m := range all() {
		for _, label := range m.labels {
			if label == "job" || label == "instance" || label == "backup" || label == "slot" {
				t.Errorf("%s has the label %s", m.name, label)
			}
		}
		if strings.Contains(m.name, "age_") {
			t.Errorf("%s is an age: ages stand still when the agent is gone", m.name)
		}
	}
}

// docs/metrics.md is what the descriptions say.
func TestReference(t *testing.T) {
	var doc strings.Builder
	doc.WriteString(`# Metrics

What ` + "`requorum agent`" + ` shows at ` + "`/metrics`" + `. Made by
` + "`go test ./schedule/web -run TestReference -update`" + `.

Names that end with ` + "`_total`" + ` are counters, the others gauges; labels are in braces.
Times are seconds since 1970, 0 is never; sizes are bytes. Metrics are added, never
renamed or removed. The archiver's are there only where the agent archives a log. For the
cluster take the best of its agents: ` + "`max by (job, namespace, cluster) (…)`" + `.

[deploy/monitoring](../deploy/monitoring) has the alerts, each with
[a runbook](runbooks/README.md), and a dashboard for Grafana.

| metric | meaning |
| --- | --- |
`)
	for _, m := range all() {
		if (m.kind == prometheus.CounterValue) != strings.HasSuffix(m.name, "_total") {
			t.Errorf("%s: counters, and nothing else, end with _total", m.name)
		}
		labels := ""
		if len(m.labels) > 0 {
			labels = "{" + strings.Join(m.labels, ", ") + "}"
		}
		fmt.Fprintf(&doc, "| `%s%s` | %s |\n", m.name, labels, m.help)
	}
	currentFile(t, filepath.Join("..", "..", "docs", "metrics.md"), doc.String())
}

// A scrape succeeds whatever the Status holds: names that are no text, the same
// label twice, nothing at all, times beyond all bounds.
func TestMetricsOfAnOddStatus(t *testing.T) {
	odd := &Status{
		Cluster:      Cluster{Members: []Member{{Name: "\xff\xfe"}, {Name: "\xff\xfe"}, {Name: "a\nb\"c"}}},
		Jobs:         []job.Status{{Name: "full", Schedule: "not cron"}, {Name: "full"}, {Name: "", LastSuccess: &job.Run{}}},
		Certificates: []Certificate{{Error: "x"}, {Error: "y"}, {Expires: time.Unix(1<<40, 0)}},
		Archive:      &archive.State{Role: "of-the-future", Alarms: []archive.RaisedAlarm{{Alarm: "odd"}, {Alarm: "odd"}}},
		Problems:     []Problem{{Kind: "odd"}, {Kind: "odd"}, {Kind: "\xff"}},
	}
	text := exposition(t, gather(t, odd))
	if !strings.Contains(text, `requorum_problems{kind="odd"} 2`) {
		t.Error("an unknown kind of problem is not counted")
	}
}

// The number of series does not depend on the number of backups.
func TestCardinality(t *testing.T) {
	count := func(s *Status) (n int) {
		for _, f := range gather(t, s) {
			n += len(f.Metric)
		}
		return n
	}
	s := full()
	before := count(s)
	for i := range 1000 {
		s.Repository.Backups = append(s.Repository.Backups, Backup{ID: strconv.Itoa(i), Timeline: timeline, Time: now.Add(-100 * time.Hour)})
		s.Repository.Ranges = append([]walreplay.Range{{Timeline: timeline, Gap: true}}, s.Repository.Ranges...)
	}
	if after := count(s); after != before {
		t.Errorf("%d series with 1000 backups more, %d without", after, before)
	}
}

// Several scrapes at once.
func TestConcurrentScrapes(t *testing.T) {
	reg := prometheus.NewRegistry()
	require.NoError(t, NewMetrics(reg, full))
	require.Error(t, NewMetrics(reg, full), "the same metrics registered twice, without an error")
	var scrapes sync.WaitGroup
	for range 8 {
		scrapes.Go(func() {
			if _, err := reg.Gather(); err != nil {
				t.Error(err)
			}
		})
	}
	scrapes.Wait()
}

// value is that of one metric with these labels' values.
func value(t *testing.T, s *Status, name string, labels ...string) (float64, bool) {
	t.Helper()
	for _, f := range gather(t, s) {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			var values []string
			for _, l := range m.Label {
				values = append(values, l.GetValue())
			}
			if strings.Join(values, ",") == strings.Join(labels, ",") {
				if m.Counter != nil {
					return m.Counter.GetValue(), true
				}
				return m.Gauge.GetValue(), true
			}
		}
	}
	return 0, false
}

// The recovery point is what the Status says, 0 before there is one: the alert
// on its age fires then. It also advances while nothing is written.
func TestRecoveryPoint(t *testing.T) {
	s := &Status{}
	if v, ok := value(t, s, "requorum_recoverable_until_timestamp_seconds"); !ok || v != 0 {
		t.Errorf("%v, %v before the first backup", v, ok)
	}
	s.Archive = &archive.State{Archived: 7, ArchivedTime: now}
	for i := range 3 {
		at := now.Add(time.Duration(i) * time.Minute)
		s.RPO = RPO{Known: true, Until: at}
		if v, _ := value(t, s, "requorum_recoverable_until_timestamp_seconds"); v != float64(at.Unix()) {
			t.Errorf("%v at %s, with nothing written since", v, at)
		}
	}
	s.RPO = RPO{Unknown: now.Add(time.Hour), Until: now}
	if v, _ := value(t, s, "requorum_recoverable_until_timestamp_seconds"); v != float64(now.Unix()) {
		t.Errorf("%v while the repository does not answer", v)
	}
}

// What makes a gap open, and what does not.
func TestGapOpen(t *testing.T) {
	r := func(gap bool) walreplay.Range { return walreplay.Range{Timeline: timeline, Gap: gap} }
	other := walreplay.Range{Timeline: repository.TimelineID{ClusterID: 1, N: 1}, Gap: true}
	for name, test := range map[string]struct {
		archive *archive.State
		ranges  []walreplay.Range
		want    bool
	}{
		"nothing":              {nil, nil, false},
		"a gap that is closed": {nil, []walreplay.Range{r(false), r(true), r(false)}, false},
		"a gap at the end":     {nil, []walreplay.Range{r(false), r(true)}, true},
		"of another timeline":  {nil, []walreplay.Range{r(false), other}, false},
		"a full is due":        {&archive.State{SnapshotDue: "purged"}, []walreplay.Range{r(false)}, true},
	} {
		s := &Status{Archive: test.archive, Repository: Repository{Ranges: test.ranges, Timeline: timeline}}
		if v, _ := value(t, s, "requorum_gap_open"); (v == 1) != test.want {
			t.Errorf("%s: %v", name, v)
		}
	}
}
