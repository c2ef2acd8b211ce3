package recovertest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/store/storetest"
)

// Exit codes, as docs/commands.md has them.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitDamaged    = 3
	exitNothing    = 4
	exitIncomplete = 5
	exitUnproven   = 6
)

// figure states what a test has counted: the soak's report keeps it.
func figure(t testing.TB, what string, n any) {
	t.Helper()
	t.Attr(strings.ReplaceAll(what, " ", "-"), fmt.Sprint(n))
}

// short is a count for `make test`, or one for `make soak`.
func short(n, long int) int {
	if storetest.Soak() {
		return long
	}
	return n
}

// recovered is what `requorum recover --local --output json` prints, as far as
// tests look at it.
type recovered struct {
	Plan     *sources.Plan     `json:"plan"`
	Findings *sources.Findings `json:"findings"`
	// CrossCheck is what was rebuilt a second time.
	CrossCheck *sources.Comparison `json:"cross_check"`
}

// local runs `recover --local` of survivors, given as member=dir.
func local(t testing.TB, o *storetest.Operator, code int, survivors []string, args ...string) recovered {
	t.Helper()
	e := o.Must(t, code, slices.Concat([]string{"recover", "--output", "json", "--local", strings.Join(survivors, ",")}, args)...)
	var r recovered
	e.Decode(t, &r)
	return r
}

// into are the options that build a cluster of these members in a new folder, and
// the folders by member.
func into(t testing.TB, names ...string) (args []string, dirs map[string]string, initialCluster string) {
	t.Helper()
	dir := t.TempDir()
	dirs = map[string]string{}
	for _, n := range names {
		dirs[n] = filepath.Join(dir, n)
	}
	initialCluster = storetest.InitialCluster(t, names...)
	return []string{"--initial-cluster", initialCluster, "--data-dir", filepath.Join(dir, "{name}")}, dirs, initialCluster
}

func has(all []sources.Finding, kind sources.Kind) bool {
	return slices.ContainsFunc(all, func(f sources.Finding) bool { return f.Kind == kind && f.Text != "" })
}

// recover runs `recover --config` of these hosts to its end, which has to have the
// exit code.
func (s *Site) recover(t testing.TB, code int, hosts []*Host, args ...string) recovery.Report {
	t.Helper()
	e := s.Must(t, code, s.recovering(t, hosts, args...)...)
	var r recovery.Report
	e.Decode(t, &r)
	return r
}

// recovering is the command line of recover.
func (s *Site) recovering(t testing.TB, hosts []*Host, args ...string) []string {
	t.Helper()
	return append([]string{"recover", "--config", s.ClusterFile(t, hosts...), "--output", "json", "--yes"}, args...)
}

// survey runs `recover --dry-run`.
func (s *Site) survey(t testing.TB, code int, hosts []*Host, args ...string) recovery.Preview {
	t.Helper()
	e := s.Must(t, code, append([]string{"recover", "--config", s.ClusterFile(t, hosts...), "--output", "json", "--dry-run"}, args...)...)
	var p recovery.Preview
	e.Decode(t, &p)
	return p
}

// nothingMissing wants every acknowledged write in the cluster of these hosts.
func (s *Site) nothingMissing(t testing.TB, prefix string, l *Load, hosts ...*Host) {
	t.Helper()
	for _, h := range hosts {
		if missing := l.Missing(t, prefix, s.Client(t, h)); len(missing) > 0 {
			t.Errorf("%s lacks %d of %d acknowledged writes: %v", h.Name, len(missing), len(l.Acks()), missing)
		}
	}
}
