package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

const (
	// DefaultBootTimeout is for a machine that is busy with other things: a
	// database of 8 GiB boots in a minute on an idle one.
	DefaultBootTimeout = 10 * time.Minute
	// requestTimeout is how long one request may take: a member that computes its
	// hash answers nothing else meanwhile.
	requestTimeout = 2 * time.Minute
)

// DrillOptions say how a drill is done.
type DrillOptions struct {
	// ScratchDir is where the scratch folder is made, for as many copies of the
	// database as there are members; the system's folder for temporary files
	// where empty. Where it is not there, it is made, and removed afterwards.
	ScratchDir string
	// Object is how the check calls what it looked at.
	Object string
	// Members is how many voters the cluster has. 0: as many as the image has
	// members, learners included.
	Members int
	// BootTimeout bounds the time until all members are ready; 0 is
	// DefaultBootTimeout.
	BootTimeout time.Duration
	// Command starts a program that calls Members and nothing else. Empty: this
	// one, with the argument MembersCommand.
	Command []string
	// Progress may be nil. PhaseBuild counts bytes of the image. It is called from
	// one goroutine at a time.
	Progress func(phase string, done, total int64)
	// Logger may be nil.
	Logger *slog.Logger
}

// Phases of a drill, in their order. PhaseBuild, PhaseBoot and PhaseFirstRead, with
// what it took to get the image, are the measured recovery time.
const (
	// PhaseBuild reads the image and builds the members' directories.
	PhaseBuild = "build"
	// PhaseExpect reads what the cluster is to serve out of the built database.
	PhaseExpect = "expect"
	// PhaseBoot starts the members, until each is part of a quorum.
	PhaseBoot = "boot"
	// PhaseFirstRead is the first linearizable read, of every member.
	PhaseFirstRead = "first read"
	// PhaseServe is all that is compared.
	PhaseServe = "serve"
	// PhaseRemove ends the members and removes their folder.
	PhaseRemove = "remove"
)

func (o DrillOptions) withDefaults() (DrillOptions, error) {
	if o.ScratchDir == "" {
		o.ScratchDir = os.TempDir()
	}
	if o.BootTimeout == 0 {
		o.BootTimeout = DefaultBootTimeout
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("drill: find the program to run the members: %w", err)
		}
		o.Command = []string{self, MembersCommand}
	}
	return o, nil
}

// drill is one run.
type drill struct {
	image   snapshot.Image
	options DrillOptions

	facts    snapshot.Facts
	scratch  *walreplay.ScratchFolder
	plan     *restore.Plan
	clients  map[string][]string // client URLs by member
	tls      store.TLSFiles      // of this run
	hash     snapshot.HashKV     // of the built database
	password string              // of root, in the copies; empty where nobody has to log in
	process  *process

	check   report.Check
	booting time.Time
}

// Drill builds a cluster from an image, starts it, holds what it serves against the
// image by Prove, and removes it. What is wrong with the image is in the check, as
// is what kept the drill from being done: then the check is Unchecked, with the
// reason. An error says that ctx ended before there was a result, or that
// something of the drill could not be removed; the check counts beside the
// latter.
//
// The cluster has members of the bundled etcd with names and addresses of their
// own, its revision is not raised, there is no quota, and where authentication is
// on root has a new password, in the copy. It listens on loopback only, with
// mutual TLS whose certificates were made for the run and lie in the scratch
// folder. Its members run in a process of their own, as etcd ends its whole
// process on a database that makes no sense. What a killed drill left is removed
// by the next one in the same folder. It takes the space of a whole database for
// each member.
func Drill(ctx context.Context, image snapshot.Image, o DrillOptions) (check report.Check, err error) {
	if os.Getenv(membersVariable) != "" {
		return check, errors.New("drill: this process was started by a drill to run its members, and began a drill of its own: DrillOptions.Command must start a program that calls Members")
	}
	o, err = o.withDefaults()
	if err != nil {
		return check, err
	}
	began := time.Now()
	d := &drill{image: image, options: o}
	d.check = report.Check{Level: report.Drill, Object: o.Object, Compared: "nothing yet: the cluster was not built"}
	err = d.inScratch(ctx)
	d.check.Took = time.Since(began)
	return d.check, err
}

