package verdict

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

var (
	timeline = repository.TimelineID{ClusterID: 0xcdf818194e3a8c32, N: 1}
	backupA  = "20260102T150405Z-3f9a2c"
	backupB  = "20260103T150405Z-3f9a2d"
	noon     = time.Date(2026, 1, 4, 12, 0, 0, 0, time.UTC)
)

func newRepo(t testing.TB, s sinks.Sink) *repository.Repository {
	t.Helper()
	r, err := repository.Init(t.Context(), s, noon)
	require.NoError(t, err)
	return r
}

// manifest is of a backup whose stored bytes have the sum that starts so.
func manifest(id, sum string) *snapshot.Manifest {
	return &snapshot.Manifest{ID: id, Timeline: timeline, Stored: snapshot.StoredManifest{Size: 500, SHA256: sum}, Object: snapshot.StoredObject{
		Name:     repository.SnapshotName(timeline, id, 1, false),
		Encoding: codec.Encoding{StoredSize: 1000, StoredSHA256: sum + strings.Repeat("0", 64-len(sum))},
	}}
}

// verdictOn is what a run of verify says of a backup.
func verdictOn(m *snapshot.Manifest, level report.Level, status report.Status) Verdict {
	r := &report.Report{Tool: "requorum 1.2.3", Level: level, Started: noon, Finished: noon.Add(time.Minute)}
	for _, one := range report.Levels() {
		if !level.Includes(one) {
			break
		}
		c := report.Check{Level: one, Status: report.Passed, Object: fmt.Sprintf("%s/full/%s", m.Timeline, m.ID)}
		if one == level {
			c.Status = status
		}
		if c.Status == report.Damaged {
			c.Findings = []report.Finding{{Kind: report.KindObject, Text: "it is damaged"}}
		}
		r.Checks = append(r.Checks, c)
	}
	r.Checks[0].Manifest = m.Stored.SHA256
	return FromReport(r)[0]
}

// write writes verdicts, each a minute after the one before.
func write(t testing.TB, repo *repository.Repository, all ...Verdict) {
	t.Helper()
	n := 0
	for _, err := range repo.Verdicts(t.Context()) {
		require.NoError(t, err)
		n++
	}
	for _, v := range all {
		n++
		v.Finished = noon.Add(time.Duration(n) * time.Minute)
		require.NoError(t, Write(t.Context(), repo, []Verdict{v}))
	}
}

// number is that of a verdict that write wrote.
func number(finished time.Time) int { return int(finished.Sub(noon) / time.Minute) }

func readAll(t testing.TB, repo *repository.Repository) List {
	t.Helper()
	c, err := ReadAll(t.Context(), repo)
	require.NoError(t, err)
	return c
}

// filled is a repository with five verdicts on one backup.
func filled(t testing.TB) (*sinktest.Memory, *repository.Repository, *snapshot.Manifest) {
	t.Helper()
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	m := manifest(backupA, "aa")
	for range 5 {
		write(t, repo, verdictOn(m, report.Structure, report.Passed))
	}
	return s, repo, m
}

// nameOf is that of the verdict with a number.
func nameOf(t testing.TB, s sinks.Sink, n int) string {
	t.Helper()
	for o, err := range s.List(t.Context(), "verdicts/", "") {
		require.NoError(t, err)
		if name, err := repository.ParseVerdictName(o.Name); err == nil && number(name.Finished) == n {
			return o.Name
		}
	}
	t.Fatalf("no verdict %d", n)
	return ""
}

func get(t testing.TB, s sinks.Sink, n int) []byte {
	t.Helper()
	data, err := sinks.Get(t.Context(), s, nameOf(t, s, n), repository.DocumentLimit)
	require.NoError(t, err)
	return data
}

// replace puts other bytes in a verdict's place, or none.
func replace(t testing.TB, s sinks.Sink, n int, data []byte) {
	t.Helper()
	name := nameOf(t, s, n)
	require.NoError(t, s.Delete(t.Context(), name))
	if data != nil {
		store(t, s, name, data)
	}
}

func store(t testing.TB, s sinks.Sink, name string, data []byte) {
	t.Helper()
	_, err := sinks.Put(t.Context(), s, name, data, sinks.CreateOptions{})
	require.NoError(t, err)
}

