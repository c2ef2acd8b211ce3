package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// verifyAnswer is what a target of a job came to.
type verifyAnswer struct {
	job.Result
	Of        string // what was verified
	Damaged   string // the first finding
	Unchecked string // the first reason
}

// child verifies a target by `requorum verify`, in a process of its own.
func (t *session) child(ctx context.Context, level report.Level, one target) (*verifyAnswer, error) {
	if err := os.MkdirAll(t.cfg.Resources.ScratchDir, 0o700); err != nil {
		return nil, fmt.Errorf("resources.scratch-dir: %w", err)
	}
	out, err := job.RunCommand(ctx, job.Command{
		Path: t.Program, Args: t.verifyArgs(level, one), Memory: int64(t.cfg.Resources.JobMemory), Logger: t.Logger, // it has the priorities of this process
	})
	// A status other than 0 may be damage, or something that could not be checked: the
	// report says which.
	var r struct {
		report.Report
		Verdict struct {
			Error string `json:"error"`
		} `json:"verdict"`
	}
	switch broken := json.Unmarshal(out, &r); {
	case broken != nil && err != nil:
		if _, repo, _ := t.opened(); wasPruned(ctx, repo, one.backup) {
			return &verifyAnswer{Of: one.backup, Result: job.Result{Text: one.backup + " was pruned meanwhile"}}, nil
		}
		return nil, err
	case broken != nil:
		return nil, fmt.Errorf("the report of 'requorum verify' (%d bytes) cannot be read: %w", len(out), broken)
	case r.Verdict.Error != "":
		return nil, fmt.Errorf("the verdict could not be written: %s", r.Verdict.Error)
	}
	return answerOf(one.backup, level, &r.Report), nil
}

// verifyArgs are the arguments of `requorum verify` that follow from the configuration.
func (t *session) verifyArgs(level report.Level, one target) []string {
	r := t.cfg.Repository
	args := []string{
		"verify", one.backup, "--output", "json", "--level", string(level), "--repo", r.URL,
		"--scratch-dir", t.cfg.Resources.ScratchDir, "--retry-for", r.RetryFor.Std().String(),
	}
	add := func(flag string, values ...string) {
		for _, v := range values {
			if v != "" {
				args = append(args, flag, v)
			}
		}
	}
	add("--timeline", one.timeline)
	add("--identity", t.cfg.Encryption.IdentityFiles...)
	add("--signing-key", r.SigningKeyFile)
	add("--trust", r.TrustFile)
	add("--revoked-keys", r.RevokedKeysFiles...)
	if r.TrustFile != "" {
		args = append(args, "--allow-rollback") // the agent remembers how far the repository reached, and reports that
	}
	if r.LimitUpload > 0 {
		add("--limit-upload", r.LimitUpload.String())
	}
	if r.LimitDownload > 0 {
		add("--limit-download", r.LimitDownload.String())
	}
	return args
}

// answerOf is what a report comes to. A replay that has nothing to begin from yet is no
// failure of the job; damage of a log that should lead there is a finding.
func answerOf(backup string, level report.Level, r *report.Report) *verifyAnswer {
	answer := &verifyAnswer{Of: "backup " + backup}
	switch backup {
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
	answer.Text = fmt.Sprintf("%s passed the level %s: %s read", answer.Of, level, humanize.IBytes(uint64(answer.Bytes)))
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
