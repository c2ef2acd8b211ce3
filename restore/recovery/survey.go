package recovery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/store/safedir"
)

// surveyable are the hosts whose data can be read now.
func (d *coordinator) surveyable() []*participant {
	return slices.DeleteFunc(d.present(), func(h *participant) bool {
		return !h.state.Stopped && h.aside(d.run) == nil
	})
}

// eachSurveyable does something with each host whose data can be read, and reports whether
// that is true of any.
func (d *coordinator) eachSurveyable(ctx context.Context, do func(context.Context, *participant) (bool, error)) (some bool, err error) {
	var found atomic.Bool
	errs := atOnce(d.surveyable(), func(h *participant) error {
		is, err := do(ctx, h)
		if is {
			found.Store(true)
		}
		return err
	})
	some = found.Load()
	for name, err := range errs {
		switch h := d.host(name); {
		case d.startedMeanwhile(ctx, h, err):
			delete(errs, name)
		case h.state.Dead:
			h.failed = err
			delete(errs, name)
		}
	}
	if len(errs) > 0 {
		for name, err := range errs {
			if d.req.Local == nil {
				errs[name] = fmt.Errorf("%w (if its data is lost for good: --declare-dead %s, and it is not read)", err, name)
			}
		}
		return some, &HostsError{Phase: PhaseSurvey, Errs: errs}
	}
	return some, nil
}

// startedMeanwhile reports whether a member is started over and over by its supervisor: until
// it is fenced it counts as one that runs, and is read then.
func (d *coordinator) startedMeanwhile(ctx context.Context, h *participant, err error) bool {
	if d.decision != nil {
		return false
	}
	if !isRefusal(err, host.Running) {
		dead := h.state.Dead
		d.hostState(ctx, h)
		h.state.Dead = dead
	}
	if h.state.Unreachable != "" || h.state.Stopped && !isRefusal(err, host.Running) {
		return false
	}
	h.state.Stopped, h.state.Unclear = false, "it was started while it was read"
	_ = h.forget() // it is not read any more
	return true
}

// sum is over the files of a host's member, or of what the run has set aside there. It is
// empty where there are none.
func (d *coordinator) sum(ctx context.Context, h *participant) (string, error) {
	if h.Kind == supervisor.None {
		sum, err := logSum(h.DataDir, h.WALDir)
		return cmp.Or(sum, "no log"), err
	}
	of := d.readOf(h)
	files, err := act(ctx, d, PhaseSurvey, h, func(ctx context.Context) ([]host.File, error) {
		// Names and sizes take no time, except on a disk that hangs.
		ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("its files are not listed within %s", askTimeout))
		defer cancel()
		return h.client.Files(ctx, of)
	})
	if of != "" && isRefusal(err, host.NotFound) {
		files, err = nil, nil // the set-aside found nothing to move
	}
	if h.empty = err == nil && len(files) == 0; err != nil || h.empty {
		return "", err
	}
	return sumOf(files), nil
}

// readOf is the run, where that has set a host's data aside, which is read then; else
// what lies in the member's directories is.
func (d *coordinator) readOf(h *participant) string {
	if h.aside(d.run) != nil {
		return d.run
	}
	return ""
}

// changed reports whether a host's data is not what the plan was made of.
func (d *coordinator) changed(ctx context.Context, h *participant) (bool, error) {
	sum, err := d.sum(ctx, h)
	return err == nil && sum != d.decision.Read[h.Member], err
}

// fetch gets the summary of a host's data, unless it has it.
func (d *coordinator) fetch(ctx context.Context, h *participant) (bool, error) {
	sum, err := d.sum(ctx, h)
	if err != nil || sum == h.read {
		return false, err
	}
	if err := h.forget(); err != nil || sum == "" {
		return true, err
	}
	f, err := safedir.Temporary()
	if err != nil {
		return false, err
	}
	if err := d.timed(ctx, PhaseSurvey, h.Member, func(ctx context.Context) (string, error) { return "", d.download(ctx, h, f) }); err != nil {
		return false, errors.Join(err, f.Close())
	}
	h.summary, h.read = f, sum
	return true, nil
}

