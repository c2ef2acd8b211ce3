package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// checkRetention reads the pins, and the records that a log was let go.
func (e *examination) checkRetention(ctx context.Context) error {
	for _, part := range []struct {
		folder, compared string
		is               func(name string) bool
		read             func(name string) error
	}{
		{"pins", "%d pins with their own SHA-256 and place", isPinName, func(name string) error {
			_, err := e.repo.ReadPin(ctx, name)
			return err
		}},
		{prunedObject, "%d records that log was let go with their own SHA-256 and place", isPrunedLogName, func(name string) error {
			_, err := e.repo.ReadPrunedLog(ctx, name)
			return err
		}},
	} {
		var names []string
		for o, err := range e.repo.Sink().List(ctx, part.folder+"/", "") {
			if err != nil {
				return e.failed(ctx, part.folder, fmt.Errorf("list %s in %s: %w", part.folder, e.repo, err))
			}
			if part.is(o.Name) {
				names = append(names, o.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		_, err := e.check(ctx, report.Checksum, part.folder, func(c *report.Check) error {
			c.Compared = fmt.Sprintf(part.compared, len(names))
			for _, name := range names {
				err := part.read(name)
				switch {
				case errors.Is(err, sinks.ErrNotFound): // taken away since
				case errors.Is(err, repository.ErrAltered):
					found(c, report.Finding{Kind: report.KindMark, Object: name, Text: err.Error()})
				case err != nil:
					unchecked(c, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// logLetGo is the index up to which a record says that the log was let go; 0 where
// none does. One that is not whole, or belongs elsewhere, says nothing. Log behind
// the newest full snapshot is never let go while the timeline goes on, so no
// record excuses that it is missing.
func (l *logCheck) logLetGo(ctx context.Context) (uint64, error) {
	names, err := l.repo.PrunedLogs(ctx, l.part.timeline)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		record, err := l.repo.ReadPrunedLog(ctx, name)
		switch {
		case errors.Is(err, repository.ErrAltered), errors.Is(err, sinks.ErrNotFound): // checkRetention tells
			continue
		case err != nil:
			return 0, err
		}
		switch _, ended, err := l.repo.Superseded(ctx, l.part.timeline); {
		case err != nil && !errors.Is(err, repository.ErrAltered):
			return 0, err
		case ended:
			return record.Index, nil
		}
		var newest uint64
		for _, m := range l.bases() {
			newest = max(newest, m.Facts.RaftIndex)
		}
		return min(record.Index, newest), nil
	}
	return 0, nil
}

// isKeptName tells names of pins, and of records that a log was let go.
func isKeptName(name string) bool { return isPinName(name) || isPrunedLogName(name) }

func isPinName(name string) bool {
	_, _, err := repository.ParsePinName(name)
	return err == nil && strings.HasPrefix(name, "pins/")
}

func isPrunedLogName(name string) bool {
	_, _, err := repository.ParsePrunedLogName(name)
	return err == nil
}
