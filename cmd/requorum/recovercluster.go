package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/verify/replaying"
	"github.com/requorum/requorum/verify/report"
)

// recoverCluster recovers on the hosts of a cluster file, or on this machine.
func (g *globals) recoverCluster(ctx context.Context, o *recoverOptions) error {
	req, err := g.rescueRequest(o)
	if err != nil {
		return err
	}
	if o.dryRun {
		return g.surveyCluster(ctx, req)
	}
	events := newRescueEvents(g, o)
	defer events.finish()
	req.Events = events
	report, err := recovery.Run(ctx, req)
	events.finish()
	if report == nil {
		return g.notRecovered(ctx, req, err)
	}
	r := recoveryReport{Report: report, PlanFile: o.plan}
	if built := r.Restore; built != nil && built.CompletedEarlier {
		err = errors.Join(err, o.sweep(built.Plan))
	}
	if r.Restore == nil || !o.start.start {
		return orUnproven(r.Plan, g.printRescued(r), err)
	}
	started := g.startRestored(ctx, &o.buildOptions, r.Restore.Plan, func(endpoints []string) error {
		r.Endpoints = endpoints
		return g.printRescued(r)
	})
	return orUnproven(r.Plan, started, err)
}

// orUnproven are the errors of a recovery that was done or planned, or, where there
// are none, that the outcome is unproven.
func orUnproven(p *sources.Plan, errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if p == nil || p.Proven || p.Chosen == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", errUnproven, p.Why)
}

// rescueRequest is what the options ask for.
func (g *globals) rescueRequest(o *recoverOptions) (req recovery.Request, err error) {
	if o.file == "" {
		req, err = g.localRequest(o)
	} else {
		req.Config, err = g.readConfig(o)
	}
	req.TargetFromNow, req.ScratchDir, req.CheckBase, req.Version, req.Logger = strings.HasPrefix(o.point.at, "-"), o.point.replay.ScratchDir, replaying.CheckBase, version, g.logger()
	req.Asked = recovery.Asked{
		Change: o.change, Source: o.source, DeclareDead: o.declareDead, Target: o.point.target, Bump: o.req.Bump, Force: o.force,
		Replay: o.point.replay.SourceSettings, Build: req.Build,
	}
	return req, err
}

// readConfig reads the cluster file, and the keys that it or the options name.
func (g *globals) readConfig(o *recoverOptions) (*recovery.Config, error) {
	cfg, err := recovery.ReadConfig(o.file)
	if err != nil {
		return nil, usageError{err}
	}
	k := o.repo.keys
	k.signingKey, k.trust = cmp.Or(k.signingKey, cfg.SigningKeyFile), cmp.Or(k.trust, cfg.TrustFile)
	k.revoked = append(slices.Clone(cfg.RevokedKeysFiles), k.revoked...)
	if err := k.mayWrite(); err != nil {
		return nil, err
	}
	keys, err := k.parse(g)
	if err != nil {
		return nil, err
	}
	cfg.UseKeys(keys)
	if len(cfg.Repositories) > 0 {
		g.noteUnchecked(keys.Trust != nil)
	}
	return cfg, nil
}

// surveyCluster shows what would be done.
func (g *globals) surveyCluster(ctx context.Context, req recovery.Request) error {
	events := newRescueEvents(g, nil)
	req.Events = events
	p, err := recovery.Preflight(ctx, req)
	events.finish()
	if p == nil {
		return orRollback(ofURL(err))
	}
	shown := errors.Join(g.printPreview(p), g.unchanged())
	var nothing *sources.NothingError
	if errors.As(err, &nothing) && (len(p.Unsurveyed) > 0 || len(p.Blockers) > 0) {
		err = nil // what there is, may be in members that still run, or that are not reached
	}
	if n := len(p.Blockers); err == nil && n > 0 {
		err = fmt.Errorf("it would be refused now, for %s: see above", report.Counted(n, "reason", "reasons"))
		if p.Unnamed {
			err = usageError{err}
		}
	}
	return orUnproven(p.Plan, shown, orRollback(err))
}

// notRecovered is why a run did not come to the proof. Where something has to be
// chosen first, what there is to choose from is shown.
func (g *globals) notRecovered(ctx context.Context, req recovery.Request, err error) error {
	if sources.AboutSource(err) {
		req.Events = nil
		p, found := recovery.Preflight(ctx, req)
		if p != nil && sources.AboutSource(found) {
			return errors.Join(g.printPreview(p), orRollback(err))
		}
	}
	return orRollback(ofURL(err))
}

// undoRecovery takes a recovery back.
func (g *globals) undoRecovery(ctx context.Context, o *recoverOptions) error {
	req, err := g.rescueRequest(o)
	if err != nil {
		return err
	}
	events := newRescueEvents(g, o)
	defer events.finish()
	req.Events = events
	report, err := recovery.Undo(ctx, req)
	events.finish()
	if report == nil {
		return orRollback(err)
	}
	return errors.Join(g.printUndone(report), err)
}

// printUndone prints what each host has put back.
func (g *globals) printUndone(r *recovery.UndoReport) error {
	if g.output == "json" {
		return g.printJSON(r)
	}
	g.printf("Run %s of cluster %s is taken back:\n", r.Run, r.Cluster)
	for _, h := range r.Hosts {
		switch {
		case h.Dead:
			printItem(g.stdout, "WARNING: ", h.Member+" is declared dead, and was passed by: should its host come back, it may have a new member that was taken back")
			continue
		case h.PutBack != "":
			g.printf("%s: %s is as it was\n", h.Member, h.PutBack)
		case h.Failed == "":
			g.printf("%s: nothing had been set aside\n", h.Member)
		}
		for _, path := range h.Kept {
			g.printf("%s: the new member's data is kept in %s; remove it when you don't need it\n", h.Member, path)
		}
		switch {
		case h.Failed != "":
			printItem(g.stdout, "WARNING: ", h.Member+": "+h.Failed)
		case !h.Started:
			g.printf("%s: not started\n", h.Member)
		}
	}
	printLineage(g.stdout, r.Lineage)
	return nil
}

