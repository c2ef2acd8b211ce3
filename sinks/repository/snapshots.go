package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks"
)

// Attempts are what is there of one backup that several may have attempted.
type Attempts struct {
	// Complete says that it has a manifest, which is not unsigned.
	Complete bool
	// Numbers are those of the attempts that left an object, in no order.
	Numbers []int
}

// Has reports whether an attempt left an object.
func (a Attempts) Has(attempt int) bool { return slices.Contains(a.Numbers, attempt) }

// Attempts lists what is there of one backup.
func (r *Repository) Attempts(ctx context.Context, t TimelineID, backup string) (a Attempts, err error) {
	for obj, err := range r.sink.List(ctx, t.String()+fullFolder+backup+"/", "") {
		if err != nil {
			return Attempts{}, fmt.Errorf("list what there is of backup %s in %s: %w", backup, r, err)
		}
		if obj.Name == ManifestName(t, backup) {
			if a.Complete, err = r.Counts(ctx, obj.Name); err != nil {
				return Attempts{}, err
			}
		}
		if _, _, n, _, err := ParseSnapshotName(obj.Name); err == nil {
			a.Numbers = append(a.Numbers, n)
		}
		if _, _, n, err := ParseAttachmentsName(obj.Name); err == nil {
			a.Numbers = append(a.Numbers, n)
		}
	}
	return a, nil
}

const pinsPrefix = "pins/"

// maxReason is how much of each pin's reason is held where all are read, in bytes.
const maxReason = 1 << 10

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
func PinName(t TimelineID, backup string) string { return backupName(pinsPrefix, t, backup) }

// ParsePinName reads what PinName wrote.
func ParsePinName(name string) (t TimelineID, backup string, err error) {
	return parseBackupName(name, pinsPrefix, "a pin")
}

// WritePin pins a backup. Where it is pinned already the error is
// sinks.ErrExists, and ReadPin says by whom and why.
func (r *Repository) WritePin(ctx context.Context, p Pin) error {
	if err := ValidBackupID(p.Backup); err != nil {
		return err
	}
	p.Format = Format
	return r.WriteDocument(ctx, PinName(p.Timeline, p.Backup), p)
}

// RemovePin takes a backup's pin away. One that is not there is no error.
func (r *Repository) RemovePin(ctx context.Context, t TimelineID, backup string) error {
	if err := ValidBackupID(backup); err != nil {
		return err
	}
	return r.sink.Delete(ctx, PinName(t, backup))
}

// ReadPin reads the pin called name. Damage, and a pin of another backup, is
// ErrAltered: in doubt the backup in the name is pinned.
func (r *Repository) ReadPin(ctx context.Context, name string) (Pin, error) {
	return Read(ctx, r, name, func(p Pin) (int, bool, string) {
		return p.Format, PinName(p.Timeline, p.Backup) == name, fmt.Sprintf("about backup %s of timeline %s", p.Backup, p.Timeline)
	})
}

// PinNames lists the pins, unsigned ones among them: all that a pin does is to keep a
// backup. Objects with other names are passed over.
func (r *Repository) PinNames(ctx context.Context) ([]string, error) {
	return listNamed(ctx, r, pinsPrefix, "pins", func(name string) (string, error) {
		_, _, err := ParsePinName(name)
		return name, err
	})
}

// Pins reads all pins, by name. One that cannot be read, and those beyond MaxBackups, are there
// with their place and with that as their reason, since their backups count as pinned.
func (r *Repository) Pins(ctx context.Context) (map[string]*Pin, error) {
	names, err := r.PinNames(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]*Pin{}
	for i, name := range names {
		var p Pin
		err := fmt.Errorf("%w: more than %d pins", ErrAltered, MaxBackups)
		if i < MaxBackups {
			p, err = r.ReadPin(ctx, name)
		}
		p.Reason = strings.Clone(strings.ToValidUTF8(p.Reason[:min(len(p.Reason), maxReason)], ""))
		switch {
		case errors.Is(err, sinks.ErrNotFound): // taken away since
			continue
		case errors.Is(err, ErrAltered), errors.Is(err, ErrNewerFormat):
			p.Reason = "the pin cannot be read: " + err.Error()
			if p.Timeline, p.Backup, err = ParsePinName(name); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		}
		all[name] = &p
	}
	return all, nil
}
