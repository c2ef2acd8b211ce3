package replaying

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/difference"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// DefaultStops is how often a replay is interrupted for stamps that a later
// compaction leaves nothing to compare with: each costs a copy of the database
// and two passes over it.
const DefaultStops = 4

// Options are how a replay is done.
type Options struct {
	// ScratchDir is where scratch folders are made. Plan says how much they take.
	ScratchDir string
	// Identities are for encrypted backups and logs.
	Identities []age.Identity
	// Unpacked are snapshots of the timeline by their ID that the caller has
	// unpacked and compared with their sums: these are not fetched again.
	Unpacked map[string]*snapshot.File
	// MinLeaseTTL, PersistCheckpoints and SourceVersion say how the source's
	// members were configured: see walreplay.Options. An empty SourceVersion is
	// that of the members which the snapshots were read from.
	MinLeaseTTL        time.Duration
	PersistCheckpoints bool
	SourceVersion      string
	// MaxFindings bounds the findings; 0 is difference.DefaultMaxFindings.
	MaxFindings int
	// Stops for stamps: 0 is DefaultStops, negative is none.
	Stops int
	// Progress may be nil. It is called from one goroutine: the phases are
	// "fetch" and "compare" in bytes, and those of walreplay.
	Progress func(phase string, done, total int64)
	Logger   *slog.Logger // may be nil
}

func (o Options) progress(phase string, done, total int64) {
	if o.Progress != nil {
		o.Progress(phase, done, total)
	}
}

func (o Options) walreplay(version, scratch string) walreplay.Options {
	return walreplay.Options{
		CheckBase:  CheckBase,
		ScratchDir: scratch, MinLeaseTTL: o.MinLeaseTTL, PersistCheckpoints: o.PersistCheckpoints, SourceVersion: version,
		Progress: func(p walreplay.Phase, done, total int64) { o.progress(string(p), done, total) },
		Logger:   o.Logger,
	}
}

// unpacked is the same base, read from the caller's copy where there is one.
func (o Options) unpacked(b *walreplay.Base) *walreplay.Base {
	f := o.Unpacked[b.ID]
	if f == nil || b.Image == nil {
		return b
	}
	local := *b
	local.Image = f
	return &local
}

// ObjectOf is how a check calls a backup.
func ObjectOf(m *snapshot.Manifest) string { return fmt.Sprintf("%s/full/%s", m.Timeline, m.ID) }

// Check replays the log from the full snapshot before m to m's raft index, and
// compares the two databases. What it finds is in the check. Others are of
// snapshots that are known to be wrong now, though m is proved: of the one before
// it, where an older one gives m. The error is a failure of a repository or of the
// scratch folder, or ctx's.
func Check(ctx context.Context, repo *repository.Repository, c *snapshot.Catalog, m *snapshot.Manifest, o Options) (check report.Check, others []report.Check, err error) {
	k := newChecking(ObjectOf(m), o)
	k.err = k.backup(ctx, repo, c, m)
	check, err = k.end(ctx)
	return check, k.others, err
}

// checking is one check under way.
type checking struct {
	report.Check
	o        Options
	began    time.Time
	scratch  *walreplay.ScratchFolder
	compared []string
	member   bool            // it is of a member's data directory
	other    *walreplay.Base // what it was begun from, where that is in doubt
	others   []report.Check
	err      error
}

func newChecking(object string, o Options) *checking {
	return &checking{Check: report.Check{Rung: report.Replay, Object: object}, o: o, began: time.Now()}
}