// objects are those that the findings name, in their order.
func objects(c List) string {
	var all []string
	for _, f := range c.Findings {
		if f.Kind != report.KindVerdict || f.Text == "" {
			all = append(all, fmt.Sprintf("not a finding of a verdict: %+v", f))
		}
		n, err := repository.ParseVerdictName(f.Object)
		if err != nil {
			all = append(all, err.Error())
		}
		all = append(all, fmt.Sprint(number(n.Finished)))
	}
	return strings.Join(all, " ")
}

// counting are the numbers of the verdicts that count.
func counting(c List) string {
	var all []string
	for _, e := range c.Entries {
		if e.Err == nil {
			all = append(all, fmt.Sprint(number(e.Verdict.Finished)))
		}
	}
	return strings.Join(all, " ")
}

// Promise 2 of the package: what is done to five verdicts, and what is found. No fault hides a verdict that is whole.
func TestDamage(t *testing.T) {
	for _, test := range []struct {
		name     string
		do       func(t *testing.T, s *sinktest.Memory)
		found    string
		counting string
	}{
		{"nothing", func(*testing.T, *sinktest.Memory) {}, "", "1 2 3 4 5"},
		{"a bit flipped", func(t *testing.T, s *sinktest.Memory) {
			data := get(t, s, 3)
			data[len(data)/2] ^= 4
			replace(t, s, 3, data)
		}, "3", "1 2 4 5"},
		{"cut short", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, get(t, s, 3)[:100]) }, "3", "1 2 4 5"},
		{"empty", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, []byte{}) }, "3", "1 2 4 5"},
		{"far too big", func(t *testing.T, s *sinktest.Memory) {
			replace(t, s, 3, bytes.Repeat([]byte(" "), repository.DocumentLimit+1))
		}, "3", "1 2 4 5"},
		{"no verdict at all", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, []byte("{}")) }, "3", "1 2 4 5"},
		{"gone", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, nil) }, "", "1 2 4 5"},
		{"two exchanged", func(t *testing.T, s *sinktest.Memory) {
			two, three := get(t, s, 2), get(t, s, 3)
			replace(t, s, 2, three)
			replace(t, s, 3, two)
		}, "2 3", "1 4 5"},
		{"under a later time", func(t *testing.T, s *sinktest.Memory) {
			data, name := get(t, s, 5), nameOf(t, s, 5)
			replace(t, s, 5, nil)
			store(t, s, strings.Replace(name, "T1205", "T1209", 1), data)
		}, "9", "1 2 3 4"},
		{"under the name of another backup", func(t *testing.T, s *sinktest.Memory) {
			store(t, s, strings.Replace(nameOf(t, s, 5), backupA, backupB, 1), get(t, s, 5))
		}, "5", "1 2 3 4 5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, repo, _ := filled(t)
			test.do(t, s)
			c := readAll(t, repo)
			if objects(c) != test.found || counting(c) != test.counting {
				t.Errorf("found in %q, want %q; %q count, want %q\n%v", objects(c), test.found, counting(c), test.counting, c.Findings)
			}
			check := c.Check()
			if (check.Status == report.Damaged) != (test.found != "") || check.Level != report.Checksum || check.Bytes == 0 {
				t.Errorf("the check is %+v", check)
			}
		})
	}
}

// A verdict that a newer version wrote is passed over, and no damage.
func TestNewerFormat(t *testing.T) {
	s, repo, m := filled(t)
	data, err := repository.Seal(json.RawMessage(bytes.Replace(bodyOf(t, get(t, s, 5)), []byte(`"format": 1`), []byte(`"format": 2`), 1)))
	require.NoError(t, err)
	replace(t, s, 5, data)
	write(t, repo, verdictOn(m, report.Structure, report.Passed))
	c := readAll(t, repo)
	if objects(c) != "" || counting(c) != "1 2 3 4 6" || len(c.Notes) != 1 || !errors.Is(c.Entries[4].Err, snapshot.ErrNewerFormat) {
		t.Errorf("found in %q, %q count, %q", objects(c), counting(c), c.Notes)
	}
	replace(t, s, 5, append(data[:len(data):len(data)], '\n'))
	if c := readAll(t, repo); objects(c) != "5" {
		t.Errorf("found in %q", objects(c))
	}
}

