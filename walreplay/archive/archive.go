package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

// Archiver archives the log of one member.
type Archiver struct {
	config  Config
	sink    *counting
	alarms  *alarms
	running sync.Mutex
	target  uint64 // of Once, when it is known
	yields  bool   // the next session begins as a follower
	call    call   // of OnGap
	errors  errorLog
	log     *segment.Log // the archive's, as the last search listed it; nil: none did

	unwritten []segment.GapRecord // they outlive a session that ends before their turn

	exclusive bool // conditional puts decide between writers
	refusal   refusal

	look atomic.Bool // the archive is to be looked through again

	unsaved *position     // that the spool's disk had no room for
	calm    time.Duration // how long a session has to run well before AlarmRestarted is over

	mu    sync.Mutex
	state State
}

// New checks the configuration. It does not look at anything yet.
func New(config Config) (*Archiver, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Archiver{config: config, sink: &counting{Sink: config.Sink}}
	a.alarms = &alarms{now: config.Now, events: config.Events}
	a.state.Role = Stopped
	return a, nil
}

// State is what the archiver knows now. It may be called at any time.
func (a *Archiver) State() State {
	a.mu.Lock()
	s := a.state
	s.Gaps = slices.Clone(s.Gaps)
	a.mu.Unlock()
	s.Alarms = a.alarms.list()
	s.Requests = a.sink.requests()
	return s
}

// LookAgain makes the archiver look soon at what the archive holds, instead of
// within the hour: for who knows of a full snapshot that it does not.
func (a *Archiver) LookAgain() { a.look.Store(true) }

func (a *Archiver) update(change func(*State)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.state)
}

// restartWait is the time between two beginnings. It doubles up to
// restartWaitLimit while nothing is archived.
const (
	restartWait      = 500 * time.Millisecond
	restartWaitLimit = 30 * time.Second
)

// errAgain ends a session that has to look anew where the archive stands.
var errAgain = errors.New("begin anew")

// Run archives until ctx ends, and then stores what is committed and read, in
// the repository or else in the spool, within a few seconds. Its error is nil
// then. Other errors are those that time does not heal: the log and the answers
// are of different members, the timeline is superseded, the log was written by
// a newer etcd, the archive by a newer requorum, the repository cannot be shared
// by several writers (see SingleWriter). All else raises an alarm, and is tried
// again.
func (a *Archiver) Run(ctx context.Context) error { return a.run(ctx, false) }

// Once archives what was committed when it was called, without waiting for
// another archiver to do it, and returns when that is durable in the
// repository. It needs a member that answers.
func (a *Archiver) Once(ctx context.Context) error { return a.run(ctx, true) }

