package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

const claimsPrefix = "claims/"

// checkClaims reads all claims. Nothing depends on them; one that is altered says
// something about the place where all else is stored.
func (e *examination) checkClaims(ctx context.Context) error {
	var names []string
	for o, err := range e.repo.Sink().List(ctx, claimsPrefix, "") {
		if err != nil {
			return e.failed(ctx, strings.TrimSuffix(claimsPrefix, "/"), fmt.Errorf("list the claims in %s: %w", e.repo, err))
		}
		names = append(names, o.Name)
	}
	if len(names) == 0 {
		return nil
	}
	_, err := e.check(ctx, report.Checksum, strings.TrimSuffix(claimsPrefix, "/"), func(c *report.Check) error {
		c.Compared = counted(len(names), "claim on a job", "claims on jobs") + ", each with its own SHA-256 and place"
		for _, name := range names {
			var claim repository.Claim
			err := e.repo.ReadDocument(ctx, name, &claim)
			switch place := fmt.Sprintf("%s%s/%s/%d.json", claimsPrefix, claim.Job, claim.Slot, claim.Attempt); {
			case errors.Is(err, sinks.ErrNotFound): // its job is done
			case errors.Is(err, repository.ErrAltered):
				found(c, report.Finding{Kind: report.KindClaim, Object: name, Text: err.Error() + "; nothing depends on it: delete it"})
			case err != nil:
				unchecked(c, err)
			case place != name:
				found(c, report.Finding{Kind: report.KindClaim, Object: name, Text: "it is the claim " + place + ": it was moved or copied here; delete it"})
			}
		}
		return nil
	})
	return err
}

// foldersOfNobody are objects that are nobody's data.
var foldersOfNobody = []string{claimsPrefix, "scratch/", "verdicts/"}

// unknownNamed is how many unknown objects are named.
const unknownNamed = 5

// nameUnknown notes objects that this version knows nothing of.
func (e *examination) nameUnknown(ctx context.Context) error {
	var names []string
	n := 0
	for o, err := range e.repo.Sink().List(ctx, "", "") {
		if err != nil {
			return e.failed(ctx, "objects", fmt.Errorf("list all objects in %s: %w", e.repo, err))
		}
		if e.known(o.Name) {
			continue
		}
		if n++; n <= unknownNamed {
			names = append(names, o.Name)
		}
	}
	if n > 0 {
		if n > len(names) {
			names = append(names, "…")
		}
		e.note("%s not requorum's, or of a newer version: %s", counted(n, "object is", "objects are"), strings.Join(names, ", "))
	}
	return nil
}

// known tells names that docs/format.md lists.
func (e *examination) known(name string) bool {
	folder, rest, _ := strings.Cut(name, "/")
	if folder == "timelines" {
		_, err := repository.ParseTimelineID(strings.TrimSuffix(rest, ".json"))
		return err == nil && strings.HasSuffix(rest, ".json")
	}
	if name == "requorum.json" || isPrunedName(name) || slices.ContainsFunc(foldersOfNobody, func(p string) bool { return strings.HasPrefix(name, p) }) {
		return true
	}
	t, err := repository.ParseTimelineID(folder)
	if err != nil {
		return false
	}
	if name == repository.SupersededName(t) {
		return true
	}
	if id, base, _ := strings.Cut(strings.TrimPrefix(rest, "full/"), "/"); strings.HasPrefix(rest, "full/") {
		whole := slices.Contains([]string{repository.ManifestName(t, id), repository.SnapshotName(t, id, false), repository.SnapshotName(t, id, true)}, name)
		return base != "" && whole && repository.ValidBackupID(id) == nil && !e.beside(t, id, name)
	}
	_, errSegment := repository.ParseSegmentName(name)
	_, errMark := repository.ParseMarkName(name)
	_, errGap := repository.ParseGapName(name)
	return errSegment == nil || errMark == nil || errGap == nil
}

// beside tells an object in a backup's folder that its manifest does not name.
func (e *examination) beside(t repository.TimelineID, id, name string) bool {
	return slices.ContainsFunc(e.catalog.Manifests, func(m *snapshot.Manifest) bool {
		return m.Timeline == t && m.ID == id && name != m.Object.Name && name != repository.ManifestName(t, id)
	})
}
