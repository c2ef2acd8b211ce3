package recovertest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/store/storetest"
)

// wreck is a cluster after a power cut, with what was acknowledged.
type wreck struct {
	*storetest.Cluster
	*storetest.Operator
	early, load *Load
	late        int // this member stopped earlier
}

// Of a row that was overwritten, the comparison with the log knows the value and not the
// lease.
const (
	overwritten = "the first of two values"
	itsLease    = clientv3.LeaseID(0x7eadbeefcafe)
)

// newWreck stops m3 halfway, and kills the others in the middle of the rest.
func newWreck(t *testing.T) *wreck {
	t.Helper()
	w := &wreck{Cluster: storetest.Start(t, storetest.Options{Version: "3.6", Members: 3}), Operator: storetest.NewOperator(t), late: 2}
	client := w.Client(t)
	_, err := clientv3.RetryLeaseClient(client).LeaseGrant(t.Context(), &etcdserverpb.LeaseGrantRequest{ID: int64(itsLease), TTL: 3600})
	require.NoError(t, err)
	_, err = client.Put(t.Context(), "/twice", overwritten, clientv3.WithLease(itsLease))
	require.NoError(t, err)
	_, err = client.Put(t.Context(), "/twice", "the second")
	require.NoError(t, err)
	w.early = LightLoad(t, "/early/", Writes(100), func() { w.Stop(w.late) }, w.Client(t, 0), w.Client(t, 1))
	w.load = LightLoad(t, "/load/", Writes(200), w.KillAll, w.Client(t, 0), w.Client(t, 1))
	return w
}

// copies gives a copy of each member's directory, as member=dir.
func (w *wreck) copies(t *testing.T) (survivors []string, dirs []string) {
	t.Helper()
	for i := range w.Size() {
		dir := filepath.Join(t.TempDir(), w.Member(i).Name)
		w.CopyData(t, i, dir)
		survivors, dirs = append(survivors, w.Member(i).Name+"="+dir), append(dirs, dir)
	}
	return survivors, dirs
}

// byName are copies as well, as member=dir, by the member's name.
func (w *wreck) byName(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	survivors, _ := w.copies(t)
	for i, s := range survivors {
		all[w.Member(i).Name] = s
	}
	return all
}

