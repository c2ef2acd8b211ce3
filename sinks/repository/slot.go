package repository

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

const demandInfix = "-demand-"

// SlotName is the name of the slot of a schedule at a time: the same on every
// host. Names of slots are sorted by time.
func SlotName(t time.Time) string { return t.UTC().Format(backupTimeLayout) }

// NewDemandSlot names a run that was asked for now: nobody else's slot.
func NewDemandSlot(now time.Time) string {
	var random [3]byte
	rand.Read(random[:]) // never fails, by its documentation
	return SlotName(now) + demandInfix + hex.EncodeToString(random[:])
}

// ParseSlot reads what SlotName or NewDemandSlot wrote.
func ParseSlot(slot string) (at time.Time, demand bool, err error) {
	stamp, random, demand := strings.Cut(slot, demandInfix)
	at, err = time.Parse(backupTimeLayout, stamp)
	// The round trip refuses every second spelling of a name.
	if err == nil && at.UTC().Format(backupTimeLayout) == stamp && (!demand || isLowerHex(random, 6)) {
		return at, demand, nil
	}
	return time.Time{}, false, fmt.Errorf("%q is not a slot: want for example 20260102T010000Z or 20260102T010203Z%s3f9a2c", slot, demandInfix)
}

func isLowerHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

// SlotBackupID is the ID of the full snapshot that a job makes at a slot. It
// follows from the two, so that of several who make it only one can have it.
func SlotBackupID(job, slot string) (string, error) {
	at, _, err := ParseSlot(slot)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(job + "/" + slot))
	return SlotName(at) + "-" + hex.EncodeToString(sum[:3]), nil
}

// ValidJob refuses names of jobs that cannot be part of an object's name.
func ValidJob(job string) error {
	if job == "" || len(job) > 64 || strings.Trim(job, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.Trim(job, "-") != job {
		return fmt.Errorf("%q cannot be the name of a job: want lower-case letters, digits and dashes between them", job)
	}
	return nil
}
