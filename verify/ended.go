package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// checkEnding reads all marks that end a timeline, those as well that count for
// nothing any more. They are numbered, and none is ever deleted: behind one that is
// gone nobody would look, and a timeline that ended would pass for living.
func (e *examination) checkEnding(ctx context.Context, c *report.Check, id repository.TimelineID) {
	names, err := e.repo.SupersededNames(ctx, id)
	if err != nil {
		unchecked(c, err)
		return
	}
	for n := 1; ; n++ {
		name := repository.SupersededMarkName(id, n)
		_, err := e.repo.ReadSuperseded(ctx, name)
		switch {
		case errors.Is(err, sinks.ErrNotFound) && n > len(names):
			return
		case errors.Is(err, sinks.ErrNotFound):
			found(c, report.Finding{Kind: report.KindMark, Object: name, Text: fmt.Sprintf("%s in %s is gone, and later marks that end the timeline are there", name, e.repo)})
			return
		case errors.Is(err, repository.ErrAltered):
			found(c, report.Finding{Kind: report.KindMark, Object: name, Text: err.Error()})
		case err != nil:
			unchecked(c, err)
			return
		}
	}
}