// alter flips a bit of what is found in a file, where it stands last.
func alter(t *testing.T, path, what string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.LastIndex(data, []byte(what))
	if at < 0 {
		t.Fatalf("%s does not hold %q", path, what)
	}
	data[at] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// flipPage flips a bit in the head of the page with which the keys of a stopped
// member's database begin: the same in any other place may be in a free page, or
// in a value, where no single database shows it.
func flipPage(t *testing.T, db string) {
	t.Helper()
	b, err := bbolt.Open(db, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	var at int64
	err = b.View(func(tx *bbolt.Tx) error {
		at = int64(tx.Bucket([]byte("key")).Root()) * int64(b.Info().PageSize)
		return nil
	})
	require.NoError(t, errors.Join(err, b.Close()))
	f, err := os.OpenFile(db, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	flags := make([]byte, 1)
	_, err = f.ReadAt(flags, at+8)
	require.NoError(t, err)
	flags[0] ^= 1
	_, err = f.WriteAt(flags, at+8)
	require.NoError(t, err)
}

// inOrder are the keys that were acknowledged, by their revision.
func (l *Load) inOrder() []string {
	acks := l.Acks()
	return slices.SortedFunc(maps.Keys(acks), func(a, b string) int { return cmp.Compare(acks[a].Revision, acks[b].Revision) })
}

func lastSegment(t *testing.T, dir string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	slices.Sort(all)
	return all[len(all)-1]
}

func findings(t *testing.T, r recovered, survivor string) []sources.Finding {
	t.Helper()
	for _, s := range r.Findings.Survivors {
		if s.Name == survivor {
			all := s.Findings
			if c := r.Plan.Candidate(survivor); c != nil {
				all = append(all, c.Findings...)
			}
			return all
		}
	}
	t.Fatalf("survivor %s is not in the findings", survivor)
	return nil
}

// complete recovers and wants every acknowledged write.
func (w *wreck) complete(t *testing.T, survivors []string) recovered {
	t.Helper()
	args, dirs, initialCluster := into(t, "m1", "m2", "m3")
	r := local(t, w.Operator, exitOK, survivors, append(args, "--yes")...)
	again := storetest.StartFromDataDirs(t, "3.6", dirs, initialCluster)
	if missing := w.load.Missing(t, "/load/", again.Client(t)); len(missing) > 0 {
		t.Errorf("of %d acknowledged writes are missing: %v", len(w.load.Acks()), missing)
	}
	again.KillAll()
	return r
}

// TestPoint3Damaged is point 3 of what recover must show: a survivor with a broken
// log tail, a flipped bit in its database, another history or an older index is
// recognised, ranked, and never used in silence.
func TestPoint3Damaged(t *testing.T) {
	t.Parallel()
	w := newWreck(t)
	plan := []string{"--dry-run", "--data-dir", filepath.Join(t.TempDir(), "{name}")}

	t.Run("older index", func(t *testing.T) {
		survivors, _ := w.copies(t)
		r := local(t, w.Operator, exitOK, survivors, plan...)
		c := r.Plan.Candidate("m3")
		if !r.Plan.Proven || r.Plan.Chosen == "m3" || c == nil || c.Rank != 3 || c.Lost.Entries == 0 || !has(findings(t, r, "m3"), sources.KindBehind) {
			t.Errorf("chosen %s, proven %t, m3: %+v", r.Plan.Chosen, r.Plan.Proven, c)
		}
		// Beside the one that is behind, one survivor still makes a majority.
		w.complete(t, survivors[1:])
	})

	t.Run("flipped bit in the database", func(t *testing.T) {
		survivors, dirs := w.copies(t)
		flipPage(t, filepath.Join(dirs[0], "member", "snap", "db"))
		r := local(t, w.Operator, exitOK, survivors, plan...)
		if !r.Plan.Proven || !has(findings(t, r, "m1"), sources.KindDatabase) {
			t.Errorf("proven %t, m1: %+v", r.Plan.Proven, findings(t, r, "m1"))
		}
		if s := r.Plan.Candidate(r.Plan.Chosen).Source; s.Base.Owner == "m1" && s.Base.Path != "" { // its log may begin with the first entry
			t.Errorf("the damaged database is what the plan begins with: %+v", s)
		}
		w.complete(t, survivors)
	})

	t.Run("flipped bit in a value", func(t *testing.T) {
		survivors, dirs := w.copies(t)
		alterAll(t, filepath.Join(dirs[0], "member", "snap", "db"), overwritten)
		r := w.complete(t, survivors)
		if !r.Plan.Proven || r.Plan.Chosen == "m1" || r.CrossCheck == nil || !slices.Equal(r.CrossCheck.Odd, []string{"m1"}) {
			t.Errorf("chosen %s, proven %t, compared: %+v", r.Plan.Chosen, r.Plan.Proven, r.CrossCheck)
		}
	})

	t.Run("flipped bit that the log does not show", func(t *testing.T) {
		chosen := local(t, w.Operator, exitOK, slices.Collect(maps.Values(w.byName(t))), plan...).Plan.Chosen
		survivors := w.byName(t)
		db := filepath.Join(strings.TrimPrefix(survivors[chosen], chosen+"="), "member", "snap", "db")
		row, err := proto.Marshal(&mvccpb.KeyValue{Lease: int64(itsLease)})
		require.NoError(t, err)
		alterAll(t, db, string(row))
		all := slices.Collect(maps.Values(survivors))
		// Two differ, and the third decides, though its log ends early.
		args, dirs, initialCluster := into(t, "m1", "m2", "m3")
		e := w.Must(t, exitDamaged, slices.Concat([]string{"recover", "--local", strings.Join(all, ",")}, args, []string{"--yes"})...)
		_, source, _ := strings.Cut(e.Stderr, "Recover with --source ")
		source, _, _ = strings.Cut(strings.TrimSpace(source), ",")
		if !strings.Contains(e.Stderr, "the damaged one is that of "+chosen) || source == "" || source == chosen {
			t.Fatalf("what is damaged, and what to do, is not said: %s", e)
		}
		for _, dir := range dirs {
			_, err := os.Stat(dir)
			require.Error(t, err, "%s was built", dir)
		}
		// Named, it is what was asked for, and said loudly.
		snapshot := filepath.Join(t.TempDir(), "state.db")
		e = w.Must(t, exitOK, "recover", "--local", strings.Join(all, ","), "--to-snapshot", snapshot, "--source", chosen, "--yes")
		if !strings.Contains(e.Stdout, "WARNING: ") || !strings.Contains(e.Stdout, "the damaged one is that of "+chosen) {
			t.Errorf("no warning: %s", e)
		}
		// As the message says. The odd one is said again, and not used.
		r := local(t, w.Operator, exitOK, all, append(args, "--yes", "--source", source)...)
		if r.CrossCheck == nil || !slices.Equal(r.CrossCheck.Odd, []string{chosen}) || slices.Contains(r.CrossCheck.Agree, chosen) {
			t.Errorf("compared: %+v", r.CrossCheck)
		}
		again := storetest.StartFromDataDirs(t, "3.6", dirs, initialCluster)
		client := again.Client(t)
		if missing := w.load.Missing(t, "/load/", client); len(missing) > 0 {
			t.Errorf("of %d acknowledged writes are missing: %v", len(w.load.Acks()), missing)
		}
		if missing := w.early.Missing(t, "/early/", client); len(missing) > 0 {
			t.Errorf("of the early writes are missing: %v", missing)
		}
		again.KillAll()
	})

	t.Run("broken log tail", func(t *testing.T) {
		survivors, dirs := w.copies(t)
		keys := w.load.inOrder()
		alter(t, lastSegment(t, dirs[0]), keys[len(keys)/2])
		r := local(t, w.Operator, exitOK, survivors, plan...)
		if !r.Plan.Proven || !has(findings(t, r, "m1"), sources.KindBrokenLog) || r.Plan.Chosen == "m1" {
			t.Errorf("chosen %s, proven %t, m1: %+v", r.Plan.Chosen, r.Plan.Proven, findings(t, r, "m1"))
		}
		w.complete(t, survivors)
		// Without m2 the tail is nowhere, and one log read whole is no majority.
		r = local(t, w.Operator, exitUnproven, []string{survivors[0], survivors[2]}, plan...)
		if r.Plan.Proven || r.Plan.Loss.Text == "" {
			t.Errorf("proven %t, lost %+v", r.Plan.Proven, r.Plan.Loss)
		}
	})

	t.Run("another history", func(t *testing.T) {
		survivors, dirs := w.copies(t)
		forced := storetest.Start(t, storetest.Options{
			Version: "3.6", DataDirs: map[string]string{"m1": dirs[0]},
			InitialCluster: storetest.InitialCluster(t, "m1"), ExtraArgs: []string{"--force-new-cluster"},
		})
		LightLoad(t, "/forced/", Writes(50), func() { forced.Stop(0) }, forced.Client(t))
		e := w.Must(t, exitUsage, append([]string{"recover", "--output", "json", "--local", survivors[0] + "," + survivors[1] + "," + survivors[2]}, plan...)...)
		var r recovered
		e.Decode(t, &r)
		if r.Plan.Chosen != "" || len(r.Plan.Histories) < 2 || !has(findings(t, r, "m1"), sources.KindForced) {
			t.Errorf("chosen %q, histories %+v", r.Plan.Chosen, r.Plan.Histories)
		}
		// Named, it is as before: nothing of the other history gets in.
		args, built, initialCluster := into(t, "m1", "m2", "m3")
		named := local(t, w.Operator, exitUnproven, survivors, append(args, "--source", "m2", "--accept-loss", r.Plan.Histories[0].ClusterID.String())...)
		if named.Plan.Chosen != "m2" || !named.Plan.Named {
			t.Errorf("chosen %s, named %t", named.Plan.Chosen, named.Plan.Named)
		}
		again := storetest.StartFromDataDirs(t, "3.6", built, initialCluster)
		client := again.Client(t)
		if missing := w.load.Missing(t, "/load/", client); len(missing) > 0 {
			t.Errorf("of the history that was named are missing: %v", missing)
		}
		if got, err := client.Get(t.Context(), "/forced/0/000001"); err != nil || got.Count != 0 {
			t.Errorf("a write of the other history is there: %v, %v", got, err)
		}
		again.KillAll()
	})
}

// TestPoint3FlippedValue is the part of point 3 that no single database shows: a
// bit of a value is flipped on one host. What is built is compared with the databases of the
// others, and nothing is started; and the error says what to do.
func TestPoint3FlippedValue(t *testing.T) {
	if testing.Short() {
		t.Skip("TestPoint3Damaged has a flipped bit in a value")
	}
	t.Parallel()
	s := Start(t, Options{Version: "3.7"})
	m1 := s.Host(0)
	l := LightLoad(t, "/load/", Writes(200), func() {}, s.Client(t, s.Members()...))
	for _, h := range s.Members() {
		s.waitInFile(t, h, l)
	}
	s.KillAll(t)
	alterAll(t, filepath.Join(m1.DataDir, "member", "snap", "db"), "value 17")
	e := s.Must(t, exitDamaged, s.recovering(t, s.Hosts())...)
	for _, want := range []string{"nothing is started", "m2 and m3 agree", "the damaged one is that of m1", "--undo", "--source m2"} {
		if !strings.Contains(e.Stderr, want) {
			t.Errorf("%q is not said: %s", want, e)
		}
	}
	for _, h := range s.Hosts() {
		if len(h.Etcd(t)) > 0 {
			t.Errorf("%s was started", h.Name)
		}
	}
	s.Must(t, exitOK, "recover", "--config", s.ClusterFile(t, s.Hosts()...), "--output", "json", "--undo", "--yes")
	// The old members elect a leader, who writes an entry: m2 has to have it as well.
	s.WaitReady(t, s.Members()...)
	s.waitLevel(t)
	s.KillAll(t)
	// As the message says. What was named binds every host, also the one that has the
	// damaged database.
	r := s.recover(t, exitOK, s.Hosts(), "--source", "m2")
	for _, h := range r.Hosts {
		for _, b := range h.Brought {
			if b.From != "m2" {
				t.Errorf("%s took data of %s", h.Member, b.From)
			}
		}
	}
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "the damaged one is that of m1") }) {
		t.Errorf("what differs is not said: %q", r.Warnings)
	}
	s.nothingMissing(t, "/load/", l, s.Hosts()...)
}

