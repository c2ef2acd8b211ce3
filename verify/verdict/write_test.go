package verdict

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// Of many that write at once every one gets into the chain, once, and the chain
// holds: decided by conditional put, on every kind of sink.
func TestConcurrentWriters(t *testing.T) {
	for _, test := range []struct {
		name    string
		writers int
		open    func(t *testing.T) sinks.Sink
	}{
		{"memory", 30, func(*testing.T) sinks.Sink { return sinktest.NewMemory() }},
		{"disk", 10, func(t *testing.T) sinks.Sink {
			s, err := disk.New(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}},
		{"s3", 5, func(t *testing.T) sinks.Sink {
			server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "verdicts", ObjectLock: true}}})
			server.Setenv(t)
			c, err := s3.ParseURL(server.URL("verdicts", "p"))
			if err != nil {
				t.Fatal(err)
			}
			s, err := s3.Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := test.open(t)
			defer s.Close()
			repo := newRepo(t, s)
			public, key := newKey(t)
			const each = 3
			var wg sync.WaitGroup
			var mu sync.Mutex
			mine := map[uint64]string{} // what each writer was told
			for i := range test.writers {
				wg.Go(func() {
					for j := range each {
						v := verdictOn(manifest(backupA, "aa"), report.Checksum, report.Passed)
						v.Tool = fmt.Sprintf("writer %d, verdict %d", i, j)
						v, err := Write(t.Context(), repo, v, key)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						mine[v.Sequence] = v.Tool
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			c := readAll(t, repo, public)
			if len(c.Findings) > 0 || len(c.Entries) != test.writers*each || len(mine) != len(c.Entries) {
				t.Fatalf("%d verdicts, %d writers' own, findings %v", len(c.Entries), len(mine), c.Findings)
			}
			for i, e := range c.Entries {
				if e.Sequence != uint64(i+1) || e.Verdict.Tool != mine[e.Sequence] || !e.Trusted {
					t.Errorf("verdict %d (%d) is of %s, and its writer %s", i+1, e.Sequence, e.Verdict.Tool, mine[e.Sequence])
				}
			}
		})
	}
}

// An answer that was lost may have been a success: the verdict is in the chain
// once, or the writer is told.
func TestLostAnswer(t *testing.T) {
	for _, answer := range []error{sinks.ErrUncertain, sinks.ErrExists} {
		s := sinktest.NewMemory()
		repo := newRepo(t, s)
		faulty := sinktest.NewFaulty(s, sinktest.Lose(sinktest.Commit, 1, answer))
		over, err := repository.Open(t.Context(), faulty)
		if err != nil {
			t.Fatal(err)
		}
		v := verdictOn(manifest(backupA, "aa"), report.Checksum, report.Passed)
		if v, err = Write(t.Context(), over, v, nil); err != nil || v.Sequence != 1 {
			t.Fatalf("verdict %d, %v", v.Sequence, err)
		}
		faulty.AllFired(t)
		if c := readAll(t, repo); counting(c) != "1" || c.Entries[0].Verdict.ID != v.ID {
			t.Fatalf("%q count", counting(c))
		}
	}
}

// A failed put leaves no verdict, and is an error.
func TestFailedWrite(t *testing.T) {
	for _, fault := range []sinktest.Fault{
		sinktest.Fail(sinktest.Commit, 1, nil), sinktest.Fail(sinktest.Create, 1, sinks.ErrDenied), sinktest.Fail(sinktest.List, 1, nil),
		sinktest.Fail(sinktest.Commit, 1, sinks.ErrUncertain), sinktest.Fail(sinktest.Open, 1, sinks.ErrDenied), sinktest.CutRead(1, 10, nil),
	} {
		s, repo, m := filled(t, nil)
		faulty := sinktest.NewFaulty(s)
		over, err := repository.Open(t.Context(), faulty)
		if err != nil {
			t.Fatal(err)
		}
		faulty.Add(fault.Of("verdicts/"))
		if _, err := Write(t.Context(), over, verdictOn(m, report.Checksum, report.Passed), nil); err == nil {
			t.Errorf("%s: no error", fault)
		}
		faulty.AllFired(t)
		if c := readAll(t, repo); len(c.Entries) != 5 || len(c.Findings) > 0 {
			t.Errorf("%s: %d verdicts, %v", fault, len(c.Entries), c.Findings)
		}
	}
}

// What is wrong with the newest verdict keeps nobody from writing the next.
func TestWriteBehindDamage(t *testing.T) {
	s, repo, m := filled(t, nil)
	replace(t, s, 5, []byte("{"))
	write(t, repo, nil, verdictOn(m, report.Checksum, report.Passed))
	if c := readAll(t, repo); objects(c) != "5" || counting(c) != "1 2 3 4 6" {
		t.Errorf("found in %q, %q count", objects(c), counting(c))
	}
}

// The newest verdict may be pruned between the listing and the reading: the
// writer lists again.
func TestWriteWhilePruned(t *testing.T) {
	s, repo, m := filled(t, nil)
	pruning := &prunes{Memory: s}
	over, err := repository.Open(t.Context(), pruning)
	if err != nil {
		t.Fatal(err)
	}
	pruning.name = repository.VerdictName(5)
	v, err := Write(t.Context(), over, verdictOn(m, report.Checksum, report.Passed), nil)
	if err != nil || pruning.name != "" || v.Sequence != 5 {
		t.Fatalf("verdict %d, %v", v.Sequence, err)
	}
	if c := readAll(t, repo); counting(c) != "1 2 3 4 5" || len(c.Findings) > 0 {
		t.Errorf("%q count, %v", counting(c), c.Findings)
	}
}

// prunes deletes an object at the first try to read it.
type prunes struct {
	*sinktest.Memory
	name string
}

func (p *prunes) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if name == p.name {
		p.name = ""
		if err := p.Delete(ctx, name); err != nil {
			return nil, err
		}
	}
	return p.Memory.Open(ctx, name, offset, length)
}

