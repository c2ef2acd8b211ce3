package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/repository"
)

// Survivor is where the data of one member lies.
type Survivor struct {
	Name    string // how the operator calls it
	DataDir string
	WALDir  string // empty where the log is in the data directory
}

func (s Survivor) logDir() string {
	if s.WALDir != "" {
		return s.WALDir
	}
	return filepath.Join(s.DataDir, "member", "wal")
}

func (s Survivor) snapDir() string { return filepath.Join(s.DataDir, "member", "snap") }

// SurveyRequest says where to look.
type SurveyRequest struct {
	Survivors []Survivor
	Digests   []Digest // of members whose directories lie elsewhere
	Repos     []*repository.Repository
	// Identities are for encrypted logs in the repositories.
	Identities []age.Identity
	// CheckBase looks at a member's database, of size bytes, beyond its pages; may
	// be nil. What it finds is a *snapshot.DamagedError.
	CheckBase func(ctx context.Context, name string, r io.ReaderAt, size int64) error
	// Progress may be nil. It is called from one goroutine; total is 0 where it is
	// not known.
	Progress func(phase string, done, total int64)
	Logger   *slog.Logger // may be nil
}

func (r *SurveyRequest) check() error {
	if len(r.Survivors) == 0 && len(r.Digests) == 0 && len(r.Repos) == 0 {
		return errors.New("there is nothing to look at: name the data directory of at least one member, or a repository")
	}
	seen := map[string]bool{}
	for i := range r.Survivors {
		s := &r.Survivors[i]
		switch {
		case s.Name == "" || s.DataDir == "":
			return errors.New("each data directory needs the name of its member: NAME=DIR")
		case seen[s.Name]:
			return fmt.Errorf("%s is named twice: each data directory needs a name of its own", s.Name)
		}
		seen[s.Name] = true
		for _, dir := range []*string{&s.DataDir, &s.WALDir} {
			if *dir == "" {
				continue
			}
			abs, err := filepath.Abs(*dir)
			if err != nil {
				return err
			}
			*dir = abs
		}
	}
	for _, d := range r.Digests {
		switch {
		case d.Name == "" || d.Open == nil:
			return errors.New("each digest needs the name of its member, and a way to open it")
		case seen[d.Name]:
			return fmt.Errorf("%s is named twice: give its directory or its digest, and each of them once", d.Name)
		}
		seen[d.Name] = true
	}
	return nil
}

func (r *SurveyRequest) progress(phase string, done, total int64) {
	if r.Progress != nil {
		r.Progress(phase, done, total)
	}
}
