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

// documents are small objects of one sort. What is read of them is compared with their
// own sums and places.
type documents struct {
	folder string
	object string // what reports call them together
	listed string // what an error of the listing calls them
	is     func(name string) bool
	// compared says what n of them were compared with.
	compared func(n int) string
	kind     report.Kind
	// read says what is wrong with one; its error is why it could not be read.
	read func(ctx context.Context, name string) (fault string, err error)
}

// checkDocuments reads all documents that no backup and no log that is there depends
// on. One that is altered says something about the place where all else is stored.
func (e *examination) checkDocuments(ctx context.Context) error {
	places := func(format string) func(int) string {
		return func(n int) string { return fmt.Sprintf(format, n) + " with their own SHA-256 and place" }
	}
	altered := func(err error, next string) (string, error) {
		if errors.Is(err, repository.ErrForeign) {
			return "", nil // it does not exist
		}
		if errors.Is(err, repository.ErrAltered) {
			return err.Error() + next, nil
		}
		return "", err
	}
	for _, d := range []documents{
		{prunedObject + "/", prunedObject, "the records of pruned backups", isPrunedName, places("%d records of pruned backups"), report.KindMark,
			func(ctx context.Context, name string) (string, error) {
				_, err := e.repo.ReadPruned(ctx, name)
				return altered(err, "")
			}},
		{"pins/", "pins", "pins", isPinName, places("%d pins"), report.KindMark,
			func(ctx context.Context, name string) (string, error) {
				_, err := e.repo.ReadPin(ctx, name)
				return altered(err, "")
			}},
		{prunedObject + "/", prunedObject, prunedObject, isPrunedLogName, places("%d records that log was pruned"), report.KindMark,
			func(ctx context.Context, name string) (string, error) {
				_, err := e.repo.ReadPrunedLog(ctx, name)
				return altered(err, "")
			}},
		{claimsPrefix, "claims", "the claims", func(string) bool { return true }, func(n int) string {
			return report.Counted(n, "claim on a job", "claims on jobs") + ", each with its own SHA-256 and place"
		}, report.KindClaim, func(ctx context.Context, name string) (string, error) {
			var c repository.Claim
			err := e.repo.ReadDocument(ctx, name, &c)
			if place := repository.ClaimName(c.Job, c.Slot, c.Attempt); err == nil && place != name {
				return "it is the claim " + place + ": it was moved or copied here; delete it", nil
			}
			return altered(err, "; nothing depends on it: delete it")
		}},
		{"jobs/", "jobs", "the results of jobs", isJobName, func(n int) string {
			return report.Counted(n, "result of a job", "results of jobs") + ", each with its own SHA-256 and place"
		}, report.KindClaim, func(ctx context.Context, name string) (string, error) {
			_, err := e.repo.ReadJobResult(ctx, name)
			return altered(err, "; no backup depends on it: its slot stays done")
		}},
	} {
		if err := e.checkSort(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// checkSort reads all documents of one sort. One that is gone since they were listed
// was swept, or pruned.
func (e *examination) checkSort(ctx context.Context, d documents) error {
	var names []string
	for o, err := range e.repo.Sink().List(ctx, d.folder, "") {
		if err != nil {
			return e.failed(ctx, d.object, fmt.Errorf("list %s in %s: %w", d.listed, e.repo, err))
		}
		if d.is(o.Name) {
			names = append(names, o.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err := e.check(ctx, report.Checksum, d.object, func(c *report.Check) error {
		c.Compared = d.compared(len(names))
		for _, name := range names {
			fault, err := d.read(ctx, name)
			switch {
			case errors.Is(err, sinks.ErrNotFound):
			case err != nil:
				unchecked(c, err)
			case fault != "":
				found(c, report.Finding{Kind: d.kind, Object: name, Text: fault})
			}
		}
		return nil
	})
	return err
}

// foldersOfNobody are objects that are nobody's data.
var foldersOfNobody = []string{claimsPrefix, "runner/", "scratch/", "verdicts/"}

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
		e.note("%s not requorum's, or of a newer version: %s", report.Counted(n, "object is", "objects are"), strings.Join(names, ", "))
	}
	return nil
}

// known reports whether docs/format.md lists a name.
func (e *examination) known(name string) bool {
	folder, rest, _ := strings.Cut(name, "/")
	_, errTimeline := repository.ParseTimelineName(name)
	if errTimeline == nil || name == repository.MarkerName || isPrunedName(name) || isPinName(name) || isPrunedLogName(name) || isJobName(name) || slices.ContainsFunc(foldersOfNobody, func(p string) bool { return strings.HasPrefix(name, p) }) {
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
		_, _, _, _, errAttachment := repository.ParseAttachmentName(name)
		whole := errSnapshot == nil || errAttachment == nil || name == repository.ManifestName(t, id)
		return base != "" && whole && repository.ValidBackupID(id) == nil && !e.beside(t, id, name)
	}
	_, errSegment := repository.ParseSegmentName(name)
	_, errMark := repository.ParseMarkName(name)
	_, errGap := repository.ParseGapName(name)
	return errSegment == nil || errMark == nil || errGap == nil
}

// beside reports whether an object in a backup's folder is one that its manifest does not name.
// Another attempt's object, which lost and could not be deleted, is none.
func (e *examination) beside(t repository.TimelineID, id, name string) bool {
	return slices.ContainsFunc(e.catalog.Manifests, func(m *snapshot.Manifest) bool {
		return m.Timeline == t && m.ID == id && name != m.Object.Name && !isAttachment(m, name) && name != repository.ManifestName(t, id) && attemptOf(name) == attemptOf(m.Object.Name)
	})
}

// attemptOf is the attempt that wrote an object; 0 where it is neither a
// snapshot's nor an attachment's.
func attemptOf(name string) int {
	if _, _, n, _, err := repository.ParseSnapshotName(name); err == nil {
		return n
	}
	if _, _, n, _, err := repository.ParseAttachmentName(name); err == nil {
		return n
	}
	return 0
}

// checkEnding reads all marks that end a timeline, those as well that count for
// nothing any more. They are numbered, and none is ever deleted: behind one that is
// gone nobody would look, and a timeline that ended would pass for living.
func (e *examination) checkEnding(ctx context.Context, c *report.Check, id repository.TimelineID) {
	names, err := e.repo.SupersededNames(ctx, id)
	if err != nil {
		unchecked(c, err)
		return
	}
	for n := 1; ; n++ {
		name := repository.SupersededName(id, n)
		_, err := e.repo.ReadSuperseded(ctx, name)
		switch {
		case errors.Is(err, sinks.ErrNotFound) && n > len(names):
			return
		case errors.Is(err, sinks.ErrNotFound):
			found(c, report.Finding{Kind: report.KindMark, Object: name, Text: fmt.Sprintf("%s in %s is gone, and later marks that end the timeline are there", name, e.repo)})
			return
		case errors.Is(err, repository.ErrForeign): // it does not exist
		case errors.Is(err, repository.ErrAltered):
			found(c, report.Finding{Kind: report.KindMark, Object: name, Text: err.Error()})
		case err != nil:
			unchecked(c, err)
			return
		}
	}
}

// isJobName reports whether a name is that of a result, or of a failed attempt's record.
func isJobName(name string) bool {
	_, _, _, err := repository.ParseJobName(name)
	return err == nil
}
