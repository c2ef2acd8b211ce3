package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/archive"
)

// clockTolerance is by how much this host's clock may differ from the
// repository's before `--at` would be told wrong times. What a request takes is
// within it.
const clockTolerance = 2 * time.Second

// nextOfPlace is what to do about an error of a repository.
func (e *examination) nextOfPlace(err error) string {
	switch {
	case errors.Is(err, sinks.ErrDenied):
		return "allow it: docs/s3.md has the rights in a bucket; a folder has to be the user's own"
	case errors.Is(err, repository.ErrAltered):
		return "look at what is damaged with requorum verify"
	}
	return "mend " + e.orKey("--repo", "repository.url") + ", or see that the place is there, works, and can be reached from this host"
}

// examineRepository does each operation once, on a scratch object. It is false
// where the place does not answer, and nothing more need be asked of it.
func (e *examination) examineRepository(ctx context.Context, s sinks.Sink) (sinks.Abilities, bool) {
	place := s.String()
	first, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	abilities, err := s.Abilities(first)
	if err != nil {
		e.failed(place, err, e.nextOfPlace(err))
		return abilities, false
	}
	for _, note := range abilities.Notes {
		e.add(checkWarn, place, note, "")
	}
	repo, err := repository.Open(first, s)
	switch {
	case errors.Is(err, repository.ErrNoRepository):
		e.add(checkOK, place, "no repository there yet: the first backup or archiver makes one", "")
	case err != nil:
		e.failed(place, err, e.nextOfPlace(err))
		return abilities, false
	case repo.Damage() != nil:
		e.add(checkWarn, place, repo.Damage().Error(), "")
	}
	e.examineRightsIn(ctx, s, abilities)
	if strings.HasPrefix(place, "s3:") && (e.agent == nil || e.agent.Archiving()) {
		interval := e.options.interval
		if interval == 0 {
			interval = archive.DefaultInterval
		}
		e.report.Costs = append(e.report.Costs, costOf(place, interval, e.options.archivers, e.agent != nil))
	}
	return abilities, true
}

func (e *examination) examineRightsIn(ctx context.Context, s sinks.Sink, abilities sinks.Abilities) {
	place := s.String()
	var random [8]byte
	rand.Read(random[:]) // never fails, by its documentation
	name := "scratch/doctor-" + hex.EncodeToString(random[:])
	data := []byte("requorum doctor wrote this to see whether it may. It can be deleted.\n")
	before := time.Now()
	object, err := sinks.Put(ctx, s, name, data, sinks.CreateOptions{})
	after := time.Now()
	if err != nil {
		e.failed(place, fmt.Errorf("write: %w", err), e.nextOfPlace(err))
		return
	}
	if !object.LockedUntil.IsZero() {
		e.add(checkWarn, place, fmt.Sprintf("the bucket locks every object by itself (until %s), claims and small log segments too", when(object.LockedUntil)),
			"remove the bucket's default retention; requorum locks what needs it (object-lock=… in the URL)")
	}
	if _, err := sinks.Put(ctx, s, name, data, sinks.CreateOptions{}); !errors.Is(err, sinks.ErrExists) {
		e.add(checkFail, place, fmt.Sprintf("an object could be overwritten (%v)", err), "use a server with conditional puts")
	}
	if got, err := sinks.Get(ctx, s, name, 1<<20); err != nil || !bytes.Equal(got, data) {
		e.add(checkFail, place, fmt.Sprintf("read: %v", orDiffers(err)), e.nextOfPlace(err))
	}
	found, err := s.Stat(ctx, name)
	if err != nil {
		e.failed(place, fmt.Errorf("look at an object: %w", err), e.nextOfPlace(err))
	}
	listed := false
	for o, err := range s.List(ctx, "scratch/", "") {
		if err != nil {
			e.failed(place, fmt.Errorf("list: %w", err), e.nextOfPlace(err))
			listed = true
			break
		}
		listed = listed || o.Name == name
	}
	if !listed {
		e.add(checkFail, place, "an object that was written is not listed", "use a server that lists what it holds")
	}
	e.examineClock(place, found.ModTime, before, after)
	if abilities.ExclusiveCreate {
		e.add(checkOK, place, "can be written, read and listed; of two writers of one name one wins", "")
	} else {
		e.examineSharing(place)
	}
	switch err := s.Delete(ctx, name); {
	case errors.Is(err, sinks.ErrDenied) && e.agent != nil && e.agent.Jobs.Prune.Enabled:
		e.add(checkFail, place, fmt.Sprintf("nothing can be deleted, and the job prune has to (%s stays)", name), "allow s3:DeleteObject (with versions s3:DeleteObjectVersion), see docs/s3.md, or write jobs.prune.enabled: false and prune from elsewhere")
	case errors.Is(err, sinks.ErrDenied):
		e.add(checkWarn, place, fmt.Sprintf("nothing can be deleted, so merged log segments do not replace the small ones (%s stays)", name), "allow deleting below <timeline>/l0 and claims, see docs/s3.md, or prune from elsewhere")
	case errors.Is(err, sinks.ErrLocked):
		e.add(checkWarn, place, fmt.Sprintf("%s is locked and stays", name), "")
	case err != nil:
		e.failed(place, fmt.Errorf("delete: %w", err), e.nextOfPlace(err))
	}
}

// examineSharing tells what follows where the place does not decide between two
// writers of one name.
func (e *examination) examineSharing(place string) {
	const text = "it does not decide between two writers of one name: of two archivers one would overwrite the other's log"
	const later = "use a server with conditional puts, so that another agent can take over"
	switch {
	case e.agent == nil:
		e.add(checkWarn, place, text, "use a server with conditional puts, or run a single archiver and say so with --single-writer")
	case e.agent.Repository.Writer == "":
		e.add(checkFail, place, text, "use a server with conditional puts, or name the one agent that writes: repository.writer: "+e.agent.Name)
	case e.agent.Repository.Writer != e.agent.Name:
		e.add(checkWarn, place, fmt.Sprintf("%s; %s alone writes, and this agent (%s) waits", text, e.agent.Repository.Writer, e.agent.Name), later)
	default:
		e.add(checkWarn, place, text+"; this agent alone writes", later)
	}
}

func orDiffers(err error) error {
	if err == nil {
		return errors.New("the bytes are not those that were written")
	}
	return err
}

// examineClock compares an object's time with this host's, before and after it
// was written. Stores tell whole seconds.
func (e *examination) examineClock(place string, stored, before, after time.Time) {
	if off := clockOff(stored, before, after); off != 0 {
		e.add(checkWarn, place, fmt.Sprintf("this host's clock and the repository's differ by %s: restore --at goes by this host's", off), "set the clock: NTP on every member")
	}
}

// clockOff is by how much a time that somebody else told between before and after
// is wrong, to the second; 0 within the tolerance, or where none was told.
func clockOff(told, before, after time.Time) time.Duration {
	switch {
	case told.IsZero():
		return 0
	case told.Before(before.Add(-clockTolerance)):
		return before.Sub(told).Round(time.Second)
	case told.After(after.Add(clockTolerance)):
		return -told.Sub(after).Round(time.Second)
	}
	return 0
}
