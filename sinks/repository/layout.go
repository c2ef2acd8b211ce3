// Package repository is the layout of a repository: which objects there are,
// what they are called, and how a reader finds them. It knows names, not
// contents.
//
//	requorum.json                              the marker: this is a repository, of this format
//	timelines/<timeline>.json                  one descriptor a timeline
//	<timeline>/full/<backup>/snapshot.zst      a full snapshot (snapshot.zst.age when encrypted;
//	                                           snapshot-2.zst of a second attempt)
//	<timeline>/full/<backup>/companion-<name>.tar.zst.age  files that were stored with it
//	<timeline>/full/<backup>/manifest.json     written last: with it the backup exists
//	<timeline>/l0/<first>                      a segment of the raft log, as an archiver wrote it
//	<timeline>/l1/<first>-<last>               one merged from those; l2 and up alike
//	<timeline>/marks/<index>-<time>-<member>.json  an alive mark
//	<timeline>/gaps/<first>-<last>.json        entries that nobody can archive any more
//	<timeline>/superseded.json                 the timeline has ended (superseded-2.json: again)
//	verdicts/<sequence>.json                   what a verification found, each bound to the one before
//	canary/<fingerprint>.age                   shows whether an identity is still the right one
//	pruned/<timeline>/<backup>.json            the backup was let go
//	claims/<job>/<slot>/<attempt>.json         somebody set out to do a job; beat-… beside it
//	jobs/<job>/<slot>.json                     how a job ended at a slot
//
// A timeline is "<cluster ID>-<n>": 16 hexadecimal digits, and a number that
// grows when a history restarted under the same cluster ID. A backup is
// "<UTC time>-<random>", such as 20260102T150405Z-3f9a2c: sorted by name they
// are sorted by the writer's clock, which nothing depends on. Raft indexes,
// members, the times of marks (nanoseconds since 1970) and the numbers of
// verdicts are 16 hexadecimal digits in names.
package repository

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Format is the number of the repository's format that this code reads and
// writes.
const Format = 1

const (
	markerName       = "requorum.json"
	timelinesPrefix  = "timelines/"
	documentSuffix   = ".json"
	fullFolder       = "/full/"
	manifestBase     = "manifest.json"
	snapshotBase     = "snapshot"
	zstdSuffix       = ".zst"
	encryptedSuffix  = ".age"
	backupTimeLayout = "20060102T150405Z"
)

// TimelineID names one history of one cluster.
type TimelineID struct {
	ClusterID uint64
	N         int // from 1
}

func (t TimelineID) String() string { return fmt.Sprintf("%016x-%d", t.ClusterID, t.N) }

// MarshalText writes the name as it stands in object names.
func (t TimelineID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is the opposite of MarshalText.
func (t *TimelineID) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTimelineID(string(text))
	return err
}

// ParseTimelineID reads "<cluster ID>-<n>".
func ParseTimelineID(s string) (TimelineID, error) {
	cluster, n, ok := strings.Cut(s, "-")
	id, errID := strconv.ParseUint(cluster, 16, 64)
	num, errN := strconv.Atoi(n)
	t := TimelineID{id, num}
	// The round trip refuses every second spelling of a name.
	if !ok || errID != nil || errN != nil || num < 1 || t.String() != s {
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
	stamp, random, _ := strings.Cut(id, "-")
	_, errTime := time.Parse(backupTimeLayout, stamp)
	raw, errHex := hex.DecodeString(random)
	if errTime != nil || errHex != nil || len(raw) != 3 || strings.ToLower(random) != random {
		return fmt.Errorf("%q is not the ID of a backup: want for example 20260102T150405Z-3f9a2c", id)
	}
	return nil
}

// SnapshotName is the name of a full snapshot's object.
func SnapshotName(t TimelineID, backup string, encrypted bool) string {
	return SnapshotAttemptName(t, backup, 1, encrypted)
}

// SnapshotAttemptName is the name of the object that one of several attempts at a
// full snapshot writes: each has its own, and the manifest names the one that
// counts. Attempts count from 1; the first has the name of SnapshotName.
func SnapshotAttemptName(t TimelineID, backup string, attempt int, encrypted bool) string {
	name := t.String() + fullFolder + backup + "/" + snapshotBase
	if attempt > 1 {
		name += "-" + strconv.Itoa(attempt)
	}
	name += zstdSuffix
	if encrypted {
		name += encryptedSuffix
	}
	return name
}

// ParseSnapshotName is the opposite of SnapshotAttemptName.
func ParseSnapshotName(name string) (t TimelineID, backup string, attempt int, encrypted bool, err error) {
	folder, rest, ok := strings.Cut(name, fullFolder)
	if t, err = ParseTimelineID(folder); err != nil {
		return TimelineID{}, "", 0, false, err
	}
	backup, base, _ := strings.Cut(rest, "/")
	base, encrypted = strings.CutSuffix(base, encryptedSuffix)
	number := strings.TrimPrefix(strings.TrimSuffix(base, zstdSuffix), snapshotBase)
	attempt = 1
	if number != "" {
		attempt, err = strconv.Atoi(strings.TrimPrefix(number, "-"))
	}
	// The round trip refuses every second spelling of a name.
	if !ok || err != nil || ValidBackupID(backup) != nil || SnapshotAttemptName(t, backup, attempt, encrypted) != name {
		return TimelineID{}, "", 0, false, fmt.Errorf("%q is not the name of a full snapshot's object", name)
	}
	return t, backup, attempt, encrypted, nil
}

// ManifestName is the name of a full snapshot's manifest.
func ManifestName(t TimelineID, backup string) string {
	return t.String() + fullFolder + backup + "/" + manifestBase
}

func timelineName(t TimelineID) string { return timelinesPrefix + t.String() + documentSuffix }

// BackupTime is the time in a backup's ID: by the clock of the one who made it.
func BackupTime(id string) (time.Time, error) {
	if err := ValidBackupID(id); err != nil {
		return time.Time{}, err
	}
	stamp, _, _ := strings.Cut(id, "-")
	return time.Parse(backupTimeLayout, stamp)
}
