// Package repository is the layout of a repository: which objects there are,
// what they are called, and how a reader finds them. It knows names, not
// contents.
//
//	requorum.json                              the marker: this is a repository, of this format
//	timelines/<timeline>.json                  one descriptor a timeline
//	<timeline>/full/<backup>/snapshot.zst      a full snapshot (snapshot.zst.age when encrypted;
//	                                           snapshot-2.zst of a second attempt)
//	<timeline>/full/<backup>/attachments.tar.zst.age  files that were stored with it (attachments-2… likewise)
//	<timeline>/full/<backup>/manifest.json     written last: with it the backup exists
//	<timeline>/l0/<first>-<first of the one before>  a segment of the raft log, as an archiver wrote it
//	                                           (l0/<first>: none ends right before it)
//	<timeline>/l1/<first>-<last>               merged from those, or written where others overlap it; l2 and up alike
//	<timeline>/marks/<index>-<time>-<member>.json  an alive mark
//	<timeline>/gaps/<first>-<last>.json        entries that nobody can archive any more
//	<timeline>/superseded.json                 the timeline has ended (superseded-2.json: again)
//	verdicts/<timeline>/<backup>/<time>-<id>.json  what a verification found of the backup
//	pruned/<timeline>/<backup>.json            the backup was pruned
//	jobs/<job>/<slot>.json                     a run of a job that succeeded (<slot>.failed.json: the
//	                                           last attempt failed)
//	jobs/<job>/<slot>.attempt-<n>.json         an attempt was begun (beat-<n>-<m>: it is under way still;
//	                                           failed-<n>, stopped-<n>: it has ended)
//
// A timeline is "<cluster ID>-<n>": 16 hexadecimal digits, and a number that
// grows when a history restarted under the same cluster ID. A backup is
// "<UTC time>-<random>", such as 20260102T150405Z-3f9a2c: sorted by name they
// are sorted by the writer's clock, which nothing depends on. Raft indexes,
// members and the times of marks (nanoseconds since 1970) are 16
// hexadecimal digits in names.
package repository

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
)

// Format is the number of the repository's format that this code reads and
// writes.
const Format = 1

// MarkerName is the object that makes a folder or a prefix a repository.
const MarkerName = "requorum.json"

const (
	timelinesPrefix  = "timelines/"
	documentSuffix   = ".json"
	fullFolder       = "/full/"
	manifestBase     = "manifest.json"
	encryptedSuffix  = ".age"
	backupTimeLayout = "20060102T150405Z"
)

// What makes names, and reads them again: of a timeline (its cluster and number), and of
// a backup in text of its length.
const (
	timelineFormat = "%016x-%d"
	backupFormat   = "%23s"
)

// scan reads what a format made of values, and leaves those as they are that it cannot
// read. So a name is only what it seems where the same name is made of what was read,
// which checkName sees to: that refuses every second spelling as well.
func scan(name, format string, values ...any) { _, _ = fmt.Sscanf(name, format, values...) }

// checkName refuses a name of what, where another one was made of what was read of it, or
// what was read is not valid.
func checkName(name, made, what string, valid bool) error {
	if valid && made == name {
		return nil
	}
	return fmt.Errorf("%q is not the name of %s", name, what)
}

// kinds are what objects are that are no timeline's, by their first folder.
var kinds = map[string]struct {
	kind   string
	locked bool
}{
	MarkerName: {"repository", true}, "timelines": {"timeline", true}, "verdicts": {"verdict", true}, "pruned": {"pruned", false},
	"pins": {"pin", false}, "jobs": {"job", false},
}

