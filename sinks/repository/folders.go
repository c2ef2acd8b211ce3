package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// TimelineIDs lists all timelines that have a descriptor or an object, ordered
// by cluster ID and number. The two differ where the first backup of a timeline
// was interrupted, or a descriptor was lost.
func (r *Repository) TimelineIDs(ctx context.Context) ([]TimelineID, error) {
	var all []TimelineID
	add := func(name string) {
		if id, err := ParseTimelineID(name); err == nil && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	for obj, err := range r.sink.List(ctx, timelinesPrefix, "") {
		if err != nil {
			return nil, fmt.Errorf("list the timelines in %s: %w", r, err)
		}
		if base, ok := strings.CutSuffix(strings.TrimPrefix(obj.Name, timelinesPrefix), documentSuffix); ok {
			add(base)
		}
	}
	// Folder by folder: what is in them may be very many objects.
	for after := ""; ; {
		folder, err := r.folderAfter(ctx, after)
		if err != nil {
			return nil, fmt.Errorf("list the timelines in %s: %w", r, err)
		}
		if folder == "" {
			break
		}
		add(folder)
		after = folder + "0" // the character behind the slash: after all names in the folder
	}
	// By number: names sort "-10" before "-2".
	slices.SortFunc(all, func(a, b TimelineID) int {
		return cmp.Or(cmp.Compare(a.ClusterID, b.ClusterID), cmp.Compare(a.N, b.N))
	})
	return all, nil
}

// folderAfter is the first part of the first name behind after; empty at the
// end.
func (r *Repository) folderAfter(ctx context.Context, after string) (string, error) {
	for obj, err := range r.sink.List(ctx, "", after) {
		if err != nil {
			return "", err
		}
		if folder, _, ok := strings.Cut(obj.Name, "/"); ok {
			return folder, nil
		}
	}
	return "", nil
}