// waitInFile waits until a running member's database has all that was acknowledged
// in its file: it is written a while later.
func (s *Site) waitInFile(t *testing.T, h *Host, l *Load) {
	t.Helper()
	storetest.Eventually(t, "acknowledged writes are in the file of "+h.Name, func() error {
		data, err := os.ReadFile(filepath.Join(h.DataDir, "member", "snap", "db"))
		require.NoError(t, err)
		for key := range l.Acks() {
			if !bytes.Contains(data, []byte(key)) {
				return fmt.Errorf("%s is not", key)
			}
		}
		return nil
	})
}

// waitLevel waits until all members have committed the same entries. One that is ready
// has made itself known, and a cluster that nobody writes to has no more to log.
func (s *Site) waitLevel(t *testing.T) {
	t.Helper()
	c := s.Client(t, s.Members()...)
	storetest.Eventually(t, "all members have committed the same", func() error {
		var all []uint64
		for _, h := range s.Members() {
			status, err := c.Status(t.Context(), h.ClientURL)
			require.NoError(t, err)
			all = append(all, status.RaftIndex)
		}
		if slices.Min(all) != slices.Max(all) {
			return fmt.Errorf("they have up to %d", all)
		}
		return nil
	})
}

// alterAll flips a bit in each place of a file that holds something.
func alterAll(t *testing.T, path, what string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	n := bytes.Count(data, []byte(what))
	changed := []byte(what)
	changed[len(changed)-1] ^= 1
	if n == 0 {
		t.Fatalf("%s does not hold %q", path, what)
	}
	require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(data, []byte(what), changed), 0o600))
}
