package journal

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/requorum/requorum/snapshot"
)

// Built is a rebuild of the member.
type Built struct {
	Run  string `json:"-"` // the entry's
	Plan string `json:"plan"`
	// Old is the cluster that was lost, and New the one that goes on in its place.
	Old snapshot.ID `json:"old_cluster_id"`
	New snapshot.ID `json:"new_cluster_id"`
	// Result is what the rebuild gave, or, while it is not Done, what is known of it
	// by then.
	Result json.RawMessage `json:"result,omitempty"`
	Done   bool            `json:"-"`
	At     time.Time       `json:"-"` // when the entry was written
}

// build keeps one rebuild for each run: a later plan of the run takes the place of
// an earlier one.
func (j *Journal) build(e Entry) {
	b := *e.Built
	b.Run, b.Done, b.At = e.Run, e.Step == Superseded, e.Time
	j.built = append(slices.DeleteFunc(j.built, func(o Built) bool { return o.Run == e.Run }), b)
	if b.Done {
		j.taken = slices.DeleteFunc(j.taken, func(o Built) bool { return o.Old == b.Old && o.New == b.New })
	}
}

// takeBack forgets what a run built, whose set-aside was undone.
func (j *Journal) takeBack(run string) {
	for _, b := range j.built {
		if b.Run == run && b.Done {
			j.taken = append(j.taken, b)
		}
	}
	j.built = slices.DeleteFunc(j.built, func(b Built) bool { return b.Run == run })
}

// Built is what a run built, or began to; nil where it did not, or it was undone.
func (j *Journal) Built(run string) *Built {
	return j.find(func(b Built) bool { return b.Run == run })
}

// Newest is the last rebuild that came to its end and was not undone; nil where there
// is none.
func (j *Journal) Newest() *Built {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range slices.Backward(j.built) {
		if b.Done {
			return &b
		}
	}
	return nil
}

// Superseding is the rebuild that put another cluster in the place of this one;
// nil where none did that was not undone.
func (j *Journal) Superseding(cluster snapshot.ID) *Built {
	return j.find(func(b Built) bool { return b.Done && b.Old == cluster })
}

func (j *Journal) find(match func(Built) bool) *Built {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.IndexFunc(j.built, match); i >= 0 {
		b := j.built[i]
		return &b
	}
	return nil
}

// TakenBack are the clusters that were built in the place of this one, and whose
// rebuild was undone here.
func (j *Journal) TakenBack(cluster snapshot.ID) (by []snapshot.ID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range j.taken {
		if b.Old == cluster {
			by = append(by, b.New)
		}
	}
	return by
}
