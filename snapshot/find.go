package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// Latest asks for the newest state instead of an ID.
const Latest = "latest"

// ErrAmbiguous says that more than one backup matches what was asked for, and
// that choosing between them is not for a program.
var ErrAmbiguous = errors.New("more than one backup matches")

// SeparateError says that several timelines of a repository have a newest backup, and
// none goes on from another. It wraps ErrAmbiguous.
type SeparateError struct {
	Timelines []repository.TimelineID
	catalog   *Catalog
}

func (e *SeparateError) Error() string {
	text := ErrAmbiguous.Error() + ": these are separate histories; choose one with --timeline, or give an ID:"
	for _, t := range e.Timelines {
		text += "\n  " + e.catalog.Summary(t)
	}
	return text
}

func (e *SeparateError) Unwrap() error { return ErrAmbiguous }

// Find finds one backup by its ID, by the first characters of one, or by
// Latest. timeline, where it is not empty, is where to look.
//
// The newest state is looked for in the timeline that nothing branches off.
// One that went on after another had branched off, as its backups or, where
// c.Archived has it, its log show, is not continued by that one; nor is one whose
// branch was a recovery that was taken back. One that started over is never the newest
// state, and continues nothing; until somebody has answered, the error is a
// *StartedOverError.
// Where there is more than one, it is the one that is still observed, as c.Archived
// shows, if no other was ever observed or was backed up since. Otherwise the error is
// a *SeparateError: their histories differ, and which one is right only the user can
// know. Where the newest
// backup has a damaged manifest the error is an *Unusable: an older
// one must not pass for the newest.
func (c *Catalog) Find(ref, timeline string) (*Manifest, error) {
	if ref != Latest {
		return c.findID(ref, timeline)
	}
	if timeline == "" {
		if err := c.CheckStartedOver(); err != nil {
			return nil, err
		}
	}
	var candidates []repository.TimelineID
	over := c.startedOver()
	for _, t := range c.Timelines {
		if timeline != "" && t.ID.String() == timeline {
			return c.findNewest(t.ID)
		}
		if c.hasBackup(t.ID) && !c.continued(t.ID, over) && !c.Archived[t.ID].Undone && !isStartedOver(over, t.ID) {
			candidates = append(candidates, t.ID)
		}
	}
	switch {
	case timeline != "":
		return nil, fmt.Errorf("%w: there is no timeline %s; 'requorum list' shows them", ErrNoBackup, timeline)
	case len(candidates) == 0:
		return nil, c.None()
	case len(candidates) > 1:
		if t, only := c.onlyObserved(candidates); only {
			return c.findNewest(t)
		}
		return nil, &SeparateError{candidates, c}
	}
	return c.findNewest(candidates[0])
}

// findNewest finds the newest backup of a timeline. Where a damaged manifest
// stands in the order of states nobody knows, so there the time in its ID decides,
// by the clock of the one who wrote it, and in doubt it is the newest.
func (c *Catalog) findNewest(t repository.TimelineID) (*Manifest, error) {
	m := c.Newest(t)
	for _, d := range slices.Backward(c.Damaged) {
		if d.Timeline == t && !d.Unsigned() && (m == nil || startedAt(d.ID) >= startedAt(m.ID)) {
			return nil, &d
		}
	}
	if m == nil {
		return nil, fmt.Errorf("%w: timeline %s has none", ErrNoBackup, t)
	}
	return m, nil
}

// onlyObserved is the one timeline of several whose log is archived, where that went
// on for as long as any other was backed up. It is not one that was restored from
// another that is still backed up: that may be a test of a cluster without agents.
func (c *Catalog) onlyObserved(all []repository.TimelineID) (only repository.TimelineID, is bool) {
	for _, t := range all {
		if !c.Archived[t].Seen.IsZero() {
			if is {
				return repository.TimelineID{}, false
			}
			only, is = t, true
		}
	}
	for _, t := range all {
		m := c.Newest(t)
		if !is || t == only || m == nil {
			continue
		}
		if m.Started.After(c.Archived[only].Seen.Add(clockMargin)) || c.descends(only, t) {
			return repository.TimelineID{}, false
		}
	}
	return only, is
}