// kindOf is what kind of object is called name, whose signature is of no other, and whether
// it is one to be locked: see Locked.
func kindOf(name string) (kind string, locked bool) {
	folder, rest, _ := strings.Cut(name, "/")
	if k, ok := kinds[folder]; ok {
		return k.kind, k.locked
	}
	folder, _, inFolder := strings.Cut(rest, "/")
	switch {
	case folder == "full":
		return "manifest", true
	case inFolder && folder == "marks":
		return "mark", false
	case inFolder && folder == "gaps":
		return "gap", false
	case inFolder && strings.HasPrefix(folder, "l"):
		return "segment", folder != "l0"
	case strings.HasPrefix(folder, "superseded"):
		return "superseded", true
	}
	return "object", true
}

// Locked reports whether the object called name is locked where the sink is configured to
// lock: all but what may be deleted before that time is over, which are pins, records of
// pruned backups, what jobs leave, and of the log marks, records of gaps, and segments that merged ones replace.
func Locked(name string) bool {
	_, locked := kindOf(name)
	return locked
}

// TimelineID names one history of one cluster.
type TimelineID struct {
	ClusterID uint64
	N         int // from 1
}

func (t TimelineID) String() string { return fmt.Sprintf(timelineFormat, t.ClusterID, t.N) }

// MarshalText writes the name as it stands in object names.
func (t TimelineID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is the opposite of MarshalText.
func (t *TimelineID) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTimelineID(string(text))
	return err
}

// ParseTimelineID reads "<cluster ID>-<n>".
func ParseTimelineID(s string) (TimelineID, error) {
	var t TimelineID
	scan(s, timelineFormat, &t.ClusterID, &t.N)
	if t.N < 1 || t.String() != s {
		return TimelineID{}, fmt.Errorf("%q is not a timeline: want 16 hexadecimal digits, a dash and a number from 1 on", s)
	}
	return t, nil
}

// NewBackupID makes the ID of a backup that starts now.
func NewBackupID(now time.Time) string {
	var random [3]byte
	rand.Read(random[:]) // never fails, by its documentation
	return now.UTC().Format(backupTimeLayout) + "-" + hex.EncodeToString(random[:])
}

// ValidBackupID refuses what NewBackupID cannot have made.
func ValidBackupID(id string) error {
	_, err := BackupTime(id)
	return err
}

// SnapshotName is the name of the object that one of several attempts at a
// full snapshot writes: each has its own, and the manifest names the one that
// counts. Attempts count from 1.
func SnapshotName(t TimelineID, backup string, attempt int, encrypted bool) string {
	name := attemptName(t, backup, "/snapshot", attempt) + ".zst"
	if encrypted {
		name += encryptedSuffix
	}
	return name
}

func attemptName(t TimelineID, backup, base string, attempt int) string {
	name := t.String() + fullFolder + backup + base
	if attempt > 1 {
		name += "-" + strconv.Itoa(attempt)
	}
	return name
}

// AttachmentsName is the name of the object that holds the files that one of several
// attempts at a full snapshot stored with it. They are always encrypted.
func AttachmentsName(t TimelineID, backup string, attempt int) string {
	return attemptName(t, backup, "/attachments", attempt) + ".tar.zst" + encryptedSuffix
}

// ParseAttachmentsName is the opposite of AttachmentsName.
func ParseAttachmentsName(name string) (t TimelineID, backup string, attempt int, err error) {
	attempt = 1
	scan(name, timelineFormat+fullFolder+backupFormat+"/attachments-%d", &t.ClusterID, &t.N, &backup, &attempt)
	err = checkName(name, AttachmentsName(t, backup, attempt), "a full snapshot's attachments", t.N > 0 && ValidBackupID(backup) == nil)
	return t, backup, attempt, err
}

// ParseSnapshotName is the opposite of SnapshotName.
func ParseSnapshotName(name string) (t TimelineID, backup string, attempt int, encrypted bool, err error) {
	attempt, encrypted = 1, strings.HasSuffix(name, encryptedSuffix)
	scan(name, timelineFormat+fullFolder+backupFormat+"/snapshot-%d", &t.ClusterID, &t.N, &backup, &attempt)
	err = checkName(name, SnapshotName(t, backup, attempt, encrypted), "a full snapshot's object", t.N > 0 && ValidBackupID(backup) == nil)
	return t, backup, attempt, encrypted, err
}

