package verdict

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// readable takes how the document was read. One of a newer version is
// snapshot.ErrNewerFormat, whatever could not be decoded of it.
func (v Verdict) readable(err error) error {
	switch {
	case v.Format > format:
		return fmt.Errorf("%w: kind %q, format %d; this one reads kind %q, format %d", snapshot.ErrNewerFormat, v.Kind, v.Format, Kind, format)
	case err == nil && (v.Format != format || v.Kind != Kind):
		return fmt.Errorf("%w: kind %q, format %d, not kind %q, format %d", repository.ErrAltered, v.Kind, v.Format, Kind, format)
	}
	return err
}

// Write writes the verdicts of one run. With an error some of them may be written, and
// those count.
func Write(ctx context.Context, repo *repository.Repository, run []Verdict) error {
	host, _ := os.Hostname() // a host without a name has none to give
	for _, v := range run {
		if v.Host == "" {
			v.Host = host
		}
		v.Format, v.Kind, v.Repository, v.ID = format, Kind, repo.ID(), rand.Uint32()
		v.Started, v.Finished = v.Started.UTC().Round(0), v.Finished.UTC().Round(0)
		data, err := repo.Seal(v.name(), v)
		if err == nil {
			err = put(ctx, repo, v.name(), data)
		}
		if err != nil {
			return fmt.Errorf("write the verdict into %s: %w", repo, err)
		}
	}
	return nil
}

func put(ctx context.Context, repo *repository.Repository, name string, data []byte) error {
	_, err := sinks.Put(ctx, repo.Sink(), name, data, sinks.CreateOptions{Lock: repository.Locked(name), ContentType: "application/json"})
	if !errors.Is(err, sinks.ErrExists) && !errors.Is(err, sinks.ErrUncertain) {
		return err
	}
	// An answer that was lost may have been a success: what is there shows it.
	stored, errRead := repo.ReadBytes(ctx, name)
	if errRead == nil && bytes.Equal(stored, data) {
		return nil
	}
	return errors.Join(err, errRead)
}

// readers is how many verdicts are fetched at once: enough to hide the round
// trips to an object store, few enough not to be throttled.
const readers = 16

// What is held of a repository's verdicts at most.
const (
	maxVerdicts     = 10_000
	maxVerdictBytes = 16 << 20 // as they are stored
)

// List is all verdicts of a repository.
type List struct {
	Entries []Entry // the oldest first
	// Findings are verdicts that are altered, moved or forged: KindVerdict.
	Findings []report.Finding
	// Notes are sentences for the user about what does not count, and why.
	Notes []string
	Bytes int64 // that were read
}

// Entry is one verdict as it was found.
type Entry struct {
	Name    string // the object's
	Verdict Verdict
	// Err is why it does not count; nil where it is whole and in its place.
	Err error
}

// ReadAll reads all verdicts. Damage is in List.Findings; an error says that the repository could not be
// read. It costs one request a verdict.
func ReadAll(ctx context.Context, repo *repository.Repository) (List, error) {
	own := repository.Own(ctx, repo, repo.Verdicts(ctx), func(s repository.StoredVerdict) string { return s.Object.Name })
	stored, unread, err := repository.Some(repo, maxVerdicts, maxVerdictBytes, repo.Verdicts(ctx), own, func(s repository.StoredVerdict) (int64, time.Time) {
		if s.Object.Size > repository.DocumentLimit {
			return 0, s.Object.ModTime // it is not read
		}
		return s.Object.Size, s.Object.ModTime
	})
	if err != nil {
		return List{}, err
	}
	slices.SortStableFunc(stored, func(a, b repository.StoredVerdict) int { return a.Finished.Compare(b.Finished) })
	found := make([]*Entry, len(stored))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, s := range stored {
		group.Go(func() error {
			e, err := readEntry(groupCtx, repo, s)
			if errors.Is(err, sinks.ErrNotFound) {
				return nil // pruned since it was listed
			}
			found[i] = e
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return List{}, err
	}
	l := List{Entries: []Entry{}}
	if unread > 0 {
		l.damage(repo, CheckObject, fmt.Errorf("%d of them were not read: those that were stored first and last are, %d verdicts and %d MiB at most: remove what nobody made", unread, maxVerdicts, maxVerdictBytes>>20))
	}
	newer := 0
	for i, e := range found {
		if e == nil {
			continue
		}
		l.Entries = append(l.Entries, *e)
		l.Bytes += stored[i].Object.Size
		switch {
		case errors.Is(e.Err, snapshot.ErrNewerFormat):
			newer++
		case e.Err != nil:
			l.damage(repo, e.Name, e.Err)
		}
	}
	if newer > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("%d of %d verdicts were written by a newer version of requorum and are passed over", newer, len(l.Entries)))
	}
	return l, nil
}

// readEntry reads one verdict; an error is not the verdict's fault.
func readEntry(ctx context.Context, repo *repository.Repository, s repository.StoredVerdict) (*Entry, error) {
	e := &Entry{Name: s.Object.Name}
	data, err := repo.ReadBytes(ctx, e.Name)
	if errors.Is(err, repository.ErrAltered) {
		e.Err = err
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	var v Verdict
	err = repo.Unseal(e.Name, data, &v)
	switch err = v.readable(err); {
	case err != nil:
		e.Err = err
	case v.name() != e.Name:
		e.Err = fmt.Errorf("it is %s: it was moved or copied here", v.name())
	case repo.ID() != "" && v.Repository != repo.ID():
		e.Err = fmt.Errorf("it is a verdict on repository %q: it was copied here", v.Repository)
	default:
		e.Verdict = v
	}
	return e, nil
}

func (l *List) damage(repo *repository.Repository, object string, err error) {
	l.Findings = append(l.Findings, report.Finding{Kind: report.KindVerdict, Object: object, Text: repo.PassOver(object, err).Error()})
}

// CheckObject is what Check calls the verdicts.
const CheckObject = "verdicts"

// Check is the verdicts' part in a report: their checksum level.
func (l List) Check() report.Check {
	check := report.Check{
		Level: report.Checksum, Object: CheckObject, Bytes: l.Bytes, Findings: l.Findings,
		Compared: fmt.Sprintf("%d verdicts with the sums that they carry, and with their names", len(l.Entries)),
	}
	check.Conclude()
	return check
}