// descends reports whether the history of t goes on from another timeline's.
func (c *Catalog) descends(t, from repository.TimelineID) bool {
	for range c.Timelines { // so that descriptors in a circle end
		i := slices.IndexFunc(c.Timelines, func(o repository.Timeline) bool { return o.ID == t })
		if i < 0 || c.Timelines[i].Parent == nil {
			return false
		}
		if t = c.Timelines[i].Parent.Timeline; t == from {
			return true
		}
	}
	return false
}

// hasBackup reports whether a timeline has a backup, damaged or not, unsigned ones apart.
func (c *Catalog) hasBackup(t repository.TimelineID) bool {
	return c.Newest(t) != nil || slices.ContainsFunc(c.Unread, isOf(t)) || slices.ContainsFunc(c.Damaged, func(u Unusable) bool { return u.Timeline == t && !u.Unsigned() })
}

// clockMargin is by how much the clocks of those who back up and of those who
// restore may differ without a backup being taken for an earlier one.
const clockMargin = time.Hour

// continued reports whether the history of t goes on elsewhere: a timeline with
// backups branches off it, or off one that does, and t itself has no backup
// from after that branch. A cluster that was restored from a backup for a test
// does not supersede the one that goes on.
func (c *Catalog) continued(t repository.TimelineID, over []startedOver) bool {
	if a := c.Archived[t]; a.Superseded && c.hasBackup(a.By) {
		return true
	}
	seen := map[repository.TimelineID]bool{t: true}
	for more := true; more; {
		more = false
		for _, other := range c.Timelines {
			if other.Parent == nil || !seen[other.Parent.Timeline] || seen[other.ID] || c.Archived[other.ID].Undone || isStartedOver(over, other.ID) || c.outlives(other) {
				continue
			}
			if c.hasBackup(other.ID) {
				return true
			}
			seen[other.ID], more = true, true
		}
	}
	return false
}

// outlives reports whether child's parent went on after child branched off: its
// archived log has an observation from then on, or it may have a backup from
// then on. In doubt it has one.
//
// Of the log no margin is taken. A cluster that goes on is observed every minute,
// so that clocks which differ are soon made up for; and one that ended is
// observed up to its end, so that a margin would make every restore that comes
// soon after that look like two histories that go on.
func (c *Catalog) outlives(child repository.Timeline) bool {
	switch a := c.Archived[child.Parent.Timeline]; {
	case a.Superseded:
		return false
	case a.Seen.After(child.Created):
		return true
	}
	newest := c.Newest(child.Parent.Timeline)
	if newest == nil || newest.Facts.RaftIndex <= child.Parent.RaftIndex {
		return false
	}
	if child.ID.ClusterID == child.Parent.Timeline.ClusterID {
		// Opened by a backup that had just read the parent's newest one.
		return newest.Started.After(child.Created)
	}
	return newest.Started.Add(clockMargin).After(child.Created)
}

func (c *Catalog) findID(ref, timeline string) (*Manifest, error) {
	matches := func(id string, t repository.TimelineID) bool {
		return strings.HasPrefix(id, ref) && (timeline == "" || t.String() == timeline)
	}
	var found []*Manifest
	for _, m := range c.Manifests {
		if matches(m.ID, m.Timeline) {
			found = append(found, m)
		}
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%w: %s", ErrAmbiguous, backupNames(found))
	}
	if len(found) == 1 {
		return found[0], nil
	}
	for _, d := range c.Damaged {
		if matches(d.ID, d.Timeline) {
			return nil, &d
		}
	}
	for _, u := range c.Incomplete {
		if matches(u.ID, u.Timeline) {
			return nil, fmt.Errorf("%w: %s has no manifest: it was interrupted, or is under way now", ErrNoBackup, u.ID)
		}
	}
	return nil, fmt.Errorf("%w: no ID starts with %q; 'requorum list' shows them", ErrNoBackup, ref)
}