// A verdict with more subjects than an object has room for is written in parts,
// and each subject is found.
func TestParts(t *testing.T) {
	repo := newRepo(t, sinktest.NewMemory())
	var all []*snapshot.Manifest
	whole := Verdict{Rung: report.Checksum}
	for i := range 9000 {
		m := manifest(repository.NewBackupID(noon.Add(time.Duration(i)*time.Second)), "aa")
		all = append(all, m)
		whole.Subjects = append(whole.Subjects, verdictOn(m, report.Checksum, report.Passed).Subjects...)
	}
	last := write(t, repo, nil, whole)[0]
	if last.Part < 2 || last.Part != last.Parts || last.Sequence != uint64(last.Parts) {
		t.Fatalf("the last one is %d, part %d of %d", last.Sequence, last.Part, last.Parts)
	}
	c := readAll(t, repo)
	if len(c.Findings) > 0 || len(c.Entries) != last.Parts {
		t.Fatalf("%d verdicts, %v", len(c.Entries), c.Findings)
	}
	for _, m := range []*snapshot.Manifest{all[0], all[4500], all[8999]} {
		if _, ok := c.Newest(m, report.Checksum); !ok {
			t.Errorf("%s is not proved", m.ID)
		}
	}
}

// A verdict about nothing is a verdict: the run took place.
func TestNoSubjects(t *testing.T) {
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	write(t, repo, nil, Verdict{Rung: report.Checksum})
	if c := readAll(t, repo); counting(c) != "1" || c.Entries[0].Verdict.Host == "" {
		t.Errorf("%+v", c)
	}
	if !strings.Contains(string(get(t, s, 1)), `"subjects": []`) {
		t.Errorf("%s", get(t, s, 1))
	}
}

// A repository without verdicts has an empty chain, and no fault.
func TestEmptyChain(t *testing.T) {
	c := readAll(t, newRepo(t, sinktest.NewMemory()))
	if len(c.Entries)+len(c.Findings)+len(c.Notes) > 0 || c.Check().Status != report.Passed {
		t.Errorf("%+v", c)
	}
}

// What cannot be read is an error, and never a chain with less in it.
func TestUnreadable(t *testing.T) {
	s, _, _ := filled(t, nil)
	faulty := sinktest.NewFaulty(s)
	repo, err := repository.Open(t.Context(), faulty)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range []sinktest.Fault{
		sinktest.Fail(sinktest.Open, 1, sinks.ErrDenied), sinktest.Fail(sinktest.List, 1, nil), sinktest.CutList(1, 2, nil), sinktest.CutRead(1, 10, nil),
	} {
		faulty.Add(fault.Of("verdicts/"))
		if _, err := ReadAll(t.Context(), repo); err == nil {
			t.Errorf("%s: no error", fault)
		}
		faulty.AllFired(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ReadAll(ctx, repo); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Verdicts are locked where the sink locks: who can write cannot take them back.
func TestLocked(t *testing.T) {
	s := &locks{Memory: sinktest.NewMemory()}
	write(t, newRepo(t, s), nil, Verdict{Rung: report.Checksum})
	if !slices.Contains(s.locked, repository.VerdictName(1)) {
		t.Errorf("locked: %v", s.locked)
	}
}

type locks struct {
	*sinktest.Memory
	locked []string
}

func (l *locks) Create(ctx context.Context, name string, o sinks.CreateOptions) (sinks.Writer, error) {
	if o.Lock {
		l.locked = append(l.locked, name)
	}
	return l.Memory.Create(ctx, name, o)
}
