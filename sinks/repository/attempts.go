package repository

import (
	"context"
	"fmt"
	"slices"
)

// Attempts are what is there of one backup that several may have attempted.
type Attempts struct {
	// Complete tells that it has a manifest.
	Complete bool
	// Numbers are those of the attempts that left an object, in no order.
	Numbers []int
}

// Has tells whether an attempt left an object.
func (a Attempts) Has(attempt int) bool { return slices.Contains(a.Numbers, attempt) }

// Attempts lists what is there of one backup.
func (r *Repository) Attempts(ctx context.Context, t TimelineID, backup string) (a Attempts, err error) {
	for obj, err := range r.sink.List(ctx, t.String()+fullFolder+backup+"/", "") {
		if err != nil {
			return Attempts{}, fmt.Errorf("list what there is of backup %s in %s: %w", backup, r, err)
		}
		if obj.Name == ManifestName(t, backup) {
			a.Complete = true
		}
		if _, _, n, _, err := ParseSnapshotName(obj.Name); err == nil {
			a.Numbers = append(a.Numbers, n)
		}
		if _, _, n, _, err := ParseCompanionName(obj.Name); err == nil {
			a.Numbers = append(a.Numbers, n)
		}
	}
	return a, nil
}
