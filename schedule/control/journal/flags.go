package journal

import (
	"slices"

	"github.com/requorum/requorum/schedule/control/flagfile"
)

// Flags is what a run did to the file that has etcd's flags.
type Flags struct {
	Run string `json:"-"` // the entry's
	// Path is the file, and Kept the one with its text from before the run.
	Path string `json:"path"`
	Kept string `json:"kept"`
	// Before and After are the SHA-256 of the old text and the new one.
	Before string `json:"before"`
	After  string `json:"after"`
	// Changes are all that the run changed.
	Changes []flagfile.Change `json:"changes"`
}

// flag keeps one entry for each run: the newest, of which an undo goes back to the
// first text.
func (j *Journal) flag(e Entry) {
	j.flags = slices.DeleteFunc(j.flags, func(f Flags) bool { return f.Run == e.Run })
	if e.Step == Flagging {
		f := *e.Flags
		f.Run = e.Run
		j.flags = append(j.flags, f)
	}
}

// Flags is what a run did, or began to; nil where it did not, or it was undone.
func (j *Journal) Flags(run string) *Flags {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.IndexFunc(j.flags, func(f Flags) bool { return f.Run == run }); i >= 0 {
		f := j.flags[i]
		return &f
	}
	return nil
}