// ManifestName is the name of a full snapshot's manifest.
func ManifestName(t TimelineID, backup string) string {
	return t.String() + fullFolder + backup + "/" + manifestBase
}

// TimelineName is the name of a timeline's descriptor.
func TimelineName(t TimelineID) string { return timelinesPrefix + t.String() + documentSuffix }

// ParseTimelineName reads what TimelineName wrote.
func ParseTimelineName(name string) (t TimelineID, err error) {
	scan(name, timelinesPrefix+timelineFormat, &t.ClusterID, &t.N)
	return t, checkName(name, TimelineName(t), "a timeline's descriptor", t.N > 0)
}

// backupName is the name of a document about a backup that does not lie in its folder.
func backupName(prefix string, t TimelineID, backup string) string {
	return prefix + t.String() + "/" + backup + documentSuffix
}

func parseBackupName(name, prefix, what string) (t TimelineID, backup string, err error) {
	scan(name, prefix+timelineFormat+"/"+backupFormat, &t.ClusterID, &t.N, &backup)
	return t, backup, checkName(name, backupName(prefix, t, backup), what, t.N > 0 && ValidBackupID(backup) == nil)
}

// BackupTime is the time in a backup's ID: by the clock of the one who made it.
func BackupTime(id string) (time.Time, error) {
	stamp, random, _ := strings.Cut(id, "-")
	at, err := time.Parse(backupTimeLayout, stamp)
	if err != nil || !isLowerHex(random, 6) {
		return time.Time{}, fmt.Errorf("%q is not the ID of a backup: want for example 20260102T150405Z-3f9a2c", id)
	}
	return at, nil
}

// TimelineIDs lists the timelines that have a descriptor or an object, ordered by
// cluster ID and number. The two differ where the first backup of a timeline was
// interrupted, or a descriptor was lost. Of each kind it is MaxTimelines at most:
// see ListTimelines.
//
// Where signatures are checked, those are left out that have neither a descriptor nor a
// full snapshot that is not unsigned: who removes or replaces one object of a timeline, its
// descriptor, must not stop backups, nor keep what is there from being verified.
func (r *Repository) TimelineIDs(ctx context.Context) ([]TimelineID, error) {
	all, _, err := r.ListTimelines(ctx)
	if err != nil || !r.Checks() {
		return all, err
	}
	return filter(ctx, all, func(ctx context.Context, id TimelineID) (bool, error) {
		// One that is gone counts as well, and is nobody's.
		if _, err := r.Counts(ctx, TimelineName(id)); err != nil || r.isOwn(TimelineName(id)) {
			return true, err
		}
		newest, err := r.NewestFulls(ctx, id, 1)
		return len(newest) > 0, err
	})
}

// takenTimelines bounds how many unsigned descriptors FreeTimeline goes behind.
const takenTimelines = 100

// FreeTimeline is id, or the next number of which there is no unsigned descriptor: the
// name of an unsigned one is taken for good.
func (r *Repository) FreeTimeline(ctx context.Context, id TimelineID) (TimelineID, error) {
	for range takenTimelines {
		counts, err := r.Counts(ctx, TimelineName(id))
		if err != nil || counts {
			return id, err
		}
		id.N++
	}
	return id, fmt.Errorf("open a timeline of cluster %016x in %s: somebody took the names of %d: remove the unsigned descriptors of timelines", id.ClusterID, r, takenTimelines)
}

