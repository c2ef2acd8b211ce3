package restore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
)

// ExecOptions are how a plan is carried out on this host.
type ExecOptions struct {
	// Only names the one member that this host builds; empty for all.
	Only string
	// SetAside allows this host what Request.SetAside allows to all, and Owner,
	// if not nil, wins over the plan's.
	SetAside bool
	Owner    *Owner
	// Foreseen says that the image stands for one that a replay is to give, for Check:
	// whether members that an earlier run put in place, and did not set free, are what
	// this one asks for can then not be seen yet. Execute sees it, after the replay.
	Foreseen bool
	// Later are faults that Check only notes (ErrInUse, ErrExists): they can be ended before
	// a restore that does not begin now.
	Later []error
	// Progress, if not nil, is called from one goroutine at a time. It counts bytes of
	// the image; both are 0 in phases that do not count any.
	Progress func(p Phase, done, total int64)
	// Logger may be nil.
	Logger *slog.Logger

	// Seams for tests: step is called before each change of what a member could
	// find, swap stands for safedir.Exchange.
	step func(name string)
	swap func(a, b string) error
}

// run is one execution of a plan.
type run struct {
	plan    *Plan
	image   snapshot.Image
	opts    ExecOptions
	log     *slog.Logger
	targets []*target
	stamp   string
	undo    []func() error
	phases  []PhaseTime

	downgrade string // that edit ended
}

// Execute carries a plan out: it builds the members of this host aside, puts
// them in place, and sets them free when all are there and synced. When it
// fails, no member can start from what it built, and what it had set aside is
// back. Where an earlier run of the same request had all members in place, it
// only completes that one, without reading the image: that may be nil then. A
// walreplay.Rebuilt may have no database afterwards: see its Take. A planned snapshot
// file is written aside, synced, and then gets its name in one step: a file of that
// name is never overwritten.
func Execute(ctx context.Context, p *Plan, image snapshot.Image, opts ExecOptions) (_ *Result, err error) {
	if opts.Only == "" && p.NeedsOnly() {
		return nil, badRequest("restore: %s", p.sharedNote())
	}
	p = p.onHost(opts)
	r := &run{plan: p, image: image, opts: opts, log: opts.Logger, stamp: stamp(time.Now())}
	r.fill()
	if p.Path != "" {
		return r.writeFile(ctx)
	}
	members, err := p.local(opts.Only)
	if err != nil {
		return nil, err
	}
	done := r.phase(PhaseCheck)
	if image != nil {
		if err := p.Source.check(ctx, image, p.ID); err != nil {
			return nil, err
		}
		p = p.ofImage(image)
		r.plan = p
	}
	// Once without locks, which need files in the directories: a request that is
	// refused leaves no trace.
	if _, err := p.Check(ctx, opts); err != nil {
		return nil, err
	}
	if r.targets, err = openTargets(members); err != nil {
		return nil, err
	}
	clean := false // before build, staging may hold what an earlier run needs
	defer func() { err = errors.Join(err, closeTargets(r.targets, clean)) }()
	ready, err := p.Check(ctx, opts)
	if err != nil {
		return nil, err
	}
	for _, t := range r.targets {
		if err := t.survey(); err != nil {
			return nil, err
		}
	}
	done()
	if ready.Completes != nil {
		r.plan = ready.Completes
		if err := r.finish(); err != nil {
			return nil, err
		}
		clean = true
		res := r.result()
		res.CompletedEarlier = true
		return res, nil
	}
	if image == nil {
		return nil, fmt.Errorf("restore: no image to restore from, and of plan %s not all members are in place", p.ID)
	}
	clean = true
	if err := r.build(ctx); err != nil {
		return nil, err
	}
	if err := r.publish(ctx); err != nil {
		if undoErr := r.rollBack(); undoErr != nil {
			clean = false
			err = fmt.Errorf("%w; and what was done could not be undone, %w: %w", err, ErrUnfinished, undoErr)
		}
		return nil, err
	}
	// From here on only names are removed, and another run can do that as well.
	if err := r.finish(); err != nil {
		clean = false
		return nil, fmt.Errorf("%w: all members are in place, %w", err, ErrUnfinished)
	}
	return r.result(), nil
}

func (r *run) fill() {
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.opts.Progress == nil {
		r.opts.Progress = func(Phase, int64, int64) {}
	}
	if r.opts.step == nil {
		r.opts.step = func(string) {}
	}
	if r.opts.swap == nil {
		r.opts.swap = safedir.Exchange
	}
}

// phase starts a phase; the function that it returns ends it.
func (r *run) phase(p Phase) func() {
	start := time.Now()
	r.opts.Progress(p, 0, 0)
	return func() {
		took := time.Since(start)
		r.phases = append(r.phases, PhaseTime{Phase: p, Took: took})
		r.log.Debug("restore: phase done", "phase", p, "took", took)
	}
}

