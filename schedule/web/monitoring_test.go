package web

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/archive"
)

// top is the top of the repository.
var top = filepath.Join("..", "..")

var monitoring = filepath.Join(top, "deploy", "monitoring")

// alerts are those that there are, with their severities.
var wantAlerts = map[string][]string{
	"RequorumRecoveryPointStale":  {"critical"},
	"RequorumRepositoryGone":      {"critical"},
	"RequorumClusterDown":         {"critical"},
	"RequorumEtcdFull":            {"critical"},
	"RequorumAgentAbsent":         {"critical", "warning"}, // no agent; one of several
	"RequorumGapOpen":             {"critical"},
	"RequorumStartedOver":         {"critical"},
	"RequorumVerifyFailed":        {"critical"},
	"RequorumMembersDivergent":    {"critical"},
	"RequorumNoVerifiedBackup":    {"critical"},
	"RequorumFullBackupLate":      {"warning"},
	"RequorumDrillLate":           {"warning"},
	"RequorumSpoolFillingUp":      {"warning"},
	"RequorumRetentionBlocked":    {"warning"},
	"RequorumCertificateExpiring": {"warning"},
	"RequorumNoWriter":            {"warning"},
}

type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func readAlerts(t *testing.T) []alertRule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alertRule } }
	require.NoError(t, yaml.Unmarshal(readFile(t, filepath.Join(monitoring, "alerts.yaml")), &file))
	var all []alertRule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// The alerts are exactly those that are named, each with words, a severity and a
// page of its own.
func TestAlerts(t *testing.T) {
	got := map[string][]string{}
	for _, a := range readAlerts(t) {
		got[a.Alert] = append(got[a.Alert], a.Labels["severity"])
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has no summary or description", a.Alert)
		}
		if want := "https://github.com/requorum/requorum/blob/main/docs/runbooks/" + a.Alert + ".md"; a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
		knownMetrics(t, a.Alert, a.Expr)
	}
	for name, severities := range wantAlerts {
		if !slices.Equal(got[name], severities) {
			t.Errorf("%s has the severities %v, want %v", name, got[name], severities)
		}
	}
	for name := range got {
		if wantAlerts[name] == nil {
			t.Errorf("the alert %s is not among those that are named", name)
		}
	}
}

var (
	metricName = regexp.MustCompile(`requorum_[a-z0-9_]+`)
	matcher    = regexp.MustCompile(`\b(kind|job_name|level|alarm)=~?"([^"$]*)"`)
)

// knownMetrics checks that each metric of an expression is there, and that each
// kind, job and level in it is one.
func knownMetrics(t *testing.T, where, expr string) {
	t.Helper()
	names := map[string]bool{}
	for _, m := range all() {
		names[m.name] = true
	}
	for _, name := range metricName.FindAllString(expr, -1) {
		if !names[name] {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
	values := map[string][]string{
		"kind": kinds(), "level": report.LevelNames(),
		"job_name": {"full", "checksum", "structure", "replay", "drill", "prune", "merge", "divergence"},
	}
	for _, a := range archive.Alarms() {
		values["alarm"] = append(values["alarm"], string(a))
	}
	for _, m := range matcher.FindAllStringSubmatch(expr, -1) {
		for _, v := range strings.Split(m[2], "|") {
			if !slices.Contains(values[m[1]], v) {
				t.Errorf("%s: there is no %s %q", where, m[1], v)
			}
		}
	}
}

// Each alert, in each of its severities, has a unit test in which it fires, and
// one in which it must not.
func TestAlertsAreTested(t *testing.T) {
	type check struct {
		Alertname string
		Expected  []struct {
			Labels map[string]string `yaml:"exp_labels"`
		} `yaml:"exp_alerts"`
	}
	var file struct {
		Tests []struct {
			Checks []check `yaml:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal(readFile(t, filepath.Join(monitoring, "alerts_test.yaml")), &file))
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		fired := map[string]bool{}
		for _, c := range test.Checks {
			for _, e := range c.Expected {
				fires[c.Alertname+" "+e.Labels["severity"]] = true
			}
			fired[c.Alertname] = fired[c.Alertname] || len(c.Expected) > 0
		}
		for name, f := range fired {
			if !f {
				silent[name] = true
			}
		}
	}
	for name, severities := range wantAlerts {
		for _, severity := range severities {
			if !fires[name+" "+severity] {
				t.Errorf("no test in which %s fires, %s", name, severity)
			}
		}
		if !silent[name] {
			t.Errorf("no test in which %s never fires", name)
		}
	}
}

// The rules, and their unit tests, by Prometheus' own tool.
func TestPromtool(t *testing.T) {
	tool := promtool(t)
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", filepath.Join(monitoring, "alerts.yaml")},
		{"test", "rules", filepath.Join(monitoring, "alerts_test.yaml")},
	} {
		if args[0] == "test" && testing.Short() {
			continue // days of samples, each minute of which is looked at
		}
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// promtool takes minutes to build: it is built for CI only.
func promtool(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(top, ".cache", "bin", "promtool"))
	require.NoError(t, err)
	must := os.Getenv("REQUORUM_CI") == "1"
	if _, err := os.Stat(path); err == nil && !must {
		return path
	} else if !must {
		t.Skip("SKIPPED: promtool is not built: run .tools/build promtool (it takes minutes), or set REQUORUM_CI=1")
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(top, ".tools", "build"), "promtool").CombinedOutput(); err != nil {
		t.Fatalf("build promtool: %v\n%s", err, out)
	}
	return path
}

// The dashboard is JSON, asks for metrics that there are, and has no two panels
// in one place.
func TestDashboard(t *testing.T) {
	type target struct{ Expr string }
	type panel struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []target
	}
	var dashboard struct {
		UID, Title string
		Panels     []panel
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	require.NoError(t, json.Unmarshal(readFile(t, filepath.Join(monitoring, "dashboard.json")), &dashboard))
	if dashboard.UID == "" || dashboard.Title == "" || len(dashboard.Panels) == 0 {
		t.Error("the dashboard has no uid, title or panels")
	}
	for _, v := range dashboard.Templating.List {
		knownMetrics(t, "variable "+v.Name, v.Definition)
	}
	ids, taken := map[int]string{}, map[[2]int]string{}
	var asked strings.Builder
	for _, p := range dashboard.Panels {
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d has no title, description or targets", p.ID)
		}
		if other := ids[p.ID]; other != "" {
			t.Errorf("%s and %s have one ID", p.Title, other)
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s is in the place of %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, q := range p.Targets {
			if !metricName.MatchString(q.Expr) {
				t.Errorf("%s asks for nothing of ours: %q", p.Title, q.Expr)
			}
			knownMetrics(t, p.Title, q.Expr)
			asked.WriteString(q.Expr)
		}
	}
	for _, want := range []string{"recoverable_until", "recovery_time_seconds", "archived_index", "job_last_success", "verified_timestamp", "spooled_bytes", "member_up"} {
		if !strings.Contains(asked.String(), want) {
			t.Errorf("nothing on the dashboard shows %s", want)
		}
	}
}

// Expressions of the dashboard are PromQL: promtool reads them as rules.
func TestDashboardExpressions(t *testing.T) {
	tool := promtool(t)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(readFile(t, filepath.Join(monitoring, "dashboard.json")), &dashboard))
	type rule struct{ Record, Expr string }
	var rules []rule
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			rules = append(rules, rule{"panel", q.Expr})
		}
	}
	data, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", "--lint=none", path).CombinedOutput(); err != nil {
		t.Errorf("an expression of the dashboard is not PromQL: %v\n%s", err, out)
	}
}
