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
			place, err := e.claimPlace(ctx, name)
			switch {
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

// claimPlace reads a claim, or a beat of one, and says where it belongs.
func (e *examination) claimPlace(ctx context.Context, name string) (string, error) {
	if _, _, _, _, err := repository.ParseBeatName(name); err == nil {
		var b repository.Beat
		err := e.repo.ReadDocument(ctx, name, &b)
		return repository.BeatName(b.Job, b.Slot, b.Attempt, b.Number), err
	}
	var c repository.Claim
	err := e.repo.ReadDocument(ctx, name, &c)
	return repository.ClaimName(c.Job, c.Slot, c.Attempt), err
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
	if name == "requorum.json" || isPrunedName(name) || isKeptName(name) || isJobName(name) || slices.ContainsFunc(foldersOfNobody, func(p string) bool { return strings.HasPrefix(name, p) }) {
		return true
	}
	if _, err := repository.ParseCanaryName(name); err == nil {
		return true
	}
	t, err := repository.ParseTimelineID(folder)
	if err != nil {
		return false
	}
	if _, _, err := repository.ParseSupersededName(name); err == nil {
		return true
	}
	if id, base, _ := strings.Cut(strings.TrimPrefix(rest, "full/"), "/"); strings.HasPrefix(rest, "full/") {
		_, _, _, _, errSnapshot := repository.ParseSnapshotName(name)
		_, _, _, _, errCompanion := repository.ParseCompanionName(name)
		whole := errSnapshot == nil || errCompanion == nil || name == repository.ManifestName(t, id)
		return base != "" && whole && repository.ValidBackupID(id) == nil && !e.beside(t, id, name)
	}
	_, errSegment := repository.ParseSegmentName(name)
	_, errMark := repository.ParseMarkName(name)
	_, errGap := repository.ParseGapName(name)
	return errSegment == nil || errMark == nil || errGap == nil
}

// beside tells an object in a backup's folder that its manifest does not name.
// Another attempt's object, which lost and could not be deleted, is none.
func (e *examination) beside(t repository.TimelineID, id, name string) bool {
	return slices.ContainsFunc(e.catalog.Manifests, func(m *snapshot.Manifest) bool {
		return m.Timeline == t && m.ID == id && name != m.Object.Name && !isCompanion(m, name) && name != repository.ManifestName(t, id) && attemptOf(name) == attemptOf(m.Object.Name)
	})
}

// attemptOf is the attempt that wrote an object; 0 where it is neither a
// snapshot's nor a companion's.
func attemptOf(name string) int {
	if _, _, n, _, err := repository.ParseSnapshotName(name); err == nil {
		return n
	}
	if _, _, n, _, err := repository.ParseCompanionName(name); err == nil {
		return n
	}
	return 0
}