// rollBack takes back what publish did, newest first.
func (r *run) rollBack() error {
	var errs []error
	for i := len(r.undo) - 1; i >= 0; i-- {
		errs = append(errs, r.undo[i]())
	}
	return errors.Join(errs...)
}

func (r *run) result() *Result {
	res := newResult(r.plan, r.targets)
	res.DowngradeEnded = r.downgrade
	res.Phases = r.phases
	return res
}

// firstSegment is the name of a new log's only segment.
const firstSegment = "0000000000000000-0000000000000000.wal"

// completable returns the plan of an earlier run that asked for the same, and whose
// members are inPlace. Starting anew would mean to replace members that may serve
// already.
func completable(p *Plan, only string, found []*finding) *Plan {
	if earlier := inPlace(only, found); earlier != nil && p.matches(earlier) {
		return earlier
	}
	return nil
}

// inPlace returns the plan of an earlier run that put all members of this host in
// place, and was ended before it had removed all blockers.
func inPlace(only string, found []*finding) *Plan {
	var earlier *Plan
	blocked := false
	for _, s := range found {
		switch s.state {
		case stateUnfinished, stateSealed:
			blocked = true
		case stateDone:
		default:
			return nil
		}
		if s.record.Only != only || !s.logReady || earlier != nil && earlier.ID != s.record.Plan.ID {
			return nil
		}
		earlier = s.record.Plan
	}
	if !blocked {
		return nil
	}
	return earlier
}

