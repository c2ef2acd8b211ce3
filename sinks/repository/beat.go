package repository

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
)

const (
	beatInfix  = "beat-"
	beatDigits = 8
)

// Beat says that the holder of an attempt was still at it. A beat is written
// once, beside the claims; the newest number is what observers look at.
type Beat struct {
	Format  int       `json:"format"`
	Job     string    `json:"job"`
	Slot    string    `json:"slot"`
	Attempt int       `json:"attempt"`
	Number  int       `json:"number"` // from 1
	Phase   string    `json:"phase,omitempty"`
	Done    int64     `json:"done,omitempty"`
	Total   int64     `json:"total,omitempty"`
	Created time.Time `json:"created"` // by the holder's clock; nothing depends on it
}

// BeatName is the name of a beat.
func BeatName(job, slot string, attempt, number int) string {
	return fmt.Sprintf("%s%s/%s/%s%d-%0*d%s", claimsPrefix, job, slot, beatInfix, attempt, beatDigits, number, documentSuffix)
}

// ParseBeatName reads what BeatName wrote.
func ParseBeatName(name string) (job, slot string, attempt, number int, err error) {
	rest, _ := strings.CutPrefix(name, claimsPrefix)
	job, rest, _ = strings.Cut(rest, "/")
	slot, rest, _ = strings.Cut(rest, "/")
	a, n, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(rest, beatInfix), documentSuffix), "-")
	attempt, errA := strconv.Atoi(a)
	number, errN := strconv.Atoi(n)
	// The round trip refuses every second spelling of a name.
	if errA != nil || errN != nil || attempt < 1 || number < 1 || BeatName(job, slot, attempt, number) != name {
		return "", "", 0, 0, fmt.Errorf("%q is not the name of a beat", name)
	}
	return job, slot, attempt, number, nil
}

// WriteBeat writes a beat. It fails with sinks.ErrExists where it is there.
func (r *Repository) WriteBeat(ctx context.Context, b Beat) error {
	b.Format = Format
	return r.writeUnlocked(ctx, BeatName(b.Job, b.Slot, b.Attempt, b.Number), b)
}

// writeUnlocked is WriteDocument for what may go again: what is of no use once its job
// is done, and pins.
func (r *Repository) writeUnlocked(ctx context.Context, name string, v any) error {
	data, err := Seal(v)
	if err != nil {
		return err
	}
	_, err = sinks.Put(ctx, r.sink, name, data, sinks.CreateOptions{ContentType: "application/json"})
	return err
}
