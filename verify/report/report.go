// Package report is what verify found: levels of proof, the checks that were
// done on each, and their findings. Its JSON form is stable; docs/json.md has it.
package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Report is what one run of verify found.
type Report struct {
	// Target is what was asked about: a repository, or a path.
	Target string `json:"target"`
	// Level is the highest one that was asked for.
	Level    Level     `json:"level"`
	Tool     string    `json:"tool"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	Checks   []Check   `json:"checks"`
	// Notes are sentences for the user.
	Notes []string `json:"notes,omitempty"`
}

// Status is the worst of all checks: damage counts before what could not be
// checked, and what cannot be checked yet does not count. A report without checks has proved nothing and is Unchecked.
func (r *Report) Status() Status {
	worst := Passed
	for _, c := range r.Checks {
		switch {
		case c.Status == Damaged:
			return Damaged
		case c.Status == Passed, c.Status == Unchecked && c.NotYet:
		default: // a status that is not known proves nothing
			worst = Unchecked
		}
	}
	if len(r.Checks) == 0 {
		return Unchecked
	}
	return worst
}

// NotYet are the checks up to a level that have nothing to compare with yet.
func (r *Report) NotYet(upTo Level) []Check {
	var all []Check
	for _, c := range r.Checks {
		if c.NotYet && upTo.Includes(c.Level) {
			all = append(all, c)
		}
	}
	return all
}

// Findings are all findings, each with its object.
func (r *Report) Findings() []Finding {
	var all []Finding
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			if f.Object == "" {
				f.Object = c.Object
			}
			all = append(all, f)
		}
	}
	return all
}

// Level is how much is proved. Each includes those before it.
type Level string

// The levels, from the least to the most.
const (
	// Checksum: every stored byte is what was stored, and nothing is missing.
	Checksum Level = "checksum"
	// Structure: the database is one that etcd could have written.
	Structure Level = "structure"
	// Replay: the snapshot is what the snapshot before it and the log give.
	Replay Level = "replay"
	// Drill: a cluster that was built from it served.
	Drill Level = "drill"
)

// Levels are all of them, in their order.
func Levels() []Level { return []Level{Checksum, Structure, Replay, Drill} }

// LevelNames are the names of all of them, in their order.
func LevelNames() []string {
	var names []string
	for _, r := range Levels() {
		names = append(names, string(r))
	}
	return names
}

// ParseLevel reads a level's name.
func ParseLevel(s string) (Level, error) {
	if slices.Contains(Levels(), Level(s)) {
		return Level(s), nil
	}
	return "", fmt.Errorf("no level %q: use one of %s", s, strings.Join(LevelNames(), ", "))
}

// Includes reports whether proving r means to prove other as well.
func (r Level) Includes(other Level) bool {
	return slices.Index(Levels(), other) <= slices.Index(Levels(), r) && slices.Contains(Levels(), other)
}

// Status is how a check ended.
type Status string

// What can come of a check. Damage and "could not be looked at" are never the
// same: the first says something about the backup, the second about today.
const (
	Passed    Status = "passed"
	Damaged   Status = "damaged"
	Unchecked Status = "unchecked"
)

// Check is one thing that was looked at on one level.
type Check struct {
	Level  Level  `json:"level"`
	Status Status `json:"status"`
	// Object is what was looked at: an object's name in the repository, a
	// backup ("TIMELINE/full/ID"), a part of a log ("TIMELINE/log"), or a path.
	Object string `json:"object"`
	// Compared says in a sentence what was compared with what.
	Compared string `json:"compared"`
	// Findings are all faults, in the order of their place; none unless the
	// status is Damaged.
	Findings []Finding `json:"findings,omitempty"`
	// Reason says why an Unchecked check could not be done, and the next step.
	Reason string `json:"reason,omitempty"`
	// NotYet says of an Unchecked check that nothing is there yet to compare with: it
	// is no failure, and proves nothing.
	NotYet bool `json:"not_yet,omitempty"`
	// NoBase says of an Unchecked replay that there is nothing to begin from, before the
	// first full snapshot of a timeline or behind a gap: the next one can be proved from this one.
	NoBase bool `json:"no_base,omitempty"`
	// Bytes that were read, and how long it took.
	Bytes int64         `json:"bytes,omitempty"`
	Took  time.Duration `json:"took_nanoseconds"`
	// Phases are the parts of a drill or of a replay: the measured RTO.
	Phases []Phase `json:"phases,omitempty"`
	// Manifest is the SHA-256 of a backup's manifest as it is stored: a verdict names it.
	Manifest string `json:"-"`
}

// Conclude sets the status by what was found and why the check could not be done: damage
// counts before the latter.
func (c *Check) Conclude() {
	switch {
	case len(c.Findings) > 0:
		c.Status = Damaged
	case c.Reason != "":
		c.Status = Unchecked
	default:
		c.Status = Passed
	}
}

// Phase is a part of a check that is worth a time of its own.
type Phase struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_nanoseconds"`
}

