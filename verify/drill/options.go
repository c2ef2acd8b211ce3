package drill

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"
)

const (
	// DefaultReads is how many rows are compared: enough that a fault in one of
	// a hundred is found all but surely, and a second's work.
	DefaultReads = 1000
	// DefaultBootTimeout is for a machine that is busy with other things: a
	// database of 8 GiB boots in a minute on an idle one.
	DefaultBootTimeout = 10 * time.Minute
	// requestTimeout is how long one request may take: a member that computes its
	// hash answers nothing else meanwhile.
	requestTimeout = 2 * time.Minute
	// maxFindings bounds the report. With so many wrong answers nobody reads on.
	maxFindings = 100
)

// Options say how a drill is done.
type Options struct {
	// ScratchDir is where the scratch folder is made, for as many copies of the
	// database as there are members; the system's folder for temporary files
	// where empty. Where it is not there, it is made, and removed afterwards.
	ScratchDir string
	// Object is how the check calls what it looked at; the image's name where
	// empty.
	Object string
	// Members is how many voters the cluster has. 0: voters and learners as in
	// the image.
	Members int
	// Reads is how many rows of the database are compared with what is served, at
	// random; 0 is DefaultReads.
	Reads int
	// BootTimeout bounds the time until all members are ready; 0 is
	// DefaultBootTimeout.
	BootTimeout time.Duration
	// Command starts a program that calls Members and nothing else. Empty: this
	// one, with the argument MembersCommand.
	Command []string
	// Random chooses the rows. Nil: others each time.
	Random rand.Source
	// Progress may be nil. PhaseBuild counts bytes of the image, PhaseServe
	// checks. It is called from one goroutine at a time.
	Progress func(phase string, done, total int64)
	// Logger may be nil.
	Logger *slog.Logger
}

// Phases of a drill, in their order. PhaseBuild, PhaseBoot and PhaseFirstRead, with
// what it took to get the image, are the measured recovery time.
const (
	// PhaseBuild reads the image and builds the members' directories.
	PhaseBuild = "build"
	// PhaseExpect reads what the cluster is to serve out of the built database.
	PhaseExpect = "expect"
	// PhaseBoot starts the members, until each is part of a quorum.
	PhaseBoot = "boot"
	// PhaseFirstRead is the first linearizable read.
	PhaseFirstRead = "first read"
	// PhaseServe is all that is compared.
	PhaseServe = "serve"
	// PhaseRemove ends the members and removes their folder.
	PhaseRemove = "remove"
)

func (o Options) withDefaults(image string) (Options, error) {
	if o.Members < 0 || o.Reads < 0 || o.BootTimeout < 0 {
		return o, fmt.Errorf("drill: %d members, %d reads, %s to boot: none of them can be negative", o.Members, o.Reads, o.BootTimeout)
	}
	if o.ScratchDir == "" {
		o.ScratchDir = os.TempDir()
	}
	if o.Object == "" {
		o.Object = image
	}
	if o.Reads == 0 {
		o.Reads = DefaultReads
	}
	if o.BootTimeout == 0 {
		o.BootTimeout = DefaultBootTimeout
	}
	if o.Random == nil {
		o.Random = rand.NewPCG(rand.Uint64(), rand.Uint64())
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("drill: find the program to run the members: %w", err)
		}
		o.Command = []string{self, MembersCommand}
	}
	return o, nil
}
