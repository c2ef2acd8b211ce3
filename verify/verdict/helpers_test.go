package verdict

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"time"

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
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newKey(t testing.TB) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return public, private
}

// manifest is of a backup whose stored bytes have the sum that starts so.
func manifest(id, sum string) *snapshot.Manifest {
	return &snapshot.Manifest{ID: id, Timeline: timeline, Stored: snapshot.StoredManifest{Size: 500, SHA256: sum}, Object: snapshot.StoredObject{
		Name:     repository.SnapshotName(timeline, id, false),
		Encoding: codec.Encoding{StoredSize: 1000, StoredSHA256: sum + strings.Repeat("0", 64-len(sum))},
	}}
}

// verdictOn is what a run of verify says of a backup.
func verdictOn(m *snapshot.Manifest, rung report.Rung, status report.Status) Verdict {
	r := &report.Report{Tool: "requorum 1.2.3", Rung: rung, Started: noon, Finished: noon.Add(time.Minute)}
	for _, one := range report.Rungs() {
		if !rung.Includes(one) {
			break
		}
		c := report.Check{Rung: one, Status: report.Passed, Object: fmt.Sprintf("%s/full/%s", m.Timeline, m.ID)}
		if one == rung {
			c.Status = status
		}
		if c.Status == report.Damaged {
			c.Findings = []report.Finding{{Kind: report.KindObject, Text: "it is damaged"}}
		}
		r.Checks = append(r.Checks, c)
	}
	return FromReport(r, SeenBackup(m))
}

// write appends verdicts and gives them as they were stored.
func write(t testing.TB, repo *repository.Repository, key ed25519.PrivateKey, all ...Verdict) []Verdict {
	t.Helper()
	var stored []Verdict
	for _, v := range all {
		v, err := Write(t.Context(), repo, v, key)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, v)
	}
	return stored
}

func readAll(t testing.TB, repo *repository.Repository, trusted ...ed25519.PublicKey) Chain {
	t.Helper()
	c, err := ReadAll(t.Context(), repo, trusted...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// filled is a repository with five verdicts on one backup.
func filled(t testing.TB, key ed25519.PrivateKey) (*sinktest.Memory, *repository.Repository, *snapshot.Manifest) {
	t.Helper()
	s := sinktest.NewMemory()
	repo := newRepo(t, s)
	m := manifest(backupA, "aa")
	for range 5 {
		write(t, repo, key, verdictOn(m, report.Structure, report.Passed))
	}
	return s, repo, m
}

func get(t testing.TB, s sinks.Sink, sequence uint64) []byte {
	t.Helper()
	data, err := sinks.Get(t.Context(), s, repository.VerdictName(sequence), repository.VerdictLimit)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// replace puts other bytes in a verdict's place, or none.
func replace(t testing.TB, s sinks.Sink, sequence uint64, data []byte) {
	t.Helper()
	if err := s.Delete(t.Context(), repository.VerdictName(sequence)); err != nil {
		t.Fatal(err)
	}
	if data == nil {
		return
	}
	if _, err := sinks.Put(t.Context(), s, repository.VerdictName(sequence), data, sinks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// objects are those that the findings name, in their order.
func objects(c Chain) string {
	var all []string
	for _, f := range c.Findings {
		if f.Kind != report.KindVerdict || f.Text == "" {
			all = append(all, fmt.Sprintf("not a finding of a verdict: %+v", f))
		}
		n, err := repository.ParseVerdictName(f.Object)
		if err != nil {
			all = append(all, err.Error())
		}
		all = append(all, fmt.Sprint(n))
	}
	return strings.Join(all, " ")
}

// counting are the numbers of the verdicts that count.
func counting(c Chain) string {
	var all []string
	for _, e := range c.Entries {
		if e.Counts {
			all = append(all, fmt.Sprint(e.Sequence))
		}
	}
	return strings.Join(all, " ")
}
