package repository

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	companionBase   = "companion-"
	companionSuffix = ".tar.zst.age"
	// companionNameLimit keeps object names well below what every place takes.
	companionNameLimit = 40
)

// ValidCompanionName refuses what cannot name a companion: the name is a part of
// an object's.
func ValidCompanionName(name string) error {
	ok := name != "" && len(name) <= companionNameLimit && name[0] != '-'
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if !ok {
		return fmt.Errorf("%q does not name a companion: want at most %d of a-z, 0-9 and -, such as pki", name, companionNameLimit)
	}
	return nil
}

// CompanionName is the name of the object that holds a companion of a full
// snapshot: files that were stored with it. Each attempt at a snapshot has its
// own, as in SnapshotAttemptName. Companions are always encrypted.
func CompanionName(t TimelineID, backup string, attempt int, name string) string {
	name = t.String() + fullFolder + backup + "/" + companionBase + name
	if attempt > 1 {
		name += "." + strconv.Itoa(attempt)
	}
	return name + companionSuffix
}

// ParseCompanionName is the opposite of CompanionName.
func ParseCompanionName(object string) (t TimelineID, backup string, attempt int, name string, err error) {
	folder, rest, _ := strings.Cut(object, fullFolder)
	t, err = ParseTimelineID(folder)
	backup, base, _ := strings.Cut(rest, "/")
	name, number, numbered := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(base, companionSuffix), companionBase), ".")
	attempt = 1
	if numbered && err == nil {
		attempt, err = strconv.Atoi(number)
	}
	// The round trip refuses every second spelling of a name.
	if err != nil || ValidBackupID(backup) != nil || ValidCompanionName(name) != nil || CompanionName(t, backup, attempt, name) != object {
		return TimelineID{}, "", 0, "", fmt.Errorf("%q is not the name of a companion's object", object)
	}
	return t, backup, attempt, name, nil
}
