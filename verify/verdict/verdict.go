// Package verdict keeps in the repository what was proved about it.
//
// What the package promises:
//
//  1. A verdict is an object that is written once. It binds what was proved to
//     the bytes that were seen: it counts for a backup only while the backup's
//     manifest is the same one, and so names the same stored bytes.
//  2. Each verdict holds the SHA-256 of the one before it. One that is altered,
//     moved, or gone from the middle is found. Pruning the beginning is fine.
//     That the newest ones are gone cannot be seen in a chain: object lock is
//     for that.
//  3. With trusted keys given, only verdicts that one of them signed count.
//  4. The newest word wins: a backup that was found damaged since is not proved
//     by what was said before.
//
// docs/format.md has every field.
package verdict

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
)

const (
	format = 1
	// Kind is the kind of a verdict's document.
	Kind = "verdict"
)

// Verdict is what one run of verify proved, or what it found. One with more
// subjects than an object has room for is written in parts.
type Verdict struct {
	Format int    `json:"format"`
	Kind   string `json:"kind"` // "verdict"
	// Repository is the ID in the marker: a verdict of another one is foreign.
	Repository string `json:"repository"`
	Sequence   uint64 `json:"sequence"` // from 1
	// Previous is over the bytes of the verdict before; zero for the first.
	Previous Sum `json:"previous"`
	// ID is random: two runs that found the same are two verdicts.
	ID    string `json:"id"`
	Part  int    `json:"part,omitempty"` // from 1, of Parts; both 0 for a whole one
	Parts int    `json:"parts,omitempty"`

	Tool     string    `json:"tool"` // "requorum 1.2.3"
	Host     string    `json:"host,omitempty"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// Rung is the highest one that was asked for.
	Rung     report.Rung    `json:"rung"`
	Sample   *report.Sample `json:"sample,omitempty"`
	Subjects []Subject      `json:"subjects"`
}

// Subject is what a verdict is about: a backup (Timeline and Backup), the
// archived log of a timeline (Timeline and Log), a timeline's descriptor
// (Timeline alone), or the documents of the repository itself (none).
type Subject struct {
	Timeline repository.TimelineID `json:"timeline,omitzero"`
	Backup   string                `json:"backup,omitempty"`
	Log      []Stretch             `json:"log,omitempty"`
	// Reached is the highest rung that was proved with all those before it;
	// empty where none was.
	Reached report.Rung   `json:"reached,omitempty"`
	Status  report.Status `json:"status"`
	// Objects are those that were read whole.
	Objects  []Object         `json:"objects,omitempty"`
	Findings []report.Finding `json:"findings,omitempty"`
	// MoreFindings is how many there were beyond those that are kept.
	MoreFindings int `json:"more_findings,omitempty"`
	// Unchecked are the reasons why something could not be checked.
	Unchecked []string       `json:"unchecked,omitempty"`
	Phases    []report.Phase `json:"phases,omitempty"`
}

// Stretch is a part of an archived log without a gap.
type Stretch struct {
	First uint64 `json:"first_index"`
	Last  uint64 `json:"last_index"`
	// After is the chain's value at Last: it binds every entry back to the
	// chain's anchor, however the log is cut and merged later.
	After   raftlog.Sum `json:"after"`
	Objects int         `json:"objects"` // segments that were read
	Bytes   int64       `json:"bytes"`   // of these, as stored
}

// Object is a stored object that was seen.
type Object struct {
	Name         string `json:"name"`
	StoredSize   int64  `json:"stored_size"`
	StoredSHA256 string `json:"stored_sha256"`
}

// Sum is a SHA-256; as text it is 64 hexadecimal digits.
type Sum [sha256.Size]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText writes the 64 digits.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Sum) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(s) {
		return fmt.Errorf("%q is not a SHA-256: want %d hexadecimal digits", text, 2*len(s))
	}
	if _, err := hex.Decode(s[:], text); err != nil {
		return fmt.Errorf("%q is not a SHA-256: %w", text, err)
	}
	return nil
}