// matches reports whether q, an earlier plan, gives what p asks for, whatever
// token and IDs either drew. What is known of the lineage may have grown
// since, but not beyond q's bump. What may be set aside does not count: q has
// done that already.
func (p *Plan) matches(q *Plan) bool {
	if p.ID == q.ID {
		return p.Owner == q.Owner || p.Owner != nil && q.Owner != nil && *p.Owner == *q.Owner
	}
	if p.Bump != nil && q.Bump != nil && q.Bump.NewRevision <= p.Bump.HighestKnown {
		return false
	}
	plain := func(p *Plan) Plan {
		c := *p
		c.ID, c.CreatedAt, c.ClusterToken, c.ClusterID, c.Notes = "", time.Time{}, "", 0, nil
		c.SetAside, c.Members = false, nil
		if c.Source.Recipe != nil { // whose pages may differ
			c.Source.Size, c.BytesDB = 0, 0
		}
		if c.Bump != nil && c.Bump.Mode == BumpAuto {
			c.Bump = &Bump{From: c.Bump.From}
		}
		for _, m := range p.Members {
			m.ID = 0
			c.Members = append(c.Members, m)
		}
		return c
	}
	a, errA := json.Marshal(plain(p))
	b, errB := json.Marshal(plain(q))
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// logIsReady reports whether a separate WAL directory is free already, or holds
// all that is needed to free it.
func logIsReady(walDir string) (bool, error) {
	b, err := readBlocker(walDir)
	if err != nil || b == nil {
		return err == nil, err
	}
	at, err := segmentAt(&site{final: walDir, root: walDir})
	return at != "", err
}

// segmentAt is where the new segment of a separate WAL directory is: still in
// staging, or in place; empty when it is nowhere.
func segmentAt(wal *site) (string, error) {
	for _, path := range []string{filepath.Join(wal.staging(), "wal", firstSegment), filepath.Join(wal.final, firstSegment)} {
		there, err := exists(path)
		if err != nil || there {
			return path, err
		}
	}
	return "", nil
}

// finish sets the members of this host free, now that all are in place. First
// every one of them stops to be replaceable, then the blockers go. It can be
// repeated from any point.
func (r *run) finish() error {
	defer r.phase(PhaseFinish)()
	for _, t := range r.targets {
		r.opts.step("seal " + t.Name)
		if err := t.seal(); err != nil {
			return fmt.Errorf("complete member %s: %w", t.Name, err)
		}
	}
	for _, t := range r.targets {
		if err := r.setFree(t); err != nil {
			return fmt.Errorf("complete member %s: %w", t.Name, err)
		}
	}
	return nil
}

// seal gives the record its final name.
func (t *target) seal() error {
	err := move(filepath.Join(t.live(), unfinishedName), filepath.Join(t.live(), recordName))
	if errors.Is(err, fs.ErrNotExist) { // sealed by an earlier run
		return nil
	}
	return err
}

func (r *run) setFree(t *target) error {
	own := filepath.Join(t.live(), "wal")
	if t.wal == nil {
		r.opts.step("unblock " + t.Name)
		return removeBlocker(own)
	}
	// The blocker of the member's own WAL folder goes last: by it another run
	// sees that this one is not complete.
	if b, err := readBlocker(t.WALDir); err != nil {
		return err
	} else if b != nil {
		if err := r.placeSegment(t); err != nil {
			return err
		}
		r.opts.step("unblock the WAL directory of " + t.Name)
		if err := removeBlocker(t.WALDir); err != nil {
			return err
		}
	}
	r.opts.step("unblock " + t.Name)
	names, err := foreign(own)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("%s holds %s, and the log of %s lies in %s: move that away and run again", own, names[0], t.Name, t.WALDir)
	}
	// The folder goes in one step, with the blocker in it: without one it would be
	// taken for complete, and stay there for good.
	if err := move(own, filepath.Join(t.data.staging(), "unblocked")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// placeSegment moves the new log into its directory, which is blocked.
func (r *run) placeSegment(t *target) error {
	at, err := segmentAt(t.wal)
	if err != nil {
		return err
	}
	to := filepath.Join(t.WALDir, firstSegment)
	switch at {
	case "":
		return fmt.Errorf("the new log of %s is nowhere: %s was changed since it was published; restore anew, setting aside what is there", t.Name, t.WALDir)
	case to:
		return nil
	}
	r.opts.step("move the log of " + t.Name + " into place")
	return move(at, to)
}

// Phase is a part of a restore.
type Phase = walreplay.Phase

// PhaseTime is how long a phase took.
type PhaseTime = walreplay.PhaseTime

// The phases, in their order, after those of a replay, where there was one. PhaseWrite
// reads the image and writes all databases in one pass; the other ones are short.
const (
	PhaseCheck   Phase = "check"
	PhaseWrite   Phase = "write"
	PhaseEdit    Phase = "edit"
	PhaseLog     Phase = "log"
	PhaseSync    Phase = "sync"
	PhasePublish Phase = "publish"
	PhaseFinish  Phase = "finish"
)

// Result is what a restore did.
type Result struct {
	// Plan is what was carried out. With CompletedEarlier it is the plan of an
	// earlier run, whose members were all in place already.
	Plan             *Plan `json:"plan"`
	CompletedEarlier bool  `json:"completed_earlier,omitempty"`

	Members        []MemberResult `json:"members,omitempty"` // of this host
	InitialCluster string         `json:"initial_cluster,omitempty"`
	// Path is the snapshot file that was written instead of members, Size that with its
	// trailer, and DatabaseSHA256 what the trailer says.
	Path           string `json:"path,omitempty"`
	Size           int64  `json:"size,omitempty"`
	DatabaseSHA256 string `json:"database_sha256,omitempty"`
	// RevisionBefore is the image's, RevisionAfter what the cluster starts with.
	RevisionBefore int64            `json:"revision_before"`
	RevisionAfter  int64            `json:"revision_after"`
	AlarmsCleared  []snapshot.Alarm `json:"alarms_cleared,omitempty"`
	// DowngradeEnded is the version of a cluster downgrade that was under way in
	// the image. The new cluster is not downgrading: ask for it again.
	DowngradeEnded string      `json:"downgrade_ended,omitempty"`
	Phases         []PhaseTime `json:"phases"`
}

// MemberResult is one member that was built.
type MemberResult struct {
	Member
	// SetAside is where the content of existing directories went.
	SetAside []string `json:"set_aside,omitempty"`
	// Flags start this member with etcd, beside its listen addresses,
	// certificates and quota. The cluster's state is "existing": a member with
	// a log ignores it, and one that does not find its data directory then fails
	// instead of bootstrapping an empty cluster.
	Flags []string `json:"flags"`
}

// Took is the time of all phases.
func (r *Result) Took() (sum time.Duration) {
	for _, p := range r.Phases {
		sum += p.Took
	}
	return sum
}

func newResult(p *Plan, targets []*target) *Result {
	r := &Result{
		Plan:           p,
		InitialCluster: p.InitialCluster(),
		RevisionBefore: p.Source.Facts.Revision,
		RevisionAfter:  p.Source.Facts.Revision,
		AlarmsCleared:  p.ClearAlarms,
	}
	if p.Bump != nil {
		r.RevisionAfter = p.Bump.NewRevision
	}
	for _, t := range targets {
		r.Members = append(r.Members, MemberResult{Member: t.Member, SetAside: t.aside, Flags: startFlags(p, t.Member)})
	}
	return r
}

func startFlags(p *Plan, m Member) []string {
	flags := []string{"--name=" + m.Name, "--data-dir=" + m.DataDir}
	if m.WALDir != "" {
		flags = append(flags, "--wal-dir="+m.WALDir)
	}
	return append(flags,
		"--initial-advertise-peer-urls="+strings.Join(m.PeerURLs, ","),
		"--initial-cluster="+p.InitialCluster(),
		"--initial-cluster-token="+p.ClusterToken,
		"--initial-cluster-state=existing")
}