// inScratch does the drill in a folder that is gone afterwards.
func (d *drill) inScratch(ctx context.Context) (err error) {
	if d.scratch, err = walreplay.NewScratchFolder(d.options.ScratchDir); err != nil {
		return d.conclude(ctx, fmt.Errorf("make the scratch folder: %w", err))
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
	if d.tls, err = store.MakeRunTLS(filepath.Join(d.scratch.Path(), "tls")); err != nil {
		return err
	}
	const attempts = 3 // somebody else may take a port between finding and listening
	err = d.boot(ctx)
	for i := 1; i < attempts && errors.Is(err, errPortTaken); i++ {
		d.process.end()
		for _, m := range d.plan.Members {
			if err := safedir.RemoveAll(m.DataDir); err != nil {
				return fmt.Errorf("start again with other ports: %w", err)
			}
		}
		err = d.boot(ctx)
	}
	if err != nil || len(d.check.Findings) > 0 { // what it should serve is not known
		return err
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
	if err := d.expect(ctx); err != nil {
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

// build makes the members' data directories, as a restore does.
func (d *drill) build(ctx context.Context) error {
	request, err := d.request()
	if err != nil {
		return err
	}
	done := d.phase(PhaseBuild)
	if d.plan, err = restore.NewPlan(ctx, request); err != nil {
		if errors.Is(err, restore.ErrTooOld) {
			return fmt.Errorf("it is newer than the bundled etcd %s: %w", version.Version, err)
		}
		return fmt.Errorf("plan the cluster: %w", err)
	}
	_, err = restore.Execute(ctx, d.plan, d.image, restore.ExecOptions{
		Logger: d.options.Logger,
		Progress: func(p restore.Phase, done, total int64) {
			if p == restore.PhaseWrite {
				d.options.Progress(PhaseBuild, done, total)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("build the cluster: %w", err)
	}
	done()
	d.check.Bytes = d.image.Size()
	size := report.Counted(len(d.plan.Members), "member", "members")
	if had := len(d.facts.Members); had != len(d.plan.Members) {
		size += fmt.Sprintf(" (it had %d)", had)
	}
	d.check.Compared = fmt.Sprintf("a cluster of %s, of etcd %s, was built from it", size, version.Version)
	return nil
}

// request is a cluster of the original size, with members and addresses of its
// own. An image without members, as some tools leave them, is tried with one.
func (d *drill) request() (restore.Request, error) {
	members := d.options.Members
	if members == 0 {
		members = max(len(d.facts.Members), 1)
	}
	ports, err := client.FreePorts(2 * members)
	if err != nil {
		return restore.Request{}, fmt.Errorf("find ports for %d members: %w", members, err)
	}
	d.clients = map[string][]string{}
	var cluster []string
	url := func(port int) string { return "https://" + net.JoinHostPort(client.Loopback(), strconv.Itoa(port)) }
	for i := range members {
		name := fmt.Sprintf("m%d", i+1)
		cluster = append(cluster, name+"="+url(ports[2*i]))
		d.clients[name] = []string{url(ports[2*i+1])}
	}
	return restore.Request{
		Image: d.image,
		// Revisions are to be those of the image; no client ever saw a later one
		// of this cluster.
		Bump:           restore.BumpRequest{Mode: restore.BumpOff},
		DataDir:        filepath.Join(d.scratch.Path(), "{name}"),
		TargetVersion:  version.Cluster(version.Version),
		InitialCluster: strings.Join(cluster, ","),
	}, nil
}

// expect reads what has to be served, and gives root a password in the copies. A
// database that makes no sense is a finding; it is booted all the same, as only
// that shows what it is good for.
func (d *drill) expect(ctx context.Context) error {
	built, err := snapshot.OpenUnsynced(database(d.plan.Members[0]))
	if err == nil {
		d.hash, err = built.HashKV(ctx, 0)
	}
	var disk *fs.PathError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &disk):
		return fmt.Errorf("read the built database: %w", err)
	case err != nil:
		d.check.Findings = []report.Finding{{Kind: report.KindServe, Text: "what it should serve cannot be read: " + err.Error()}}
		return nil //nolint:nilerr // it is a finding
	case !d.facts.AuthEnabled:
		return nil
	}
	if d.password, err = setRootPassword(d.plan.Members); err != nil {
		return fmt.Errorf("put a password into the copies: %w", err)
	}
	return nil
}

// database is the file of a member.
func database(m restore.Member) string {
	return filepath.Join(m.DataDir, "member", "snap", "db")
}

// serve holds what the cluster serves against the built database.
func (d *drill) serve(ctx context.Context) error {
	// A client would go on trying to reach members that are gone.
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-d.process.gone:
		case <-working.Done():
		}
	}()
	const slowest = 10 << 20 // bytes a second, of a member's HashKV
	request := Request{
		Client: client.Config{
			CACert: d.tls.CA, Cert: d.tls.Cert, Key: d.tls.Key, CommandTimeout: requestTimeout, Logger: d.options.Logger,
		},
		ClientURLs: d.clients, ClusterID: d.plan.ClusterID, Members: d.plan.Members,
		RevisionAtLeast: d.facts.Revision, HashKV: &d.hash, AuthEnabled: &d.facts.AuthEnabled, Started: d.booting,
		Timeout: requestTimeout, Checks: requestTimeout + time.Duration(d.image.Size()/slowest)*time.Second,
		Logger: d.options.Logger,
	}
	if d.password != "" {
		request.Client.User, request.Client.Password = root, d.password
	}
	done, reading := d.phase(PhaseFirstRead), true
	request.Waiting = func(w Waiting) {
		if reading && len(w.Missing) == 0 {
			done()
			done, reading = d.phase(PhaseServe), false
		}
	}
	r, err := Prove(working, request)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	done()
	if err == nil && len(r.Unproved) == 0 {
		d.check.Compared += fmt.Sprintf(", and what it served was compared with the database at revision %d: %s", d.facts.Revision, strings.Join(r.Proved, "; "))
		return nil
	}
	// Of a process that ends, broken connections show first.
	if d.process.endsWithin(ctx, 0) || interrupted(err) && d.process.endsWithin(ctx, burial) {
		return d.process.death(report.KindServe, "while it served")
	}
	var wrong *WrongError
	switch {
	case errors.As(err, &wrong) && !interrupted(err):
		for _, text := range wrong.Wrong {
			d.check.Findings = append(d.check.Findings, report.Finding{Kind: report.KindServe, Text: text})
		}
		return nil
	case err != nil:
		return fmt.Errorf("%w: try again where there is less to do", err)
	}
	return fmt.Errorf("not compared: %s", strings.Join(r.Unproved, "; "))
}

// faultError says that the image made the drill impossible. Any other error says that
// something could not be tried, which says nothing about the image.
type faultError struct{ finding report.Finding }

func (e *faultError) Error() string { return e.finding.String() }

func fault(kind report.Kind, format string, args ...any) error {
	return &faultError{report.Finding{Kind: kind, Text: fmt.Sprintf(format, args...)}}
}

// conclude turns what ended the drill, nil if nothing did, and what it found
// into the check's status. It returns an error only where there is no result.
func (d *drill) conclude(ctx context.Context, err error) error {
	var (
		damaged *snapshot.DamagedError
		broken  *faultError
	)
	switch {
	case errors.As(err, &broken):
		d.check.Findings = append(d.check.Findings, broken.finding)
	case errors.As(err, &damaged):
		d.check.Findings = append(d.check.Findings, report.Finding{Kind: report.KindBoot, Text: "no cluster can be built from it: " + damaged.Error()})
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("drill of %s: %w", d.options.Object, context.Cause(ctx))
	}
	if len(d.check.Findings) == 0 && err != nil {
		d.check.Reason = "the drill could not be done: " + err.Error()
	}
	d.check.Conclude()
	return nil
}
