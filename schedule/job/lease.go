package job

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

const (
	// Heartbeat is how often the lease is renewed by its holder, and looked at by
	// the other agents.
	Heartbeat = time.Minute
	// lostAfter is how long the others wait after they saw a heartbeat for the first
	// time before they take the lease: three missed ones.
	lostAfter = 3 * Heartbeat
	// margin is how long before it can be taken the holder's work ends.
	margin = 30 * time.Second
	// preferredWait is how long an agent leaves a lease that is free to those that should
	// have it: they may see that a heartbeat later.
	preferredWait = Heartbeat + margin
	// leaseRetry is how soon a heartbeat that failed is tried again.
	leaseRetry = 10 * time.Second
)

// ErrLost says that this agent may have lost the lease, or that the slot has the
// result of another one. What was done for it does not count.
var ErrLost = errors.New("another agent has taken over, or may have")

// lease is one process's part in deciding which agent runs the jobs. The clocks of
// two hosts are never compared: the holder counts from before it wrote a heartbeat,
// the others from after they saw it.
type lease struct {
	repo           *repository.Repository
	agent, process string
	prefer         func() bool
	log            *slog.Logger
	changed        func() // the lease was taken or lost
	about          func() *repository.Agent

	// Of run alone.
	looked  bool
	newest  repository.Lease // of no heartbeat: Released, and the number that the next one comes after
	seen    time.Time        // when newest was seen first
	restart bool             // newest is of the process before this one
	trying  uint64           // the number that was tried to be written last
	triedAt time.Time        // since when
	foreign uint64           // the newest number that was read and is foreign

	mu            sync.Mutex
	trouble       string           // what keeps the lease from being looked at or renewed
	current       repository.Lease // newest, for others to read
	epoch         uint64           // 0: not held
	renewed       time.Time        // when the newest heartbeat of this process was begun
	work          map[*context.CancelCauseFunc]struct{}
	wake          chan struct{} // ends run's wait
	giveBack      bool          // a job failed here: the lease goes to another one, when nothing is done under it
	gaveBack      time.Time     // when it did
	stray         string        // the object that was named last as no heartbeat
	straySeen     time.Time     // when one was seen
	duplicateName time.Time     // when a heartbeat of another process of this name was seen
}

func newLease(repo *repository.Repository, agent string, prefer func() bool, log *slog.Logger, changed func()) *lease {
	return &lease{repo: repo, agent: agent, process: newProcess(), prefer: prefer, log: log, changed: changed, work: map[*context.CancelCauseFunc]struct{}{}, wake: make(chan struct{}, 1)}
}

// newProcess distinguishes this start of an agent from others.
func newProcess() string {
	var random [6]byte
	rand.Read(random[:]) // never fails, by its documentation
	return hex.EncodeToString(random[:])
}

// holds is the epoch in which this process holds the lease; 0 where it does not, or
// somebody may take it within margin.
func (l *lease) holds() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holdsLocked()
}

func (l *lease) holdsLocked() uint64 {
	// The wall clock as well: while a host is suspended the monotonic one stands still.
	if l.epoch == 0 || max(time.Since(l.renewed), time.Now().Round(0).Sub(l.renewed.Round(0))) >= lostAfter-margin {
		return 0
	}
	return l.epoch
}

// why is what keeps the lease from being looked at or renewed; empty where nothing
// does.
func (l *lease) why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// bind gives a context that ends with ErrLost when the lease is not held for sure
// any more, and the epoch; 0 where it is not held now.
func (l *lease) bind(ctx context.Context) (context.Context, context.CancelFunc, uint64) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	epoch := l.holdsLocked()
	if epoch == 0 {
		cancel(ErrLost)
	}
	l.work[&cancel] = struct{}{}
	return ctx, func() {
		l.mu.Lock()
		delete(l.work, &cancel)
		l.mu.Unlock()
		cancel(context.Canceled)
		l.awake()
	}, epoch
}

// run takes the lease when it is free and keeps it, until ctx ends.
func (l *lease) run(ctx context.Context) {
	go func() {
		// No timer, which stands still while a host is suspended: the wall clock is looked
		// at as well, so that work ends as soon as the host wakes up.
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				l.expire()
			}
		}
	}()
	for ctx.Err() == nil {
		wait, err := l.beat(ctx)
		text := ""
		if err != nil {
			text = err.Error()
		}
		l.mu.Lock()
		before := l.trouble
		l.trouble, l.current = text, l.newest
		l.mu.Unlock()
		if text != "" && text != before && ctx.Err() == nil {
			l.log.Warn("the lease of the jobs cannot be seen to; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-l.wake:
		}
	}
}

