package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
)

// Latest asks for the newest state instead of an ID.
const Latest = "latest"

// ErrAmbiguous says that more than one backup matches what was asked for, and
// that choosing between them is not for a program.
var ErrAmbiguous = errors.New("more than one backup matches")

// Find finds one backup by its ID, by the first characters of one, or by
// Latest. timeline, where it is not empty, is where to look.
//
// The newest state is looked for in the timeline that nothing branches off.
// Where there is more than one, the error is ErrAmbiguous: their histories
// differ, and which one is right only the user can know.
func (c *Catalog) Find(ref, timeline string) (*Manifest, error) {
	if ref != Latest {
		return c.findID(ref, timeline)
	}
	var candidates []*Manifest
	for _, t := range c.Timelines {
		m := c.Newest(t.ID)
		if timeline != "" && t.ID.String() == timeline {
			if m == nil {
				return nil, fmt.Errorf("%w: timeline %s has no usable backup%s", ErrNoBackup, timeline, c.damagedHint())
			}
			return m, nil
		}
		if m != nil && !c.continued(t.ID) {
			candidates = append(candidates, m)
		}
	}
	switch {
	case timeline != "":
		return nil, fmt.Errorf("%w: there is no timeline %s", ErrNoBackup, timeline)
	case len(candidates) == 0:
		return nil, fmt.Errorf("%w: the repository has no usable backup%s", ErrNoBackup, c.damagedHint())
	case len(candidates) > 1:
		return nil, fmt.Errorf("%w: timelines %s are separate histories; choose one with --timeline, or give an ID", ErrAmbiguous, timelineNames(candidates))
	}
	return candidates[0], nil
}

// continued tells whether a timeline with backups branches off t, or off one
// that does.
func (c *Catalog) continued(t repository.TimelineID) bool {
	seen := map[repository.TimelineID]bool{t: true}
	for more := true; more; {
		more = false
		for _, other := range c.Timelines {
			if other.Parent == nil || !seen[other.Parent.Timeline] || seen[other.ID] {
				continue
			}
			if c.Newest(other.ID) != nil {
				return true
			}
			seen[other.ID], more = true, true
		}
	}
	return false
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
			return nil, d.Err
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

func (c *Catalog) damagedHint() string {
	if len(c.Damaged) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d damaged)", len(c.Damaged))
}

func timelineNames(all []*Manifest) string {
	var names []string
	for _, m := range all {
		names = append(names, m.Timeline.String())
	}
	return strings.Join(names, ", ")
}

func backupNames(all []*Manifest) string {
	var names []string
	for _, m := range all {
		names = append(names, m.ID)
	}
	return strings.Join(names, ", ")
}

// FindIn reads a repository's catalog and finds one backup in it.
func FindIn(ctx context.Context, repo *repository.Repository, ref, timeline string) (*Manifest, *Catalog, error) {
	c, err := ReadCatalog(ctx, repo)
	if err != nil {
		return nil, nil, err
	}
	m, err := c.Find(ref, timeline)
	return m, c, err
}
