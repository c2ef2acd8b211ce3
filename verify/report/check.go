package report

import "time"

// Status is how a check ended.
type Status string

// What can come of a check. Damage and "could not be looked at" are never the
// same: the first says something about the backup, the second about today.
const (
	Passed    Status = "passed"
	Damaged   Status = "damaged"
	Unchecked Status = "unchecked"
)

// Check is one thing that was looked at on one rung.
type Check struct {
	Rung   Rung   `json:"rung"`
	Status Status `json:"status"`
	// Object is what was looked at: an object's name in the repository, a
	// backup ("TIMELINE/full/ID"), a stretch of a log ("TIMELINE/log"), or a path.
	Object string `json:"object"`
	// Compared says in a sentence what was compared with what.
	Compared string `json:"compared"`
	// Findings are all faults, in the order of their place; none unless the
	// status is Damaged.
	Findings []Finding `json:"findings,omitempty"`
	// Reason says why an Unchecked check could not be done, and the next step.
	Reason string `json:"reason,omitempty"`
	// Bytes that were read, and how long it took.
	Bytes int64         `json:"bytes,omitempty"`
	Took  time.Duration `json:"took_nanoseconds"`
	// Phases are the parts of a drill or of a replay: the measured RTO.
	Phases []Phase `json:"phases,omitempty"`
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
