package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
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
	cover   *segment.Cover // what is known of the archive's segments

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
	s.Gaps, s.Holes = slices.Clone(s.Gaps), slices.Clone(s.Holes)
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
	if err := os.MkdirAll(a.config.SpoolDir, 0o700); err != nil {
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

// fatal tells what time does not heal.
func fatal(err error) bool {
	var identity *IdentityError
	var superseded *SupersededError
	var shared *SharedError
	return errors.As(err, &identity) || errors.As(err, &superseded) || errors.As(err, &shared) || isNewer(err) || errors.Is(err, snapshot.ErrNewerFormat)
}
