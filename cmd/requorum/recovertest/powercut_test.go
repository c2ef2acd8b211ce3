package recovertest

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/requorum/requorum/store/storetest"
)

// tally counts over rounds that run at the same time.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what] += n
}

// TestPoint1PowerCut is point 1 of what recover must show, and promises 2, 3 and 8
// of the design: under light load all members are killed right after the last
// acknowledgement. From two or three survivors the plan says proven, and not one
// acknowledged write is lost; from one it says unproven, before anything is built,
// and nothing is built unless the loss is accepted. Beside it stands what etcd's
// --force-new-cluster makes of the same directories.
func TestPoint1PowerCut(t *testing.T) {
	t.Parallel()
	count := &tally{n: map[string]int{}}
	t.Run("rounds", func(t *testing.T) {
		for i := range storetest.Amount(1, 5, 100) {
			versions := storetest.Versions()
			version := versions[len(versions)-1-i%len(versions)]
			t.Run(fmt.Sprint(i+1, "-", version), func(t *testing.T) {
				t.Parallel()
				powerCut(t, i, version, count)
			})
		}
	})
	for what, n := range count.n {
		figure(t, what, n)
	}
}

func powerCut(t *testing.T, round int, version string, count *tally) {
	o := storetest.NewOperator(t)
	c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
	l := LightLoad(t, "/load/", Writes(200), func() { c.KillAll() }, c.Client(t), c.Client(t))
	count.add("acknowledged writes", len(l.Acks()))

	survivor := func(i int) string { return c.Member(i).Name + "=" + c.Member(i).DataDir }
	sets := [][]int{{0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}
	var some []string
	for _, i := range sets[round%len(sets)] {
		some = append(some, survivor(i))
	}
	args, dirs, initialCluster := into(t, "m1", "m2", "m3")
	r := local(t, o, exitOK, some, append(args, "--yes")...)
	if !r.Plan.Proven || r.Plan.Bump.Raise {
		t.Errorf("from %v: proven %t (%s), raised %+v", some, r.Plan.Proven, r.Plan.Why, r.Plan.Bump)
	}
	again := storetest.StartFromDataDirs(t, version, dirs, initialCluster)
	missing := l.Missing(t, "/load/", again.Client(t))
	if len(missing) > 0 {
		t.Errorf("from %v: of %d acknowledged writes are missing: %v", some, len(l.Acks()), missing)
	}
	again.KillAll()
	count.add("recoveries from two or three", 1)
	count.add("lost from two or three", len(missing))

	one := round % c.Size()
	count.add("lost from one", fromOne(t, o, version, l, survivor(one)))
	count.add("recoveries from one", 1)
	for i := range short(1, c.Size()) {
		count.add("lost by force-new-cluster", forcedNew(t, c, (one+i)%c.Size(), l))
		count.add("uses of force-new-cluster", 1)
	}
}

// fromOne recovers from a single survivor and gives what is lost.
func fromOne(t *testing.T, o *storetest.Operator, version string, l *Load, survivor string) int {
	t.Helper()
	alone := []string{survivor}
	dead := []string{"--declare-dead", "m1,m2,m3"}
	args, dirs, initialCluster := into(t, "m1", "m2", "m3")
	args = append(args, dead...)
	p := local(t, o, exitUnproven, alone, append(args, "--dry-run")...)
	if p.Plan.Proven || p.Plan.Why == "" || !p.Plan.Bump.Raise {
		t.Errorf("%s alone: %+v", survivor, p.Plan)
	}
	o.Must(t, exitUsage, append([]string{"recover", "--local", survivor, "--yes"}, args...)...)
	for name, dir := range dirs {
		if exists(dir) {
			t.Errorf("a loss was not accepted, and %s was built in %s", name, dir)
		}
	}
	local(t, o, exitUnproven, alone, append(args, "--accept-loss", p.Plan.ClusterID.String())...)
	again := storetest.StartFromDataDirs(t, version, dirs, initialCluster)
	missing := l.Missing(t, "/load/", again.Client(t))
	again.KillAll()
	return len(missing)
}

// forcedNew starts a copy of a member with --force-new-cluster and gives what is
// lost.
func forcedNew(t *testing.T, c *storetest.Cluster, i int, l *Load) int {
	t.Helper()
	name := c.Member(i).Name
	dir := filepath.Join(t.TempDir(), name)
	c.CopyData(t, i, dir)
	forced := storetest.Start(t, storetest.Options{
		Version: c.Version(), DataDirs: map[string]string{name: dir},
		InitialCluster: storetest.InitialCluster(t, name), ExtraArgs: []string{"--force-new-cluster"},
	})
	missing := l.Missing(t, "/load/", forced.Client(t))
	forced.KillAll()
	return len(missing)
}