// Finding is one fault.
type Finding struct {
	// Kind is what sort of fault, for machines: see the Kind constants. It never
	// changes its meaning.
	Kind Kind `json:"kind"`
	// Object is the damaged object or file, where it is another one than the
	// check's.
	Object string `json:"object,omitempty"`
	// Where in it, for people: "page 17", "key \"/a\", revision 12", "index 99",
	// "byte 4096".
	Where string `json:"where,omitempty"`
	// Text says what is wrong, in a sentence.
	Text string `json:"text"`
}

// String is the finding in one line.
func (f Finding) String() string {
	s := f.Text
	if f.Where != "" {
		s = f.Where + ": " + s
	}
	if f.Object != "" {
		s = f.Object + ": " + s
	}
	return s
}

// AtByte is where a fault is, for people; empty where its offset is below 0, as the whole
// is meant then.
func AtByte(offset int64) string {
	if offset < 0 {
		return ""
	}
	return fmt.Sprintf("byte %d", offset)
}

// Kind is a sort of fault.
type Kind string

// The sorts of faults, by the level that finds them first.
const (
	// Checksum.
	KindMarker     Kind = "marker"      // the repository's marker is altered or gone
	KindTimeline   Kind = "timeline"    // a timeline's descriptor is altered or gone
	KindManifest   Kind = "manifest"    // a manifest is altered, moved or of another backup
	KindObject     Kind = "object"      // an object's bytes are not what was stored
	KindMissing    Kind = "missing"     // an object is gone
	KindSize       Kind = "size"        // an object is cut or grown
	KindSegment    Kind = "segment"     // a log segment is altered or moved
	KindFork       Kind = "fork"        // two segments hold different histories
	KindGap        Kind = "gap"         // entries that the repository claims are not there
	KindMark       Kind = "mark"        // a mark, gap record or superseded mark is altered
	KindVerdict    Kind = "verdict"     // a verdict is altered or was moved
	KindLogCut     Kind = "log-cut"     // the end of a member's log is missing
	KindLogCorrupt Kind = "log-corrupt" // a member's log is damaged in the middle

	// Structure.
	KindFacts      Kind = "facts"      // the manifest says otherwise than the database
	KindPage       Kind = "page"       // a page is broken, lost, or used twice
	KindBucket     Kind = "bucket"     // a bucket is missing or not one of etcd's
	KindRow        Kind = "row"        // a row cannot be decoded
	KindHistory    Kind = "history"    // a key's history is impossible
	KindLease      Kind = "lease"      // a key hangs on a lease that is not there, or a lease is impossible
	KindAuth       Kind = "auth"       // users and roles do not fit together
	KindMembership Kind = "membership" // members do not fit together
	KindMixed      Kind = "mixed"      // a member's database and its log are not of one history
	KindHash       Kind = "hash"       // HashKV is another one than it should be

	// Replay.
	KindDifference Kind = "difference" // the replayed database differs
	KindApply      Kind = "apply"      // the log cannot be applied

	// Drill.
	KindBoot  Kind = "boot"  // the cluster did not start or elect
	KindServe Kind = "serve" // it serves something else than the database holds
)

// Counted is a number with its noun.
func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Printable escapes what is no visible text, as Go's %q does. Names, keys and
// reasons come from whoever could write to the backup: a terminal or a CI's log
// would obey them, and a line break would make a line of its own of them.
func Printable(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x`)
			const digits = "0123456789abcdef"
			b.WriteByte(digits[s[0]>>4])
			b.WriteByte(digits[s[0]&0xf])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}
