// Package snapshot takes consistent full snapshots of an etcd cluster, keeps
// them described in repositories, and opens them again.
//
// It promises:
//
//  1. A backup exists once its manifest does, and the manifest is written after
//     everything that it describes was stored and read back from where it is.
//     What is interrupted or fails leaves no manifest.
//  2. A snapshot holds every write that the cluster had acknowledged before
//     Take was called: its stored bytes reach the barrier, or it is no backup.
//  3. An Image's reader returns io.EOF only after every check passed that the
//     image allows; damage is a *DamagedError that names the object.
//  4. Memory stays flat, whatever the database's size; nothing is written to a
//     temporary file.
//  5. Histories that differ are never ranked against each other.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
)

// DefaultTimeout ends a backup that takes longer. A stream holds a read
// transaction in the member, which makes its database grow meanwhile and
// freezes it should anybody defragment it.
const DefaultTimeout = 10 * time.Minute

// Request says what to take a full snapshot of, and where to keep it.
type Request struct {
	Client *client.Client
	// Local is a member whose data directory is on this machine; nil for none. Where it
	// is fit, it is read first, and its database out of its file.
	Local *LocalMember
	// Sink holds the repository, or gets one with this backup.
	Sink   sinks.Sink
	Codec  codec.Options
	Tool   string // for the manifest, such as "requorum 1.2.3"
	Labels map[string]string
	// ID is the backup's, for one that several may attempt: whoever writes the
	// manifest first has made it, and the others' error is ErrTaken. Made of the
	// time where empty.
	ID string
	// Attempt counts the attempts at ID from 1, which 0 is too. It names the
	// object, so that no manifest describes another attempt's bytes; where an
	// object of that number is there already, the next free number is taken.
	Attempt int
	// Attachments is the tar of files to be stored with the backup, which then needs
	// recipients; empty for none. The backup is complete or absent.
	Attachments []byte
	// HashKV asks the member for its HashKV at the snapshot's revision
	// afterwards. The member serves nothing else while it computes that: about
	// a second for 1.4 GB.
	HashKV bool
	// ReadBack reads every stored object back whole and compares it before the
	// manifest is written.
	ReadBack bool
	// Timeout bounds the reading from one member; DefaultTimeout where zero.
	Timeout time.Duration
	// Fit is how long to wait for a member that is fit to be read (see
	// client.Client.Unfit) where none is; not at all where zero. Unfit ones are the
	// last to be read in any case, and are read where there are no others: a
	// backup that burdens a member is better than none.
	Fit time.Duration
	// Reached says how far the archived log of a timeline goes, which counts
	// when the timeline is chosen; may be nil.
	Reached ReachedFunc
	// Repository is the ID of the repository, if it was used before: none is made then, and
	// another is refused.
	Repository string
	// Timeline is where the backup belongs, for a caller that has followed the
	// log and knows; it must have been opened. Chosen where zero.
	Timeline repository.TimelineID
	// Parent is where the cluster was restored from, for one that the repository does
	// not know; nil where nobody said so. NewLineage allows it to be neither known nor
	// restored from there: see CheckLineage.
	Parent     *repository.Branch
	NewLineage bool
	Progress   func(Progress) // may be nil; called from one goroutine
	Logger     *slog.Logger   // may be nil
	Now        func() time.Time
}

// ReachedFunc returns the last archived entry of a timeline, with its term and
// the highest revision that is known to be reached there (0: none is). Index 0
// is a timeline without an archived log.
type ReachedFunc func(context.Context, *repository.Repository, repository.TimelineID) (index, term uint64, revision int64, err error)

// Progress of a backup.
type Progress struct {
	// Phase is "barrier", "fit" (waiting for a member), "file" or "stream", "store" (what
	// was read is still on its way to the repository), "check", "attachments", "read back".
	Phase string
	Done  int64 // bytes of the database in this phase: read, which is more than is stored
	Total int64 // 0 where not known yet
}

// Result of a backup.
type Result struct {
	Manifest *Manifest
	// NewTimeline reports that this backup opened its timeline.
	NewTimeline bool
	// Damage is what is wrong with the repository itself, nil if nothing is.
	Damage error
	// Failures are the members that were tried before the one that was read.
	Failures []MemberFailure
	// Streamed says why the file of Request.Local was not read; empty where it was, and
	// where there is no such member.
	Streamed string
}

// Take takes one consistent full snapshot and stores it in the repository.
//
// If it fails, the repository has no object of this backup that looks like one. The
// snapshot holds everything the cluster had acknowledged before Take was
// called: a member that is behind or cut off is not read, or found out from
// the stored bytes and dropped.
func Take(ctx context.Context, req Request) (*Result, error) {
	t, err := newTaking(req)
	if err != nil {
		return nil, err
	}
	result, err := t.run(ctx)
	return result, withCause(ctx, err)
}

