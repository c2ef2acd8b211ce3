package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/verdict"
)

// childRequest is what a job's process is asked to do: one of its parts.
type childRequest struct {
	Tool string `json:"tool"`
	// Config is the agent's configuration as it stood in the file, and Name the
	// file's: files may have changed since, and hold what no argument may show.
	Config []byte `json:"config"`
	Name   string `json:"name"`

	Verify    *verifyRequest    `json:"verify,omitempty"`
	Synthetic *syntheticRequest `json:"synthetic,omitempty"`
}

type verifyRequest struct {
	Level    report.Level `json:"level"`
	Backup   string       `json:"backup"`
	Timeline string       `json:"timeline,omitempty"` // where to look; empty for anywhere
}

// verifyAnswer is what came out.
type verifyAnswer struct {
	job.Result
	Of        string `json:"of"`                  // what was verified
	Damaged   string `json:"damaged,omitempty"`   // the first finding
	Unchecked string `json:"unchecked,omitempty"` // the first reason
}

type syntheticRequest struct {
	Timeline repository.TimelineID `json:"timeline"`
	ID       string                `json:"id"`
	Attempt  int                   `json:"attempt"`
	Slot     string                `json:"slot"`
}

// child runs a job's process, and reads its answer.
func (t *session) child(ctx context.Context, req childRequest, answer any, progress func(phase string, done, total int64)) error {
	req.Tool, req.Config, req.Name = t.Tool, t.cfg.Source(), t.cfg.File()
	return job.RunProcess(ctx, job.Command{Path: t.Command[0], Args: t.Command[1:], Logger: t.Logger}, req, answer, progress, int64(t.cfg.Resources.JobMemory)) // it has the priorities of this process
}

// ServeJob is a job's process: it does what stands on its input, and answers on
// its output.
func ServeJob(ctx context.Context, in io.Reader, out io.Writer) error {
	return job.ServeProcess(ctx, in, out, serveJob)
}

func serveJob(ctx context.Context, request json.RawMessage, progress func(phase string, done, total int64)) (any, error) {
	var req childRequest
	if err := json.Unmarshal(request, &req); err != nil {
		return nil, fmt.Errorf("the request of a job's process: %w", err)
	}
	cfg, err := config.Parse(req.Config, req.Name)
	if err != nil {
		return nil, err
	}
	sink, err := cfg.OpenSink(ctx)
	if err != nil {
		return nil, err
	}
	defer sink.Close() //nolint:errcheck // what was written is committed, or an error is on its way
	repo, err := repository.Open(ctx, sink)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Resources.ScratchDir, 0o700); err != nil {
		return nil, fmt.Errorf("resources.scratch-dir: %w", err)
	}
	switch {
	case req.Verify != nil:
		return serveVerify(ctx, cfg, repo, req, progress)
	case req.Synthetic != nil:
		return serveSynthetic(ctx, cfg, repo, req, progress)
	}
	return nil, errors.New("the request of a job's process asks for nothing")
}

func serveVerify(ctx context.Context, cfg *config.Config, repo *repository.Repository, req childRequest, progress func(string, int64, int64)) (*verifyAnswer, error) {
	v := req.Verify
	identities, err := cfg.Identities()
	if err != nil {
		return nil, err
	}
	r, err := verify.Repository(ctx, repo, verify.Request{
		Backup: v.Backup, Timeline: v.Timeline, Level: v.Level, Identities: identities,
		ScratchDir: cfg.Resources.ScratchDir, Tool: req.Tool, Progress: progress,
	})
	if errors.Is(err, snapshot.ErrNoBackup) && wasPruned(ctx, repo, v.Backup) {
		return &verifyAnswer{Of: v.Backup, Result: job.Result{Text: v.Backup + " was pruned meanwhile"}}, nil
	}
	if err != nil {
		return nil, err
	}
	sequence, err := verdict.Write(ctx, repo, verdict.FromReport(r))
	if err != nil {
		return nil, fmt.Errorf("the verdict could not be written: %w", err)
	}
	return answerOf(v, r, sequence), nil
}