// errDeclined says that the answer was no.
var errDeclined = errors.New("it was not confirmed: nothing was changed")

// confirm asks on the terminal, unless the options have answered already. Where
// nobody could answer it is wrong usage, and says what to give.
func (g *globals) confirm(ctx context.Context, o *recoverOptions, q recovery.Question) error {
	if q.Type != "" && o.acceptLoss != "" {
		if o.acceptLoss == q.Type {
			return nil
		}
		return usageError{fmt.Errorf("--accept-loss %s: acknowledged writes may be lost, those of %s: read the plan, and give that name to accept it", o.acceptLoss, q.Type)}
	}
	if q.Type == "" && (o.yes || o.acceptLoss != "") {
		return nil
	}
	file, ok := g.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || g.output == "json" {
		if q.Type != "" {
			return usageError{fmt.Errorf("there is no terminal to ask on, and acknowledged writes may be lost: read the plan, and accept it with %s", shell.Quote("--accept-loss", q.Type))}
		}
		if p := q.Preview; p != nil && p.Plan != nil && !p.Plan.Proven {
			would := "would"
			if p.Plan.Chosen == "" {
				would = "may"
			}
			return usageError{fmt.Errorf("there is no terminal to ask on: give --yes, and %s, since it %s be unproven that nothing is lost", shell.Quote("--accept-loss", p.Cluster), would)}
		}
		return usageError{errors.New("there is no terminal to ask on: give --yes")}
	}
	want, lost := cmp.Or(q.Type, "yes"), ""
	if q.Type != "" {
		lost = "Acknowledged writes may be lost. "
	}
	fmt.Fprintf(g.stderr, "%s %sType %s to go on: ", printable([]any{q.Text, lost, want})...)
	answer, err := readLine(ctx, file)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer != want {
		return errDeclined
	}
	return nil
}

// readLine reads an answer, or gives up with the context.
func readLine(ctx context.Context, from io.Reader) (string, error) {
	type read struct {
		line string
		err  error
	}
	done := make(chan read, 1)
	go func() {
		line, err := bufio.NewReader(from).ReadString('\n')
		done <- read{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-done:
		if errors.Is(r.err, io.EOF) {
			r.err = nil // the end of the input is no answer
		}
		return strings.TrimSpace(r.line), r.err
	}
}

// rescueEvents says how a recovery goes on, on standard error, and asks. With JSON
// it says only what must not be overlooked.
type rescueEvents struct {
	g     *globals
	o     *recoverOptions // nil where nothing is asked
	meter *meter
	said  string // what is waited for, said last
}

func newRescueEvents(g *globals, o *recoverOptions) *rescueEvents {
	return &rescueEvents{g: g, o: o, meter: g.newMeter()}
}

func (e *rescueEvents) finish() { e.meter.finish() }

// say writes a line.
func (e *rescueEvents) say(format string, args ...any) {
	if e.meter.quiet {
		return
	}
	e.meter.finish()
	fmt.Fprintf(e.g.stderr, format+"\n", printable(args)...)
}

func (e *rescueEvents) Begin(phase recovery.Phase, host string) {
	if host == "" {
		e.say("%s …", phase)
	}
}

func (e *rescueEvents) End(phase recovery.Phase, host, detail string, elapsed time.Duration, err error) {
	what := string(phase)
	if host != "" {
		what = "  " + host + ": " + what
	}
	switch {
	case err != nil && host == "":
		// The command ends with it.
	case err != nil:
		e.say("%s failed after %s: %v", what, took(elapsed), err)
	case detail == "":
		e.say("%s: done in %s", what, took(elapsed))
	default:
		e.say("%s: %s, in %s", what, detail, took(elapsed))
	}
}

func (e *rescueEvents) Progress(phase recovery.Phase, host, what string, done, total int64) {
	label := cmp.Or(what, string(phase))
	if host != "" {
		label = host + ": " + what
	}
	e.meter.showAs(label, what, done, total)
}

func (e *rescueEvents) Waiting(phase recovery.Phase, text string) {
	if text != e.said {
		e.said = text
		e.say("  %s: waiting: %s", phase, text)
	}
}

func (e *rescueEvents) Note(text string) { e.say("note: %s", text) }

// Warn is never left out.
func (e *rescueEvents) Warn(text string) {
	e.meter.finish()
	printItem(e.g.stderr, "WARNING: ", text)
}

// Confirm shows what would be done, and asks.
func (e *rescueEvents) Confirm(ctx context.Context, q recovery.Question) error {
	e.meter.finish()
	reasons := q.Reasons
	switch p := q.Preview; {
	case p == nil:
	case e.g.output == "json": // the document comes once all is done
		if p.Plan.Chosen != "" && !p.Plan.Proven {
			reasons = append(reasons, "unproven: "+p.Plan.Why)
		}
		reasons = slices.Concat(reasons, p.Plan.Doubts(), p.Plan.Warnings, p.Warnings)
	default:
		if err := e.g.printPreview(p); err != nil {
			return err
		}
		fmt.Fprintln(e.g.stdout)
	}
	for _, reason := range reasons {
		printItem(e.g.stderr, "", reason)
	}
	err := e.g.confirm(ctx, e.o, q)
	if errors.Is(err, errDeclined) {
		return recovery.ErrDeclined // what follows from it is not for us to say
	}
	return err
}