// newTaking fills in what was left open, and refuses an ID that cannot be one.
func newTaking(req Request) (*taking, error) {
	t := &taking{Request: req}
	if t.Timeout == 0 {
		t.Timeout = DefaultTimeout
	}
	if t.Now == nil {
		t.Now = time.Now
	}
	if t.Progress == nil {
		t.Progress = func(Progress) {}
	}
	if t.Logger == nil {
		t.Logger = slog.New(slog.DiscardHandler)
	}
	if len(t.Attachments) > 0 && len(t.Codec.Recipients) == 0 {
		return nil, fmt.Errorf("%w, and no recipient is named: name recipients, or no attachments", ErrAttachmentsPlain)
	}
	if t.ID != "" {
		if err := repository.ValidBackupID(t.ID); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// withCause adds to an error why its context was ended.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// taking is one backup under way.
type taking struct {
	Request
	survey   client.Survey
	barrier  client.Barrier
	repo     *repository.Repository
	known    []knownTimeline // of the cluster
	timeline repository.Timeline
	fresh    bool // the timeline is to be opened by this backup
	result   Result
}

func (t *taking) run(ctx context.Context) (*Result, error) {
	t.Progress(Progress{Phase: "barrier"})
	survey, err := t.Client.Survey(ctx)
	if err != nil {
		return nil, err
	}
	t.survey = survey
	if id := t.Timeline; id != (repository.TimelineID{}) && id.ClusterID != survey.ClusterID {
		return nil, fmt.Errorf("the members that answer are of cluster %s, and the snapshot is to belong to timeline %s: name the endpoints of that cluster", ID(survey.ClusterID), id)
	}
	// The repository is read before the barrier: whatever other
	// writers stored until then, the cluster had committed before it.
	if err := t.openRepository(ctx); err != nil {
		return nil, err
	}
	if t.barrier, err = t.Client.Barrier(ctx, survey); err != nil {
		return nil, err
	}
	if err := t.chooseTimeline(ctx); err != nil {
		return nil, err
	}
	t.Logger.Info("barrier", "index", t.barrier.Index, "term", t.barrier.Term, "revision", t.barrier.Revision, "member", memberName(t.barrier.Member))

	candidates, err := t.candidates(ctx)
	if err != nil {
		return nil, err
	}
	if t.mayReadFile(candidates) {
		if err := t.takeFrom(ctx, candidates[0], t.readFile); !t.toBeStreamed(ctx, err) {
			if err != nil {
				return nil, err
			}
			return &t.result, nil
		}
	}
	for _, member := range candidates {
		err := t.takeFrom(ctx, member, t.stream)
		if err == nil {
			return &t.result, nil
		}
		t.result.Failures = append(t.result.Failures, MemberFailure{Endpoint: member.Endpoint, Member: memberName(member), Err: err})
		t.Logger.Info("member not read", "endpoint", member.Endpoint, "err", err)
		if ctx.Err() != nil {
			return nil, err
		}
		var mf *memberError
		if !errors.As(err, &mf) {
			// Another member would not mend the repository.
			return nil, err
		}
	}
	for _, m := range t.survey.Members {
		if m.Err != nil {
			t.result.Failures = append(t.result.Failures, MemberFailure{Endpoint: m.Endpoint, Member: memberName(m), Err: m.Err})
		}
	}
	return nil, noMember(t.result.Failures)
}

// memberError marks a failure that another member may not have.
type memberError struct{ err error }

func (e *memberError) Error() string { return e.err.Error() }
func (e *memberError) Unwrap() error { return e.err }

// takeFrom reads one member, in one of two ways, and stores what it gave. Unless it
// returns nil, the repository shows nothing of it.
func (t *taking) takeFrom(ctx context.Context, member client.MemberStatus, read func(context.Context, client.MemberStatus, *upload) error) error {
	if err := t.Client.WaitApplied(ctx, member, t.barrier); err != nil {
		return &memberError{err}
	}
	started := t.Now().UTC()
	id := t.backupID(ctx, started)
	// Only while the member is read does time press: its end releases the member.
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	clock := time.AfterFunc(t.Timeout, func() {
		stop(fmt.Errorf("the member was read for longer than %s, which would hold it up: see --timeout", t.Timeout))
	})
	defer clock.Stop()
	up, err := t.startUpload(reading, id)
	if err != nil {
		return err
	}
	defer up.abort()
	if err := read(reading, member, up); err != nil {
		return withCause(reading, err)
	}
	clock.Stop()
	t.Logger.Info("member read", "member", memberName(member), "endpoint", member.Endpoint, "bytes", up.hash.total)
	if _, err := up.object.Commit(ctx); err != nil {
		return err
	}
	// From here on the object is visible, though no backup yet. Should this
	// member turn out not to do, it is deleted again.
	m, err := t.describe(ctx, member, up, id, started)
	if err != nil {
		return errors.Join(err, t.removeObject(up.name))
	}
	if err := t.storeAttachments(ctx, m); err != nil {
		return errors.Join(err, t.removeBackup(m))
	}
	return t.keepManifest(ctx, m)
}

func memberName(m client.MemberStatus) string {
	if m.Name != "" {
		return m.Name
	}
	if m.MemberID != 0 {
		return ID(m.MemberID).String()
	}
	return ""
}

// askFit is how often members are asked again whether one of them is fit.
const askFit = time.Second

// candidates are the members to read, best first and unfit ones last. Where all
// are unfit it waits for one, as long as the request says: what it asks then
// still has the barrier to reach.
func (t *taking) candidates(ctx context.Context) ([]client.MemberStatus, error) {
	end := time.Now().Add(t.Fit)
	for {
		list := t.Candidates(t.survey, t.barrier)
		if len(list) < 2 && t.Fit == 0 {
			return list, nil // there is nothing to choose
		}
		fit, err := t.fit(ctx, list)
		if err != nil {
			return nil, err
		}
		// All fit ones keep their order, and so do the others behind them.
		ordered := slices.Concat(pick(list, fit, true), pick(list, fit, false))
		if slices.Contains(fit, true) || !time.Now().Before(end) {
			return ordered, nil
		}
		t.Progress(Progress{Phase: "fit"})
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for a member that is fit to be read: %w", context.Cause(ctx))
		case <-time.After(askFit):
		}
		// Another one may answer by now, or lead. Nobody does: they are asked as
		// they were.
		if survey, err := t.Client.Survey(ctx); err == nil {
			t.survey = survey
		}
	}
}

// fit reports for each member whether it is fit.
func (t *taking) fit(ctx context.Context, list []client.MemberStatus) ([]bool, error) {
	why := make([]string, len(list))
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, member := range list {
		wg.Go(func() { why[i], errs[i] = t.Client.Unfit(ctx, member) })
	}
	wg.Wait()
	fit := make([]bool, len(list))
	for i, member := range list {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if fit[i] = why[i] == ""; !fit[i] {
			t.Logger.Info("member unfit to be read now", "member", memberName(member), "endpoint", member.Endpoint, "reason", why[i])
		}
	}
	return fit, nil
}

func pick(list []client.MemberStatus, fit []bool, want bool) (picked []client.MemberStatus) {
	for i, member := range list {
		if fit[i] == want {
			picked = append(picked, member)
		}
	}
	return picked
}

// backupID is the ID that was asked for, or else a new one. Whoever may add objects can
// know which one is asked for, and take the name of its manifest beforehand: a new one
// then as well.
func (t *taking) backupID(ctx context.Context, started time.Time) string {
	if t.ID != "" {
		// What keeps it from being found out, freeAttempt meets and reports.
		name := repository.ManifestName(t.timeline.ID, t.ID)
		if counts, err := t.repo.Counts(ctx, name); err == nil && !counts {
			t.Logger.Warn("the backup gets another ID: an unusable object has the name of its manifest", "object", name, "repository", t.repo)
			t.ID = ""
		}
	}
	if t.ID == "" {
		return repository.NewBackupID(started)
	}
	return t.ID
}

// freeAttempt is the number under which the object of this attempt is written:
// the attempt's own, or the next one that is free. What has a number already may
// be an earlier life of this attempt's, or a member's whose bytes did not do and
// which is locked. ErrTaken where the backup is there.
func (t *taking) freeAttempt(ctx context.Context, id string) (int, error) {
	attempt := max(t.Attempt, 1)
	if t.ID == "" {
		return attempt, nil // random: nobody else writes there
	}
	used, err := t.repo.Attempts(ctx, t.timeline.ID, id)
	if err != nil {
		return 0, err
	}
	if used.Complete {
		return 0, fmt.Errorf("backup %s in %s: %w", id, t.repo, ErrTaken)
	}
	for used.Has(attempt) {
		attempt++
	}
	return attempt, nil
}

// Errors that a caller may want to distinguish.
var (
	// ErrNoBackup says that no backup matches what was asked for.
	ErrNoBackup = errors.New("no such backup")
	// ErrNewerFormat says that a newer version of requorum wrote it.
	ErrNewerFormat = repository.ErrNewerFormat
	// ErrStale says that a member's snapshot does not hold what the cluster
	// had committed before: the member is behind or cut off.
	ErrStale = errors.New("the snapshot is older than what the cluster had committed")
	// ErrTaken says that another attempt has made the backup of that ID already:
	// nothing was stored, or nothing is left of what was.
	ErrTaken = errors.New("another attempt has made this backup already")
)

// IncompleteError says which part of a piece of work could not be done. The command
// line ends with exit code 5 on it.
type IncompleteError string

func (e IncompleteError) Error() string { return string(e) }

// MemberFailure is why a member was not, or not successfully, read.
type MemberFailure struct {
	Endpoint string
	Member   string // name or ID, where known
	Err      error
}

// noMember says that no member could be read, and why for each, whose error is within.
func noMember(failures []MemberFailure) error {
	err := fmt.Errorf("no member gave a snapshot (%d tried)", len(failures))
	for _, f := range failures {
		where := f.Endpoint
		if f.Member != "" {
			where += " (" + f.Member + ")"
		}
		err = fmt.Errorf("%w\n  %s: %w", err, where, f.Err)
	}
	return err
}
