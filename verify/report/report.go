package report

import "time"

// Report is what one run of verify found.
type Report struct {
	// Target is what was asked about: a repository, or a path.
	Target string `json:"target"`
	// Rung is the highest one that was asked for.
	Rung     Rung      `json:"rung"`
	Tool     string    `json:"tool"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// Sample is set where only a part was read.
	Sample *Sample `json:"sample,omitempty"`
	Checks []Check `json:"checks"`
	// Notes are sentences for the user.
	Notes []string `json:"notes,omitempty"`
}

// Sample says how much of a repository was read.
type Sample struct {
	// Percent that was asked for, of the bytes.
	Percent float64 `json:"percent"`
	// Seed chose the objects; the same one chooses the same.
	Seed uint64 `json:"seed"`
	// Objects and Bytes that were read whole, of how many.
	Objects      int   `json:"objects"`
	ObjectsTotal int   `json:"objects_total"`
	Bytes        int64 `json:"bytes"`
	BytesTotal   int64 `json:"bytes_total"`
	// Coverage says in a sentence what a run like this finds, and how often.
	Coverage string `json:"coverage"`
}

// Status is the worst of all checks: damage counts before what could not be
// checked. A report without checks has proved nothing and is Unchecked.
func (r *Report) Status() Status {
	worst := Passed
	for _, c := range r.Checks {
		switch c.Status {
		case Damaged:
			return Damaged
		case Passed:
		default: // a status that is not known proves nothing
			worst = Unchecked
		}
	}
	if len(r.Checks) == 0 {
		return Unchecked
	}
	return worst
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
