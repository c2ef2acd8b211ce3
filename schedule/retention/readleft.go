package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// leftovers finds the objects in a timeline's backup folders that are of no use.
func (r *reading) leftovers(ctx context.Context, t *Timeline) error {
	prefix := t.ID.String() + "/"
	for manifest, objects := range r.folders {
		if !strings.HasPrefix(manifest, prefix) {
			continue
		}
		id := strings.Split(manifest, "/")[2]
		l := Leftover{Timeline: t.ID, Backup: id}
		switch b := r.inv.backup(t.ID, id); {
		case b != nil:
			unnamed, err := r.unnamed(ctx, t.ID, id, objects)
			if err != nil {
				return err
			}
			l.Kind = Unnamed
			l.add(unnamed)
		case slices.ContainsFunc(objects, func(o sinks.Object) bool { return o.Name == manifest }):
			continue // it went, or came, while this was read
		default:
			l.add(objects)
			if err := r.without(ctx, &l); err != nil {
				return err
			}
		}
		if len(l.Objects) > 0 {
			t.Leftovers = append(t.Leftovers, l)
		}
	}
	slices.SortFunc(t.Leftovers, func(a, b Leftover) int { return strings.Compare(a.Backup, b.Backup) })
	return nil
}

func (l *Leftover) add(objects []sinks.Object) {
	for _, o := range objects {
		l.Objects = append(l.Objects, o.Name)
		l.Bytes += o.Size
		l.Since = later(l.Since, o.ModTime)
		l.LockedUntil = later(l.LockedUntil, o.LockedUntil)
	}
}

// without says what objects without a manifest are.
func (r *reading) without(ctx context.Context, l *Leftover) error {
	name := repository.PrunedName(l.Timeline, l.Backup)
	record, is := r.records[name]
	switch {
	case is:
		l.Kind, l.Since = LetGo, record.ModTime
		p, err := r.repo.ReadPruned(ctx, name)
		if err != nil && !errors.Is(err, sinks.ErrNotFound) && !errors.Is(err, repository.ErrAltered) {
			return err
		}
		i := slices.IndexFunc(r.inv.Pruned, func(o PrunedRecord) bool { return o.Timeline == l.Timeline && o.Backup == l.Backup })
		r.inv.Pruned[i].RaftIndex = p.RaftIndex
	case r.wasProved(l.Timeline, l.Backup):
		l.Kind = Suspect
	default:
		l.Kind = Interrupted
	}
	return nil
}

// wasProved tells that a verdict knows a backup.
func (r *reading) wasProved(t repository.TimelineID, id string) bool {
	for _, e := range r.verdicts.Entries {
		for _, s := range e.Verdict.Subjects {
			if s.Timeline == t && s.Backup == id {
				return true
			}
		}
	}
	return false
}

// unnamed are the objects beside a manifest that it does not name anywhere: also
// not in a field that only newer versions know.
func (r *reading) unnamed(ctx context.Context, t repository.TimelineID, id string, objects []sinks.Object) ([]sinks.Object, error) {
	manifest := repository.ManifestName(t, id)
	i := slices.IndexFunc(r.catalog.Manifests, func(m *snapshot.Manifest) bool { return m.Timeline == t && m.ID == id })
	if i < 0 {
		return nil, nil // it is damaged: nobody knows what it named
	}
	beside := slices.DeleteFunc(slices.Clone(objects), func(o sinks.Object) bool {
		return o.Name == manifest || o.Name == r.catalog.Manifests[i].Object.Name
	})
	if len(beside) == 0 {
		return nil, nil
	}
	var body any
	err := r.repo.ReadDocument(ctx, manifest, &body)
	switch {
	case errors.Is(err, sinks.ErrNotFound), errors.Is(err, repository.ErrAltered):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find out what %s names: %w", manifest, err)
	}
	folder := strings.TrimSuffix(manifest, "manifest.json")
	return slices.DeleteFunc(beside, func(o sinks.Object) bool {
		return mentions(body, o.Name) || mentions(body, strings.TrimPrefix(o.Name, folder))
	}), nil
}

// mentions tells that a text stands somewhere in decoded JSON.
func mentions(v any, text string) bool {
	switch v := v.(type) {
	case string:
		return v == text
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return mentions(one, text) })
	case map[string]any:
		for _, one := range v {
			if mentions(one, text) {
				return true
			}
		}
	}
	return false
}
