package verifytest

import (
	"slices"
	"testing"

	"github.com/requorum/requorum/verify/report"
)

// Fault is one way in which a repository can be damaged.
type Fault struct {
	// Name says what is wrong, as docs/verify.md has it.
	Name string
	// Rung is the lowest one that finds it, and Kinds are what it calls it: at
	// least one of them.
	Rung  report.Rung
	Kinds []report.Kind
	// Only says that it can be in plain or in encrypted repositories alone.
	Only Form
	// Database tells that a database can be unpacked, and that the fault is in it:
	// so other tools can be asked about it.
	Database bool
	// Varies says that it depends on what lies around it whether other tools find
	// it.
	Varies bool
	// Alone says that the backup that is damaged has nothing to be replayed from.
	Alone bool
	// Inject puts it into a repository that History.Write made of Script, with
	// Extras, and says what it changed.
	Inject func(t testing.TB, r *Repo) (what string)
}

// Form is how objects are stored.
type Form string

// The forms of a repository.
const (
	Either    Form = ""
	Plain     Form = "plain"
	Encrypted Form = "encrypted"
)

// Fits tells whether the fault can be in a repository.
func (f Fault) Fits(r *Repo) bool { return f.Only == Either || (f.Only == Encrypted) == r.Encrypted() }

// All are the faults, by rung.
func All() []Fault {
	return slices.Concat(objectFaults(), documentFaults(), swappedFaults(), segmentFaults(), knownFaults(), pageFaults(),
		rowFaults(), leaseFaults(), bucketFaults(), authFaults(), memberFaults(), manifestFaults(), replayFaults(), logFaults(), drillFaults())
}

func checksum(name string, inject func(testing.TB, *Repo) string, kinds ...report.Kind) Fault {
	return Fault{Name: name, Rung: report.Checksum, Kinds: kinds, Inject: inject}
}

// last is the number of the backup that is altered, before the one before it.
const (
	last   = 2
	before = 1
)
