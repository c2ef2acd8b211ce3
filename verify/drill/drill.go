package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// drill is one run.
type drill struct {
	image   snapshot.Image
	options Options

	facts   snapshot.Facts
	scratch *walreplay.ScratchFolder
	plan    *restore.Plan
	clients map[string]string // client URLs by member
	expect  *expected
	auth    *authState
	process *process

	check    report.Check
	findings *findings
	booting  time.Time
}

// Run does a drill of an image. What is wrong with the image is in the check, as
// is what kept the drill from being done: then the check is Unchecked, with the
// reason. An error says that ctx ended before there was a result, or that
// something of the drill could not be removed; the check counts beside the
// latter.
//
// It takes the space of a whole database for each member, and about 500 bytes of
// memory for each key and member.
func Run(ctx context.Context, image snapshot.Image, o Options) (check report.Check, err error) {
	if os.Getenv(membersVariable) != "" {
		return check, errors.New("drill: this process was started by a drill to run its members, and began a drill of its own: Options.Command must start a program that calls drill.Members")
	}
	o, err = o.withDefaults(image.Name())
	if err != nil {
		return check, err
	}
	began := time.Now()
	d := &drill{image: image, options: o, findings: &findings{}}
	d.check = report.Check{Rung: report.Drill, Object: o.Object, Compared: "nothing yet: the cluster was not built"}
	err = d.inScratch(ctx)
	d.check.Took = time.Since(began)
	return d.check, err
}

// inScratch does the drill in a folder that is gone afterwards.
func (d *drill) inScratch(ctx context.Context) (err error) {
	if d.scratch, err = walreplay.NewScratchFolder(d.options.ScratchDir); err != nil {
		return d.conclude(ctx, unable("make the scratch folder: %w", err))
	}
	err = d.run(ctx)
	done := d.phase(PhaseRemove)
	d.process.end()
	removed := d.scratch.Remove()
	done()
	err = d.conclude(ctx, err)
	if d.check.Status != report.Passed && d.process != nil {
		d.options.Logger.Debug("drill: the end of the members' log", "log", string(d.process.stderr.bytes()))
	}
	if removed != nil {
		err = errors.Join(err, fmt.Errorf("drill: %w: remove %s", removed, d.scratch.Path()))
	}
	return err
}

func (d *drill) run(ctx context.Context) (err error) {
	d.options.Progress(PhaseBuild, 0, d.image.Size())
	if d.facts, err = d.image.Facts(ctx); err != nil {
		return fmt.Errorf("look into %s: %w", d.image.Name(), err)
	}
	const attempts = 3 // somebody else may take a port between finding and listening
	err = d.boot(ctx)
	for i := 1; i < attempts && errors.Is(err, errPortTaken); i++ {
		d.process.end()
		if err := d.clear(); err != nil {
			return unable("start again with other ports: %w", err)
		}
		err = d.boot(ctx)
	}
	if err != nil {
		return err
	}
	if d.findings.any() { // what it should serve is not known
		return nil
	}
	return d.serve(ctx)
}

// boot builds the members, reads what they are to serve, and starts them.
func (d *drill) boot(ctx context.Context) error {
	d.check.Phases = nil
	if err := d.build(ctx); err != nil {
		return err
	}
	done := d.phase(PhaseExpect)
	if err := d.readExpected(ctx); err != nil {
		return err
	}
	done()
	return d.start(ctx)
}

// phase begins a phase; the function that it returns ends it.
func (d *drill) phase(name string) func() {
	d.options.Progress(name, 0, 0)
	start := time.Now()
	return func() {
		took := time.Since(start)
		d.check.Phases = append(d.check.Phases, report.Phase{Name: name, Took: took})
		d.options.Logger.Debug("drill: phase done", "phase", name, "took", took)
	}
}