// ListTimelines lists the timelines that have a descriptor or an object, by names alone,
// and reports whether there are more: of descriptors those are listed that Budget keeps,
// and of timelines without one the first names.
func (r *Repository) ListTimelines(ctx context.Context) (all []TimelineID, more bool, err error) {
	descriptors := func(yield func(sinks.Object, error) bool) {
		for obj, err := range r.sink.List(ctx, timelinesPrefix, "") {
			if _, other := ParseTimelineName(obj.Name); (other == nil || err != nil) && !yield(obj, err) {
				return
			}
		}
	}
	own := Own(ctx, r, descriptors, func(o sinks.Object) string { return o.Name })
	some, others, err := Some(r, MaxTimelines, MaxBytes, descriptors, own, func(o sinks.Object) (int64, time.Time) {
		return min(o.Size, DocumentLimit), o.ModTime
	})
	if err != nil {
		return nil, false, fmt.Errorf("list the timelines in %s: %w", r, err)
	}
	known := map[TimelineID]bool{}
	for _, obj := range some {
		id, _ := ParseTimelineName(obj.Name) // the others were passed over
		all, known[id] = append(all, id), true
	}
	// Folder by folder: what is in them may be very many objects.
	after, without := "", 0
	for folders := 0; ; folders++ {
		folder, err := r.folderAfter(ctx, after)
		if err != nil {
			return nil, false, fmt.Errorf("list the timelines in %s: %w", r, err)
		}
		if folder == "" {
			break
		}
		if without == MaxTimelines || folders == maxFolders {
			others++
			break
		}
		if id, err := ParseTimelineID(folder); err == nil && !known[id] {
			all = append(all, id)
			without++
		}
		after = folder + "0" // the character behind the slash: after all names in the folder
	}
	// By number: names sort "-10" before "-2".
	slices.SortFunc(all, func(a, b TimelineID) int {
		return cmp.Or(cmp.Compare(a.ClusterID, b.ClusterID), cmp.Compare(a.N, b.N))
	})
	return all, others > 0, nil
}

// maxFolders bounds the requests that it takes to find the folders of timelines.
const maxFolders = 3 * MaxTimelines

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

// ErrNewerFormat says that a newer version of requorum wrote something, and that
// this version cannot read it.
var ErrNewerFormat = errors.New("it was written by a newer version of requorum")

// Read reads the document called name. Damage is ErrAltered, and so is one that is not
// called what its content says: it was moved or copied there. That of a newer format is
// refused. Of gives its format, whether it is called so, and what it is of.
func Read[T any](ctx context.Context, r *Repository, name string, of func(T) (format int, calledSo bool, about string)) (T, error) {
	var v, none T
	if err := r.ReadDocument(ctx, name, &v); err != nil {
		return none, err
	}
	switch format, calledSo, about := of(v); {
	case format < Format: // which is the first
		return none, fmt.Errorf("%s in %s: %w: it has format %d, which no version writes", name, r, ErrAltered, format)
	case format != Format:
		return none, fmt.Errorf("%s in %s has format %d; this version of requorum reads format %d: use a newer one: %w", name, r, format, Format, ErrNewerFormat)
	case !calledSo:
		return none, fmt.Errorf("%s in %s: %w: it is %s: it was moved or copied here", name, r, ErrAltered, about)
	}
	return v, nil
}

// listNamed lists what names below a prefix say, which what calls in the plural; those
// that parse refuses are passed over. Whose they are is not asked.
func listNamed[N any](ctx context.Context, r *Repository, prefix, what string, parse func(name string) (N, error)) ([]N, error) {
	var all []N
	for obj, err := range r.sink.List(ctx, prefix, "") {
		if err != nil {
			return nil, fmt.Errorf("list the %s in %s: %w", what, r, err)
		}
		if n, err := parse(obj.Name); err == nil {
			all = append(all, n)
		}
	}
	return all, nil
}

// namesBelow lists the names below a prefix, which what calls in the plural, without
// those that ofKind refuses, and those that are unsigned.
func (r *Repository) namesBelow(ctx context.Context, prefix, what string, ofKind func(name string) error) ([]string, error) {
	all, err := listNamed(ctx, r, prefix, what, func(name string) (string, error) { return name, ofKind(name) })
	if err != nil {
		return nil, err
	}
	return dropUnsigned(ctx, r, all, func(name string) string { return name })
}
