package repository

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
)

const pinsPrefix = "pins/"

// Pin says that a backup is to be kept whatever the retention says. It is never
// locked, so that it can be taken away again.
type Pin struct {
	Format   int        `json:"format"`
	Timeline TimelineID `json:"timeline"`
	Backup   string     `json:"backup"`
	Reason   string     `json:"reason,omitempty"` // in words; for people
	By       string     `json:"by,omitempty"`     // the host where it was pinned
	Created  time.Time  `json:"created"`          // by that one's clock
}

// PinName is the name of a backup's pin.
func PinName(t TimelineID, backup string) string {
	return pinsPrefix + t.String() + "/" + backup + documentSuffix
}

// ParsePinName reads what PinName wrote.
func ParsePinName(name string) (t TimelineID, backup string, err error) {
	folder, base, _ := strings.Cut(strings.TrimPrefix(name, pinsPrefix), "/")
	backup = strings.TrimSuffix(base, documentSuffix)
	t, err = ParseTimelineID(folder)
	// The round trip refuses every second spelling of a name.
	if err != nil || ValidBackupID(backup) != nil || PinName(t, backup) != name {
		return TimelineID{}, "", fmt.Errorf("%q is not the name of a pin", name)
	}
	return t, backup, nil
}

// WritePin pins a backup. Where it is pinned already the error is
// sinks.ErrExists, and ReadPin tells by whom and why.
func (r *Repository) WritePin(ctx context.Context, p Pin) error {
	if err := ValidBackupID(p.Backup); err != nil {
		return err
	}
	p.Format = Format
	return r.writeUnlocked(ctx, PinName(p.Timeline, p.Backup), p)
}

// RemovePin takes a backup's pin away. One that is not there is no error.
func (r *Repository) RemovePin(ctx context.Context, t TimelineID, backup string) error {
	if err := ValidBackupID(backup); err != nil {
		return err
	}
	return r.sink.Delete(ctx, PinName(t, backup))
}

// ReadPin reads the pin called name. Damage, and a pin of another backup, is
// ErrAltered: in doubt the backup that the name tells is pinned.
func (r *Repository) ReadPin(ctx context.Context, name string) (Pin, error) {
	var p Pin
	if err := r.ReadDocument(ctx, name, &p); err != nil {
		return Pin{}, err
	}
	if err := r.belongs(name, p.Format, PinName(p.Timeline, p.Backup) == name, fmt.Sprintf("about backup %s of timeline %s", p.Backup, p.Timeline)); err != nil {
		return Pin{}, err
	}
	return p, nil
}

// PinNames lists the pins. Objects with other names are passed over.
func (r *Repository) PinNames(ctx context.Context) ([]string, error) {
	return r.namesBelow(ctx, pinsPrefix, "pins", func(name string) bool {
		_, _, err := ParsePinName(name)
		return err == nil
	})
}

// Pins reads all pins. One that is damaged is there with its place and the
// damage as its reason, since its backup counts as pinned.
func (r *Repository) Pins(ctx context.Context) ([]Pin, error) {
	names, err := r.PinNames(ctx)
	if err != nil {
		return nil, err
	}
	var all []Pin
	for _, name := range names {
		p, err := r.ReadPin(ctx, name)
		switch {
		case errors.Is(err, sinks.ErrNotFound): // taken away since
			continue
		case errors.Is(err, ErrAltered):
			p.Reason = "the pin is damaged: " + err.Error()
			if p.Timeline, p.Backup, err = ParsePinName(name); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
