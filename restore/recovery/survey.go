package recovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
)

// surveyable are the hosts whose data can be read now.
func (d *coordinator) surveyable() []*participant {
	return slices.DeleteFunc(d.present(), func(h *participant) bool {
		return !h.state.Stopped && d.of(h) == ""
	})
}

// summaries fetches what the survey needs of each host whose data has changed since
// it was last read. It reports whether anything was fetched.
func (d *coordinator) summaries(ctx context.Context) (fetched bool, err error) {
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs = map[string]error{}
	)
	for _, h := range d.surveyable() {
		all.Go(func() {
			again, err := d.fetch(ctx, h)
			mu.Lock()
			defer mu.Unlock()
			fetched = fetched || again
			if err != nil {
				errs[h.Member] = err
			}
		})
	}
	all.Wait()
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
			errs[name] = fmt.Errorf("%w (if its data is lost for good: --declare-dead %s, and it is not read)", err, name)
		}
		return fetched, &HostsError{Phase: PhaseSurvey, Errs: errs}
	}
	return fetched, nil
}

// startedMeanwhile tells of a member that its supervisor starts over and over: until
// it is fenced it counts as one that runs, and is read then.
func (d *coordinator) startedMeanwhile(ctx context.Context, h *participant, err error) bool {
	if d.journal != nil {
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
	h.state.Stopped, h.state.Unclear, h.summary = false, "it was started while it was read", ""
	return true
}

func (d *coordinator) fetch(ctx context.Context, h *participant) (bool, error) {
	now := surveyed{Host: h.Member, Of: d.of(h)}
	c := d.reader(h, now.Of)
	files, err := d.files(ctx, c, h, now.Of)
	if err != nil {
		return false, err
	}
	if len(files) == 0 {
		had := h.summary != ""
		h.empty, h.summary, h.read = true, "", surveyed{}
		return had, nil
	}
	now.Files = sumOf(files)
	if h.summary != "" && h.read.Files == now.Files {
		return false, nil
	}
	d.reporter.begin(PhaseSurvey, h.Member)
	began := time.Now()
	path := filepath.Join(d.folder, h.Member+".summary")
	err = d.download(ctx, c, h, path, now.Of)
	d.reporter.end(PhaseSurvey, h.Member, "", time.Since(began), err)
	if err != nil {
		return false, err
	}
	h.empty, h.summary, h.read = false, path, now
	return true, d.remember(h)
}

// reader is a client that may read what another run set aside.
func (d *coordinator) reader(h *participant, of string) *host.Client {
	run := of
	if run == "" {
		run = d.run
	}
	return h.line.As(run, "")
}

func (d *coordinator) files(ctx context.Context, c *host.Client, h *participant, of string) ([]host.File, error) {
	which := host.Current
	if of != "" {
		which = host.Aside
	}
	files, err := act(ctx, d, PhaseSurvey, h, func(ctx context.Context) ([]host.File, error) { return c.Files(ctx, which) })
	if of != "" && isRefusal(err, host.NotFound) {
		return nil, nil // the set-aside found nothing to move
	}
	return files, err
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

// download writes the summary beside its name first: half of one is never read.
func (d *coordinator) download(ctx context.Context, c *host.Client, h *participant, path, of string) error {
	_, err := act(ctx, d, PhaseSurvey, h, func(ctx context.Context) (struct{}, error) {
		f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return struct{}{}, err
		}
		w := &counted{w: f, report: func(n int64) { d.reporter.progress(PhaseSurvey, h.Member, "read the log", n, 0) }}
		err = c.Survey(ctx, w, of)
		return struct{}{}, errors.Join(err, f.Sync(), f.Close())
	})
	if err != nil {
		return errors.Join(err, os.RemoveAll(path+".part"))
	}
	return os.Rename(path+".part", path)
}

// counted tells now and then how much went through it.
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
func (d *coordinator) findings(ctx context.Context, repos *repositories) (*sources.Findings, error) {
	req := sources.SurveyRequest{Repos: repos.opened(), Identities: repos.identities, Freshness: d.req.Freshness, Logger: d.logger,
		Progress: func(phase string, done, total int64) { d.reporter.progress(PhaseSurvey, "", phase, done, total) }}
	for _, h := range d.hosts {
		// What was read of a host that is gone since cannot be brought from there.
		if h.summary != "" && !h.passedBy() {
			req.Summaries = append(req.Summaries, sources.Summary{Name: h.Member, Open: func() (io.ReadCloser, error) { return os.Open(h.summary) }})
		}
	}
	f := &sources.Findings{Taken: d.now(), Survivors: []sources.Remains{}, Archives: []sources.Archive{}, Relations: []sources.Relation{}}
	if len(req.Summaries)+len(req.Repos) > 0 {
		began := time.Now()
		d.reporter.begin(PhaseSurvey, "")
		var err error
		f, err = sources.Survey(ctx, req)
		d.reporter.end(PhaseSurvey, "", "", time.Since(began), err)
		if err != nil {
			return nil, err
		}
	}
	f.Unread = append(f.Unread, repos.unread()...)
	return f, nil
}

// Preflight finds out what is there and what would be done, and changes nothing. The
// preview comes with an error too, as far as it got, where histories have to be
// chosen from (*sources.NeedSourceError), nothing can be rebuilt
// (*sources.NothingError), or a source cannot be used (*sources.SourceError).
// What would stop Run otherwise is in Preview.Blockers.
func Preflight(ctx context.Context, req Request) (_ *Preview, err error) {
	d, err := newCoordinator(req)
	if err != nil {
		return nil, err
	}
	if d.runs, err = host.ReadFolder(d.cfg.StateDir); err != nil {
		return nil, err
	}
	d.runs = host.StartedRuns(d.runs)
	last, state, err := d.lastRun()
	if err != nil {
		return nil, err
	}
	d.run = newRunID(d.now())
	if last != nil && !state.over() && !state.putBack() {
		d.run, d.state = last.ID(), state
	}
	if d.folder, err = os.MkdirTemp("", "requorum-preflight-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.folder)) }()
	if err := d.reach(); err != nil {
		return nil, err
	}
	defer d.close()
	d.reporter.begin(PhasePreflight, "")
	began := d.now()
	p, err := d.preflight(ctx)
	d.reporter.end(PhasePreflight, "", "", d.now().Sub(began), err)
	if err != nil {
		return nil, err
	}
	err = d.survey(ctx, p)
	if d.state.decision != nil {
		p.Run, p.Reached = d.run, d.reached()
	} else {
		if completes, why := d.wouldComplete(ctx, p.Quorum); completes != "" {
			p.Warnings = append(p.Warnings, completes)
		} else {
			if stops := d.quorumStops(p.Quorum); why != nil {
				p.Blockers = append(p.Blockers, why.Error())
			} else if stops != nil && !req.Force {
				p.Blockers = append(p.Blockers, stops.Error())
			}
			all, unnamed := d.blockers(p)
			p.Unnamed = unnamed && len(p.Blockers) == 0
			p.Blockers = append(p.Blockers, all...)
		}
	}
	if state != nil && state.undoing && !state.closed && !state.putBack() {
		p.Blockers = append(p.Blockers, (&UndoneError{d.run}).Error())
	}
	if len(p.Unsurveyed) > 0 && chooses(err) {
		err = fmt.Errorf("%w\nBut %s may run, and what is there is read once that is stopped: without --dry-run the command does so, and asks again then", err, strings.Join(p.Unsurveyed, ", "))
	}
	if err != nil && p.Plan == nil {
		return p, fmt.Errorf("what is left could not be looked through: %w", err)
	}
	return p, err
}