// awake lets run see at once whether the lease is to be given back.
func (l *lease) awake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.giveBack && len(l.work) == 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// beat renews the lease, or takes it where it is free, and says when to call it
// again.
func (l *lease) beat(ctx context.Context) (time.Duration, error) {
	if l.givesBack() {
		l.release(ctx)
		l.mu.Lock()
		l.gaveBack = time.Now()
		l.mu.Unlock()
		l.log.Info("this agent gives the lease of the jobs back: one of them failed here, and others may do better")
		l.changed()
		return leaseRetry, nil
	}
	if l.holds() != 0 {
		return l.renew(ctx)
	}
	l.lose()
	if err := l.look(ctx); err != nil {
		return leaseRetry, err
	}
	if l.holds() != 0 {
		return Heartbeat, nil // taken by a put whose answer was lost
	}
	patience := lostAfter
	switch {
	case l.newest.Process == l.process && !l.newest.Released || l.restart:
		patience = 0
	case l.newest.Released:
		patience = l.patient()
	default:
		patience += l.patient()
	}
	if wait := patience - time.Since(l.seen); wait > 0 {
		return min(wait, Heartbeat), nil
	}
	return l.take(ctx)
}

// patient is how long an agent that should have the lease goes first.
func (l *lease) patient() time.Duration {
	l.mu.Lock()
	gaveBack := !l.gaveBack.IsZero() && time.Since(l.gaveBack) < 2*preferredWait
	l.mu.Unlock()
	if !gaveBack && (l.prefer == nil || l.prefer()) {
		return 0
	}
	return preferredWait
}

// couldNot says that a job failed here under the lease and is to be tried again: by
// another agent, where there is one.
func (l *lease) couldNot() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveBack = true
}

// givesBack says that the lease is to be given back now, and nothing is done under it.
func (l *lease) givesBack() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.giveBack || len(l.work) > 0 {
		return false
	}
	l.giveBack = false
	return l.holdsLocked() != 0
}

// look reads the newest heartbeat.
func (l *lease) look(ctx context.Context) error {
	number, stray, err := l.repo.NewestLease(ctx, l.newest.Number)
	if err != nil {
		return err
	}
	if stray != "" {
		l.sawStray(stray)
	}
	if l.looked && number == l.newest.Number {
		return nil
	}
	doc := repository.Lease{Released: true} // there is none
	if number > 0 {
		if doc, err = l.readBelow(ctx, number); err != nil {
			return err
		}
		if l.looked && doc.Number == l.newest.Number { // foreign ones alone are new
			l.newest.Number = number
			return nil
		}
	}
	l.saw(doc)
	l.newest.Number = max(l.newest.Number, number) // the next one comes after what is foreign
	return nil
}

// foreignPassed bounds how many foreign heartbeats are passed over in one look.
const foreignPassed = 64

// readBelow reads the newest heartbeat up to number that is not foreign, above the one
// that is known; where there is none it gives that one's number, or of what was not
// looked at before the number alone: who holds the lease is not known then, unless
// foreign ones took all numbers.
func (l *lease) readBelow(ctx context.Context, number uint64) (repository.Lease, error) {
	n := number
	for ; n > l.newest.Number && number-n < foreignPassed; n-- {
		doc, err := l.read(ctx, n)
		if err != nil || !l.passesBy(n) {
			return doc, err
		}
	}
	if l.looked {
		return repository.Lease{Number: l.newest.Number}, nil
	}
	return repository.Lease{Number: number, Released: n == 0}, nil
}

// passesBy reports whether the heartbeat that was just read is foreign. It says nothing of
// the lease, whose next number comes after it.
func (l *lease) passesBy(number uint64) bool { return l.foreign == number }

// read reads a heartbeat: of one that is damaged, of a newer version or refused only the
// number, since it ends as others do.
func (l *lease) read(ctx context.Context, number uint64) (repository.Lease, error) {
	doc, err := l.repo.ReadLease(ctx, number)
	if errors.Is(err, repository.ErrAltered) && l.repo.Checks() { // nobody who is trusted wrote it
		l.foreign = number
		l.sawStray(repository.LeaseName(number))
		return repository.Lease{Number: number}, nil
	}
	if errors.Is(err, repository.ErrAltered) || errors.Is(err, repository.ErrNewerFormat) || errors.Is(err, sinks.ErrDenied) {
		l.log.Warn("a heartbeat of the lease cannot be read; it runs out as others do", "heartbeat", number, "error", err)
		return repository.Lease{Number: number}, nil
	}
	return doc, err
}

// sawStray takes note of an object that has the name of a heartbeat, and is none.
func (l *lease) sawStray(name string) {
	l.mu.Lock()
	before := l.stray
	l.stray, l.straySeen = name, time.Now()
	l.mu.Unlock()
	if name != before {
		l.log.Warn("an object is no heartbeat of the lease, and is passed over: it is damaged, or somebody else wrote it", "object", name)
	}
}