// Older returns the newest backup of an older state than m's in its timeline,
// or nil: what to use should m be damaged.
func (c *Catalog) Older(m *Manifest) *Manifest {
	for _, other := range slices.Backward(c.Manifests) {
		if other.Timeline == m.Timeline && olderState(other, m) < 0 {
			return other
		}
	}
	return nil
}

// OlderThanDamaged returns the newest backup of the same timeline that is not
// newer than a damaged one by its ID, or nil: what to use instead.
func (c *Catalog) OlderThanDamaged(d *Unusable) *Manifest {
	for _, m := range slices.Backward(c.Manifests) {
		if m.Timeline == d.Timeline && startedAt(m.ID) <= startedAt(d.ID) {
			return m
		}
	}
	return nil
}

// startedAt is the time in a backup's ID, to be compared as text.
func startedAt(id string) string {
	stamp, _, _ := strings.Cut(id, "-")
	return stamp
}

func backupNames(all []*Manifest) string {
	var names []string
	for _, m := range all {
		names = append(names, m.ID)
	}
	return strings.Join(names, ", ")
}

// PlainError says that an object is not encrypted though an older full snapshot of its
// timeline is. Nobody who keeps their backups secret writes it, and anybody could have
// who may add objects, so it is refused where nobody named it.
type PlainError struct {
	Object    string // with its timeline
	Encrypted string // the older full snapshot
}

func (e *PlainError) Error() string {
	return fmt.Sprintf("%s is not encrypted, though older full snapshots there are, such as %s: find out who made it, then remove it; where it is yours, restore the full snapshot that you name by its ID", e.Object, e.Encrypted)
}

// MustEncryptError says that something was to be stored in the clear in a timeline with
// encrypted full snapshots, where readers refuse it: see PlainError.
type MustEncryptError struct {
	Timeline  repository.TimelineID
	Encrypted string // a full snapshot
}

func (e *MustEncryptError) Error() string {
	return fmt.Sprintf("timeline %s has encrypted full snapshots, such as %s: what is stored there in the clear would be refused by restore, and would show what they hide: give the recipients (--recipient; encryption.recipients of an agent), or another repository; where nobody of yours made that full snapshot, remove it, and say whom to trust (--trust)", e.Timeline, e.Encrypted)
}

// CheckPlain is a *MustEncryptError where one of the newest full snapshots of a timeline
// is encrypted: for who is about to store something in the clear there.
func CheckPlain(ctx context.Context, repo *repository.Repository, t repository.TimelineID) error {
	recent, err := recentlyReached(ctx, repo, t)
	if err != nil {
		return err
	}
	return checkPlain(t, recent)
}

func checkPlain(t repository.TimelineID, recent []*Manifest) error {
	for _, m := range recent {
		if m.Object.Encrypted() {
			return &MustEncryptError{t, m.ID}
		}
	}
	return nil
}

// CheckEncrypted is a *PlainError for a full snapshot that is not encrypted though an
// older one of its timeline is. It is for what nobody named.
func (c *Catalog) CheckEncrypted(m *Manifest) error {
	if m.Object.Encrypted() {
		return nil
	}
	first := c.EncryptedSince[m.Timeline]
	if first == nil || m.Facts.RaftIndex < first.Facts.RaftIndex {
		return nil
	}
	return &PlainError{fmt.Sprintf("full snapshot %s of timeline %s", m.ID, m.Timeline), first.ID}
}

// None is the error that there is no backup to take, and what there is instead.
func (c *Catalog) None() error {
	if n := len(c.Damaged); n > 0 {
		return fmt.Errorf("%w: the manifests of %d in the repository are unusable; 'requorum list' names them; the first: %w", ErrNoBackup, n, c.Damaged[0].Err)
	}
	return fmt.Errorf("%w: the repository has no backup: make one with 'requorum backup'", ErrNoBackup)
}