func (a *Archiver) run(ctx context.Context, once bool) (err error) {
	if !a.running.TryLock() {
		return errors.New("archive: it is running already")
	}
	defer a.running.Unlock()
	if err := safedir.MkdirAll(a.config.SpoolDir); err != nil {
		return fmt.Errorf("archive: make the spool folder: %w", err)
	}
	unlock, err := lockFolder(a.config.SpoolDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	defer a.update(func(s *State) { s.Role = Stopped })
	a.target = 0
	wait := restartWait
	for {
		s := newSession(a, once)
		archived := a.State().Archived
		err := errors.Join(s.run(ctx), s.close())
		switch {
		case ctx.Err() != nil && !once:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("archive: %w; archived to index %d", context.Cause(ctx), a.State().Archived)
		case err == nil:
			return nil
		case fatal(err):
			a.failed(err)
			return err
		case !errors.Is(err, errAgain):
			a.restarted(err, s)
		}
		if a.State().Archived > archived || errors.Is(err, errAgain) {
			wait = restartWait
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, restartWaitLimit)
	}
}

// fatal reports what time does not heal.
func fatal(err error) bool {
	var identity *IdentityError
	var superseded *SupersededError
	var shared *SharedError
	var mustEncrypt *snapshot.MustEncryptError
	return errors.As(err, &mustEncrypt) || errors.As(err, &identity) || errors.As(err, &superseded) || errors.As(err, &shared) || errors.Is(err, client.ErrTooOld) || errors.Is(err, walfile.ErrNewer) || errors.Is(err, snapshot.ErrNewerFormat)
}

// Role is what an archiver does.
type Role string

// The roles.
const (
	Starting  Role = "starting"  // looks for the timeline, and where its archive ends
	Comparing Role = "comparing" // its log with the end of the archive
	Writer    Role = "writer"
	Follower  Role = "follower" // another one writes
	Spooling  Role = "spooling" // the repository is away
	Stopped   Role = "stopped"
)

// State is what an archiver knows of itself.
type State struct {
	Role     Role                  `json:"role"`
	Member   string                `json:"member"` // IDs of member and cluster
	Timeline repository.TimelineID `json:"timeline,omitzero"`

	// Archived is the last entry that is durable in the repository, as far as
	// this one knows; ArchivedRevision the highest revision that it is known to
	// reach; ArchivedTime when this one learned of it.
	Archived         uint64    `json:"archived"`
	ArchivedTerm     uint64    `json:"archived_term"`
	ArchivedRevision int64     `json:"archived_revision"`
	ArchivedTime     time.Time `json:"archived_time"`

	Applied uint64 `json:"applied"` // by the member, as it last answered
	// Confirmed is when the member was last asked, by this host's clock, of whose
	// answer all is applied that was committed by then: what was acknowledged until
	// then is among those entries, as far as the member had heard of it. One that
	// sees no leader, or is far behind, confirms nothing.
	Confirmed time.Time `json:"confirmed,omitzero"`
	Released  uint64    `json:"released"` // the last entry known to be committed and read
	Read      uint64    `json:"read"`     // the last entry in the log

	// Recoverable is the last entry that a restore gets to: Archived, unless
	// entries before that are missing and no full snapshot is behind them; 0
	// while there is no full snapshot at all.
	Recoverable uint64 `json:"recoverable"`

	// Behind is how old the oldest entry is that is committed, read, and not
	// durable in the repository, or how long it is known that what is durable
	// cannot be restored, whichever is longer; BehindEntries how many the member
	// has applied beyond Recoverable.
	Behind        time.Duration `json:"behind"`
	BehindEntries uint64        `json:"behind_entries"`

	Queued     int64 `json:"queued"`      // bytes in memory
	Spooled    int64 `json:"spooled"`     // bytes in the spool
	Pinned     int64 `json:"pinned"`      // bytes of purged WAL files kept
	SpoolLimit int64 `json:"spool_limit"` // bound, in bytes, for both of them together

	Segments int64    `json:"segments"` // that this one stored
	Bytes    int64    `json:"bytes"`    // in them
	Requests Requests `json:"requests"`

	// Observations that did not agree with the log, and were dropped.
	Dropped int64 `json:"dropped"`

	// Checked is when this one last looked whether all is there that was archived.
	Checked time.Time `json:"checked,omitzero"`

	Gaps        []Gap         `json:"gaps"` // found by this process
	SnapshotDue string        `json:"snapshot_due,omitempty"`
	Alarms      []RaisedAlarm `json:"alarms"`
	LastError   string        `json:"last_error,omitempty"`
}

const (
	// sameErrorEvery is how often the same error is logged: one that stays fails
	// several times a second, and would fill a disk.
	sameErrorEvery = time.Minute
	// errorsKept bounds how many different ones are distinguished.
	errorsKept = 64
)

// errorLog says which errors were logged a moment ago.
type errorLog struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// due reports whether an error is to be logged now.
func (l *errorLog) due(text string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.last[text]; ok && now.Sub(last) < sameErrorEvery {
		return false
	}
	if l.last == nil || len(l.last) >= errorsKept {
		l.last = map[string]time.Time{}
	}
	l.last[text] = now
	return true
}

// failed keeps an error for State, and logs it unless it was logged a moment
// ago.
func (a *Archiver) failed(err error) {
	text := err.Error()
	a.update(func(s *State) { s.LastError = text })
	if a.errors.due(text, time.Now()) {
		a.config.Logger.Warn("archive", "error", err)
	}
}

// reportedError ends a session, and an alarm of its own reports it: it is not logged
// again, nor AlarmRestarted.
type reportedError struct{ err error }

func (e *reportedError) Error() string { return e.err.Error() }
func (e *reportedError) Unwrap() error { return e.err }

// reported logs an error whose alarm is raised.
func (b *base) reported(err error) error {
	b.a.failed(err)
	return &reportedError{err}
}

// restarted reports an error that ended a session.
func (a *Archiver) restarted(err error, s *session) {
	if reported := (*reportedError)(nil); errors.As(err, &reported) {
		return
	}
	a.failed(err)
	switch {
	case a.calm == 0 || time.Since(s.began) > restartedFor:
		a.calm = calmAtLeast
	case s.ranWell: // which showed nothing
		a.calm = min(2*a.calm, restartedFor)
	}
	a.alarms.raise(AlarmRestarted, err.Error())
}

// unreadable raises that the member's log cannot be read, unless err says
// something else.
func (b *base) unreadable(err error) error {
	if fatal(err) || errors.Is(err, errAgain) || errors.Is(err, context.Canceled) {
		return err
	}
	next := "look whether it is the folder that a member of etcd writes its WAL to"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		next = "name the data directory of the member that runs here (--data-dir, member.data-dir) or, where its WAL is elsewhere, that folder (--wal-dir, member.wal-dir)"
	case errors.Is(err, fs.ErrPermission):
		next = "let the user that this runs as read it: the member's files are for its own user"
	}
	b.a.alarms.raise(AlarmLog, fmt.Sprintf("the member's log in %s cannot be read, and nothing is archived: %v: %s", b.WALDir, err, next))
	return b.reported(err)
}