// saw takes note of a heartbeat that was not known before.
func (l *lease) saw(doc repository.Lease) {
	own := doc.Holder == l.agent && doc.Process == l.process && doc.Number == l.trying
	same := doc.Holder == l.agent && doc.Process != l.process && !doc.Released
	l.restart = !l.looked && same
	l.looked, l.newest, l.seen = true, doc, time.Now()
	if l.restart || !same {
		if own && !doc.Released {
			l.hold(doc, l.triedAt)
		}
		return
	}
	l.mu.Lock()
	l.duplicateName = time.Now()
	l.mu.Unlock()
}

// take writes the next number as a new holder.
func (l *lease) take(ctx context.Context) (time.Duration, error) {
	doc, begun, err := l.write(ctx, repository.Lease{Epoch: l.newest.Number + 1})
	switch {
	case errors.Is(err, sinks.ErrExists):
		return time.Second, nil // who it was the next look shows
	case err != nil:
		return leaseRetry, err
	}
	// What was known of the newest may be of long ago, and have been removed.
	newest, _, err := l.repo.NewestLease(ctx, doc.Number)
	if err == nil && newest != doc.Number {
		err = fmt.Errorf("heartbeat %d of the lease was written, and %d is there as well", doc.Number, newest)
	}
	if err != nil {
		return leaseRetry, err
	}
	l.looked, l.newest, l.seen, l.restart = true, doc, time.Now(), false
	l.hold(doc, begun)
	return Heartbeat, nil
}

// renew writes the next number as the holder.
func (l *lease) renew(ctx context.Context) (time.Duration, error) {
	l.mu.Lock()
	end := time.Until(l.renewed) + lostAfter - margin
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, end)
	defer cancel()
	doc, begun, err := l.write(ctx, repository.Lease{Epoch: l.newest.Epoch})
	switch {
	case errors.Is(err, sinks.ErrExists):
		there, err := l.read(ctx, doc.Number)
		if err != nil {
			return leaseRetry, err
		}
		if l.passesBy(doc.Number) {
			l.newest.Number = doc.Number
			return time.Second, nil
		}
		if there.Process != l.process {
			l.lose()
		}
		l.saw(there)
		return leaseRetry, nil
	case err != nil:
		return leaseRetry, err
	}
	l.newest, l.seen = doc, time.Now()
	l.hold(doc, begun)
	return Heartbeat, nil
}

// write writes the number after the newest one.
func (l *lease) write(ctx context.Context, doc repository.Lease) (repository.Lease, time.Time, error) {
	doc.Number, doc.Holder, doc.Process, doc.Created = l.newest.Number+1, l.agent, l.process, time.Now().UTC()
	if l.about != nil {
		doc.Agent = l.about()
	}
	begun := time.Now()
	if doc.Number == 0 {
		return doc, begun, fmt.Errorf("%s is the last heartbeat of the lease that there can be: somebody else wrote it; remove it", repository.LeaseName(l.newest.Number))
	}
	if l.trying != doc.Number { // an earlier try may have been the one that was stored
		l.trying, l.triedAt = doc.Number, begun
	}
	if err := l.repo.WriteLease(ctx, doc); err != nil {
		return doc, begun, fmt.Errorf("write heartbeat %d of the lease: %w", doc.Number, err)
	}
	return doc, begun, nil
}

// hold says that this process holds the lease, by a heartbeat that was begun then.
func (l *lease) hold(doc repository.Lease, begun time.Time) {
	l.mu.Lock()
	before := l.epoch
	l.epoch, l.renewed = doc.Epoch, begun
	l.mu.Unlock()
	if before != doc.Epoch {
		l.log.Info("this agent runs the jobs of the repository", "epoch", doc.Epoch)
		l.changed()
	}
}

// expire ends the work where the lease was not renewed.
func (l *lease) expire() {
	if l.holds() == 0 {
		l.lose()
	}
}

// lose ends the work under the lease.
func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch == 0 {
		return
	}
	l.log.Warn("this agent runs the jobs of the repository no more: it could not show that it is there, or another one does", "epoch", l.epoch)
	l.epoch = 0
	for cancel := range l.work {
		(*cancel)(ErrLost)
	}
	l.changed()
}

// release gives the lease back, when run has returned and all work has ended, so
// that another agent goes on at once.
func (l *lease) release(ctx context.Context) {
	if l.holds() == 0 {
		return
	}
	_, _, err := l.write(ctx, repository.Lease{Epoch: l.newest.Epoch, Released: true})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch = 0
	if err != nil {
		l.log.Warn("the lease of the jobs could not be given back: others go on when it has run out", "error", err)
	}
}