// FuzzParse reads arbitrary bodies in a document whose sum fits. They are refused, or
// read as the same once written anew.
func FuzzParse(f *testing.F) {
	s, _, _ := filled(f)
	f.Add([]byte(bodyOf(f, get(f, s, 2))))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, err := parseStored(body)
		require.Error(t, err, "a verdict without a sum was read")
		if !json.Valid(body) {
			return
		}
		data, err := repository.Seal(json.RawMessage(body))
		require.NoError(t, err)
		v, err := parseStored(data)
		if err != nil {
			return
		}
		if v.Format != format || v.Kind != Kind {
			t.Fatalf("%+v", v)
		}
		again, err := repository.Seal(v)
		if err != nil {
			t.Skip() // a time that JSON reads and cannot write
		}
		back, err := parseStored(again)
		require.NoError(t, err)
		one, errOne := json.Marshal(v)
		two, errTwo := json.Marshal(back)
		if errOne != nil || errTwo != nil || !bytes.Equal(one, two) {
			t.Fatalf("%s\nis written anew as\n%s", one, two)
		}
	})
}

// An answer that was lost may have been a success: the verdict is there
// once, or the writer hears of it.
func TestLostAnswer(t *testing.T) {
	for _, answer := range []error{sinks.ErrUncertain, sinks.ErrExists} {
		s := sinktest.NewMemory()
		repo := newRepo(t, s)
		faulty := sinktest.NewFaulty(s, sinktest.Lose(sinktest.Commit, 1, answer))
		over, err := repository.Open(t.Context(), faulty)
		require.NoError(t, err)
		v := verdictOn(manifest(backupA, "aa"), report.Checksum, report.Passed)
		require.NoError(t, Write(t.Context(), over, []Verdict{v}))
		faulty.AllFired(t)
		if c := readAll(t, repo); counting(c) != "1" {
			t.Fatalf("%q count", counting(c))
		}
	}
}

// A failed put leaves no verdict, and is an error.
func TestFailedWrite(t *testing.T) {
	for _, fault := range []sinktest.Fault{
		sinktest.Fail(sinktest.Commit, 1, nil), sinktest.Fail(sinktest.Create, 1, sinks.ErrDenied),
		sinktest.Fail(sinktest.Commit, 1, sinks.ErrUncertain),
	} {
		s, repo, m := filled(t)
		faulty := sinktest.NewFaulty(s)
		over, err := repository.Open(t.Context(), faulty)
		require.NoError(t, err)
		faulty.Add(fault.Of("verdicts/"))
		if err := Write(t.Context(), over, []Verdict{verdictOn(m, report.Checksum, report.Passed)}); err == nil {
			t.Errorf("%s: no error", fault)
		}
		faulty.AllFired(t)
		if c := readAll(t, repo); len(c.Entries) != 5 || len(c.Findings) > 0 {
			t.Errorf("%s: %d verdicts, %v", fault, len(c.Entries), c.Findings)
		}
	}
}

// What cannot be read is an error, and never a list with less in it.
func TestUnreadable(t *testing.T) {
	s, _, _ := filled(t)
	faulty := sinktest.NewFaulty(s)
	repo, err := repository.Open(t.Context(), faulty)
	require.NoError(t, err)
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
	_, err = ReadAll(ctx, repo)
	require.ErrorIs(t, err, context.Canceled)
}

// bodyOf is that of a stored verdict.
func bodyOf(t testing.TB, data []byte) (body json.RawMessage) {
	t.Helper()
	require.NoError(t, repository.Unseal(data, &body))
	return body
}

// parseStored reads a verdict's document as readEntry does.
func parseStored(data []byte) (v Verdict, err error) {
	err = repository.Unseal(data, &v)
	return v, v.readable(err)
}

// However many verdicts somebody else adds, before and after: who checks signatures finds
// those that count.
func TestForeignFlood(t *testing.T) {
	s := sinktest.NewMemory()
	repo := newRepo(t, repository.WithKeys(s, sinktest.NewKeys(t)))
	flood := func(from int) {
		for n := range maxVerdicts/2 + 100 {
			store(t, s, repository.VerdictName{Timeline: timeline, Backup: backupA, Finished: noon.Add(time.Duration(from+n) * time.Second)}.String(), []byte("x"))
		}
	}
	flood(1)
	write(t, repo, verdictOn(manifest(backupA, "aa"), report.Structure, report.Passed))
	flood(maxVerdicts)
	l := readAll(t, repo)
	require.Len(t, l.Entries, 1)
	require.NoError(t, l.Entries[0].Err)
	require.Empty(t, l.Findings)
}
