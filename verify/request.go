package verify

import (
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"os"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// What Request.Backup can be, beside an ID or the first characters of one.
const (
	// Latest is the newest backup and the log after it.
	Latest = snapshot.Latest
	// All is everything that the repository holds.
	All = "all"
)

// Request says what to prove, and how far. The zero value proves the structure
// of the newest backup and the bytes of the log after it.
type Request struct {
	Backup   string // an ID, the first characters of one, Latest (also empty), or All
	Timeline string // where to look; empty for anywhere
	Rung     report.Rung

	// Sample is the part of the bytes to be read, in percent; 0 is all of them.
	// Names, sizes, manifests and headers are always read. Seed chooses the
	// objects: the same one chooses the same.
	Sample float64
	Seed   uint64

	// Identities open encrypted objects. Without one that fits, their stored bytes
	// are compared, and what is above is Unchecked.
	Identities []age.Identity
	// Trusted are the keys of whom verdicts are believed; with none, everybody's.
	Trusted []ed25519.PublicKey
	// ScratchDir is where databases are unpacked; the system's folder for
	// temporary files where empty.
	ScratchDir string
	// Live, where it is not nil, is asked for its hash at each backup's revision.
	Live Live

	Tool string // such as "requorum 1.2.3"
	// Progress may be nil. It is called by one goroutine at a time.
	Progress func(phase string, done, total int64)
	Logger   *slog.Logger     // may be nil
	Now      func() time.Time // time.Now where nil
}

// withDefaults fills in what was left open, and refuses what cannot be.
func (r Request) withDefaults() (Request, error) {
	if r.Backup == "" {
		r.Backup = Latest
	}
	if r.Rung == "" {
		r.Rung = report.Structure
	}
	if _, err := report.ParseRung(string(r.Rung)); err != nil {
		return r, err
	}
	if !(r.Sample >= 0 && r.Sample <= 100) {
		return r, fmt.Errorf("a sample of %g percent: want more than 0, and at most 100", r.Sample)
	}
	if r.Live != nil && !r.Rung.Includes(report.Structure) {
		return r, fmt.Errorf("a live member is asked on the rung %s: the rung %s does not come to that", report.Structure, r.Rung)
	}
	if r.ScratchDir == "" {
		r.ScratchDir = os.TempDir()
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	if r.Progress == nil {
		r.Progress = func(string, int64, int64) {}
	}
	return r, nil
}

// newReport begins the report on a target.
func (r Request) newReport(target string) *report.Report {
	return &report.Report{Target: target, Rung: r.Rung, Tool: r.Tool, Started: r.Now().UTC(), Checks: []report.Check{}}
}