// end makes the check out of what was found, and removes the scratch.
func (k *checking) end(ctx context.Context) (report.Check, error) {
	err := k.err
	if k.scratch != nil {
		if removed := k.scratch.Remove(); removed != nil {
			return report.Check{}, errors.Join(err, removed)
		}
	}
	if ctx.Err() != nil {
		return report.Check{}, context.Cause(ctx)
	}
	if err != nil {
		if err = k.settle(err); err != nil {
			return report.Check{}, fmt.Errorf("check %s by a replay: %w", k.Object, err)
		}
	}
	switch {
	case len(k.Findings) > 0:
		k.Status, k.Reason = report.Damaged, ""
	case k.Reason != "":
		k.Status = report.Unchecked
	default:
		k.Status = report.Passed
	}
	k.Compared = strings.Join(k.compared, ". ")
	k.Took = time.Since(k.began)
	return k.Check, nil
}

// fork is a copy that goes its own way.
func (k *checking) fork() checking {
	c := *k
	c.compared, c.Findings, c.Phases = slices.Clone(k.compared), slices.Clone(k.Findings), slices.Clone(k.Phases)
	return c
}

func (k *checking) found(kind report.Kind, object, where, format string, args ...any) {
	k.Findings = append(k.Findings, report.Finding{Kind: kind, Object: object, Where: where, Text: fmt.Sprintf(format, args...)})
}

func (k *checking) say(format string, args ...any) {
	k.compared = append(k.compared, fmt.Sprintf(format, args...))
}

// phase measures a part.
func (k *checking) phase(name string, began time.Time) { k.phaseTook(name, time.Since(began)) }

func (k *checking) phaseTook(name string, took time.Duration) {
	k.Phases = append(k.Phases, report.Phase{Name: name, Took: took})
}

// path is that of a scratch file.
func (k *checking) path(name string) (string, error) {
	if k.scratch == nil {
		s, err := walreplay.NewScratchFolder(k.o.ScratchDir)
		if err != nil {
			return "", err
		}
		k.scratch = s
	}
	return filepath.Join(k.scratch.Path(), name), nil
}

// copyOf writes an image to a scratch file, with all its own checks.
func (k *checking) copyOf(ctx context.Context, image snapshot.Image, name string) (path string, err error) {
	if path, err = k.path(name); err != nil {
		return "", err
	}
	if err := k.scratch.Needs(image.Size()); err != nil {
		return "", err
	}
	r, err := image.Open(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, 1<<20)
	var done int64
	for {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := f.Write(buf[:n]); err != nil {
				return "", err
			}
			done += int64(n)
			k.o.progress("fetch", done, image.Size())
		}
		if errors.Is(err, io.EOF) {
			k.Bytes += done
			return path, nil
		}
		if err != nil {
			return "", err
		}
	}
}

// database is a database in a file.
type database struct {
	name string // as findings call it
	path string
	size int64
}

// compare compares two of them.
func (k *checking) compare(ctx context.Context, a, b database, o difference.Options) (_ difference.Result, err error) {
	var sides [2]difference.Side
	for i, d := range []database{a, b} {
		f, err := os.Open(d.path)
		if err != nil {
			return difference.Result{}, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		sides[i] = difference.Side{Name: d.name, R: f, Size: d.size}
	}
	o.MaxFindings = k.o.MaxFindings
	o.Progress = func(done, total int64) { k.o.progress("compare", done, total) }
	return difference.Compare(ctx, sides[0], sides[1], o)
}

// hash is a database's HashKV, at its newest revision or at the one given.
func (d database) hash(ctx context.Context, revision int64) (_ snapshot.HashKV, err error) {
	f, err := os.Open(d.path)
	if err != nil {
		return snapshot.HashKV{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return snapshot.ReadHashKVAt(ctx, f, d.size, revision)
}

// now is the database with the size that its file has by now.
func (d database) now() (database, error) {
	info, err := os.Stat(d.path)
	if err != nil {
		return d, err
	}
	d.size = info.Size()
	return d, nil
}

func (d database) facts(ctx context.Context) (_ snapshot.Facts, err error) {
	f, err := os.Open(d.path)
	if err != nil {
		return snapshot.Facts{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return snapshot.ReadFacts(ctx, f, d.size)
}
