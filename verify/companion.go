package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// readCompanions reads what was stored with a snapshot, as it is stored: all
// bytes that were sealed are covered by that, and no secret is unpacked. Gone
// tells that the backup was pruned meanwhile.
func (e *examination) readCompanions(ctx context.Context, c *report.Check, m *snapshot.Manifest) (gone bool) {
	if len(m.Companions) == 0 {
		return false
	}
	c.Compared += fmt.Sprintf("; the stored bytes, size and SHA-256 of %s with the manifest", counted(len(m.Companions), "companion", "companions"))
	for _, one := range m.Companions {
		read := c.Bytes
		err := e.readStored(ctx, c, m.ID, one.Object)
		c.Bytes += read
		if e.prunedMeanwhile(ctx, m.Timeline, m.ID, err) {
			return true
		}
		took(c, report.KindObject, one.Object.Name, err)
	}
	return false
}

// isCompanion tells whether an object is one of a backup's companions.
func isCompanion(m *snapshot.Manifest, name string) bool {
	return slices.ContainsFunc(m.Companions, func(c snapshot.Companion) bool { return c.Object.Name == name })
}