// sumOf is over names, sizes and times: no member can have run on the files since,
// where it is the same.
func sumOf(files []host.File) string {
	slices.SortFunc(files, func(a, b host.File) int { return strings.Compare(a.Name, b.Name) })
	sum := sha256.New()
	for _, f := range files {
		fmt.Fprintf(sum, "%q %d %d\n", f.Name, f.Size, f.Time.UnixNano())
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// download writes a summary to a file.
func (d *coordinator) download(ctx context.Context, h *participant, f *os.File) error {
	of := d.readOf(h)
	_, err := act(ctx, d, PhaseSurvey, h, func(ctx context.Context) (struct{}, error) {
		// A line that dropped may have brought a part of it.
		if err := f.Truncate(0); err != nil {
			return struct{}{}, err
		}
		w := &counted{w: io.NewOffsetWriter(f, 0), report: func(n int64) { d.reporter.progress(PhaseSurvey, h.Member, "read the log", n, 0) }}
		return struct{}{}, h.client.Survey(ctx, w, of)
	})
	return err
}

// counted reports now and then how much went through it.
type counted struct {
	w      io.Writer
	n      int64
	last   time.Time
	report func(int64)
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	if time.Since(c.last) > 100*time.Millisecond {
		c.last = time.Now()
		c.report(c.n)
	}
	return n, err
}

// findings are what a survey of all summaries and repositories finds.
func (d *coordinator) findings(ctx context.Context, repos *Repositories) (*sources.Findings, error) {
	identities, err := d.identities()
	if err != nil {
		return nil, err
	}
	req := sources.SurveyRequest{Repos: repos.Opened, Identities: identities,
		Progress: func(phase string, done, total int64) { d.reporter.progress(PhaseSurvey, "", phase, done, total) }}
	for _, h := range d.hosts {
		// What was read of a host that is gone since cannot be brought from there.
		if h.summary != nil && !h.passedBy() {
			req.Summaries = append(req.Summaries, sources.Summary{Name: h.Member, Open: func() (io.ReadCloser, error) {
				return io.NopCloser(io.NewSectionReader(h.summary, 0, math.MaxInt64)), nil
			}})
		}
	}
	for _, err := range repos.Errors {
		if d.req.Local != nil && (errors.Is(err, place.ErrURL) || len(req.Summaries)+len(req.Repos) == 0) {
			return nil, err
		}
	}
	f := &sources.Findings{Taken: time.Now(), Survivors: []sources.Remains{}, Archives: []sources.Archive{}, Relations: []sources.Relation{}}
	if len(req.Summaries)+len(req.Repos) > 0 {
		began := time.Now()
		d.reporter.begin(PhaseSurvey, "")
		f, err = sources.Survey(ctx, req)
		d.reporter.end(PhaseSurvey, "", "", time.Since(began), err)
		if err != nil {
			return nil, err
		}
	}
	f.Unread = append(f.Unread, repos.Unread...)
	return f, nil
}

// Preflight finds out what is there and what would be done, and changes nothing. The
// preview comes with an error too, as far as it got, where histories have to be
// chosen from (*sources.NeedSourceError), nothing can be rebuilt
// (*sources.NothingError), or a source cannot be used (*sources.SourceError).
// What would stop Run otherwise is in Preview.Blockers.
func Preflight(ctx context.Context, req Request) (_ *Preview, err error) {
	d, err := newCoordinator(req, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	p, err := d.preflight(ctx)
	if err != nil {
		return nil, err
	}
	if d.req.Local != nil {
		if err := d.previewHere(ctx, p); err != nil && p.Plan == nil {
			return nil, err
		} else {
			return p, err
		}
	}
	err = d.survey(ctx, p)
	switch {
	case d.decision == nil:
		if stops := d.quorumStops(p.Quorum); stops != nil && !req.Force {
			p.Blockers = append(p.Blockers, stops.Error())
		}
		all, unnamed := d.blockers(p)
		p.Unnamed = unnamed && len(p.Blockers) == 0
		p.Blockers = append(p.Blockers, all...)
	case d.decision.Undoing:
		p.Blockers = append(p.Blockers, d.beingUndone().Error())
	case d.servesAgain(p.Quorum) && !d.anyAside():
		p.Warnings = append(p.Warnings, d.givenUpWords())
	}
	if d.decision != nil {
		p.Run, p.Reached = d.run, d.reached()
	}
	if len(p.Unsurveyed) > 0 && sources.AboutSource(err) {
		err = fmt.Errorf("%w\nBut %s may run, and what is there is read once that is stopped: without --dry-run the command does so, and asks again then", err, strings.Join(p.Unsurveyed, ", "))
	}
	if err != nil && p.Plan == nil {
		return p, fmt.Errorf("what is left could not be looked through: %w", err)
	}
	return p, err
}