// answerOf is what a report comes to. A replay that has nothing to begin from yet is no
// failure of the job; damage of a log that should lead there is a finding.
func answerOf(v *verifyRequest, r *report.Report, sequence uint64) *verifyAnswer {
	answer := &verifyAnswer{Of: "backup " + v.Backup, Result: job.Result{Verdict: sequence}}
	switch v.Backup {
	case verify.Latest:
		answer.Of = "the newest backup, with the log after it,"
	case verify.All:
		answer.Of = "the repository"
	}
	rest := ""
	for _, c := range r.Checks {
		answer.Bytes += c.Bytes
		if len(c.Findings) > 0 && answer.Damaged == "" {
			answer.Damaged = c.Object + ": " + report.Printable(c.Findings[0].Text)
		}
		switch {
		case c.Status != report.Unchecked:
		case c.NotYet || c.NoBase:
			rest = fmt.Sprintf("; of %s the level %s has to wait: %s: %s", c.Object, c.Level, nothingYet, report.Printable(c.Reason))
		case answer.Unchecked == "":
			answer.Unchecked = c.Object + ": " + report.Printable(c.Reason)
		}
	}
	answer.Text = fmt.Sprintf("%s passed the level %s: %s read", answer.Of, v.Level, humanize.IBytes(uint64(answer.Bytes)))
	if rest != "" {
		answer.Text = fmt.Sprintf("%s was verified: %s read%s", answer.Of, humanize.IBytes(uint64(answer.Bytes)), rest)
	}
	return answer
}

// wasPruned says that a record says so of a backup.
func wasPruned(ctx context.Context, repo *repository.Repository, backup string) bool {
	names, err := repo.PrunedNames(ctx)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool {
		_, id, err := repository.ParsePrunedName(name)
		return err == nil && id == backup
	})
}

func serveSynthetic(ctx context.Context, cfg *config.Config, repo *repository.Repository, req childRequest, progress func(string, int64, int64)) (*job.Result, error) {
	s := req.Synthetic
	identities, err := cfg.Identities()
	if err != nil {
		return nil, err
	}
	codecOptions, err := cfg.Codec()
	if err != nil {
		return nil, err
	}
	m, err := job.MakeSynthetic(ctx, job.SyntheticOptions{
		Repo: repo, Timeline: s.Timeline, ID: s.ID, Attempt: s.Attempt, Identities: identities, Codec: codecOptions,
		ScratchDir: cfg.Resources.ScratchDir, Tool: req.Tool, Labels: map[string]string{"agent": cfg.Name, "slot": s.Slot}, Progress: progress,
	})
	switch {
	case errors.Is(err, snapshot.ErrTaken):
		return taken(ctx, repo, s.ID, err)
	case errors.Is(err, job.ErrNothingNew), errors.Is(err, job.ErrNoBase):
		return &job.Result{Text: err.Error()}, nil // which is in order
	case err != nil:
		return nil, err
	}
	return &job.Result{
		Backup: m.ID, Bytes: m.Object.StoredSize,
		Text: fmt.Sprintf("backup %s of revision %d from backup %s and %d entries of the log", m.ID, m.Facts.Revision, m.Synthesis.Base, m.Synthesis.Entries),
	}, nil
}

// taken is the result of a run whose backup is there already: an attempt before
// this one made it, and died before it could say so. Where that attempt lives, it
// has the slot, and the end of this one's run finds out.
func taken(ctx context.Context, repo *repository.Repository, id string, cause error) (*job.Result, error) {
	timelines, err := repo.TimelineIDs(ctx)
	if err != nil {
		return nil, err
	}
	for _, timeline := range timelines {
		m, err := snapshot.ReadManifest(ctx, repo, timeline, id)
		if errors.Is(err, sinks.ErrNotFound) || errors.Is(err, repository.ErrAltered) && !repo.Doubtful(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &job.Result{Backup: m.ID, Bytes: m.Object.StoredSize, Text: fmt.Sprintf("backup %s of revision %d, which an earlier attempt had made", m.ID, m.Facts.Revision)}, nil
	}
	return nil, cause
}
