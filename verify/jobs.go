package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
)

// jobsObject is what reports call the results of jobs together.
const jobsObject = "jobs"

// checkJobs reads the results of all jobs. No backup depends on them.
func (e *examination) checkJobs(ctx context.Context) error {
	var names []string
	for o, err := range e.repo.Sink().List(ctx, jobsObject+"/", "") {
		if err != nil {
			return e.failed(ctx, jobsObject, fmt.Errorf("list the results of jobs in %s: %w", e.repo, err))
		}
		if isJobName(o.Name) {
			names = append(names, o.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err := e.check(ctx, report.Checksum, jobsObject, func(c *report.Check) error {
		c.Compared = counted(len(names), "result of a job", "results of jobs") + ", each with its own SHA-256 and place"
		for _, name := range names {
			switch _, err := e.repo.ReadJobResult(ctx, name); {
			case errors.Is(err, sinks.ErrNotFound): // swept meanwhile
			case errors.Is(err, repository.ErrAltered):
				found(c, report.Finding{Kind: report.KindClaim, Object: name, Text: err.Error() + "; no backup depends on it: its slot stays done"})
			case err != nil:
				unchecked(c, err)
			}
		}
		return nil
	})
	return err
}

// isJobName tells the name of a result, or of a failed attempt's record.
func isJobName(name string) bool {
	_, _, _, err := repository.ParseJobName(name)
	return err == nil
}
