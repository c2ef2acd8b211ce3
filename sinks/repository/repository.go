package repository

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/signing"
)

// ErrNoRepository says that there is no repository at the URL.
var ErrNoRepository = errors.New("no repository there")

// Repository is a sink with the layout of this package in it.
type Repository struct {
	sink   sinks.Sink
	keys   signing.Keys
	marker Marker
	damage error

	mu       sync.Mutex
	own      map[string]bool  // documents that a listing found to be signed by who is trusted, by name
	unusable map[string]error // what was met that is passed over; at most maxUnusable
}

// Marker says that a prefix is a repository, and of which format.
type Marker struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"` // random, so that a moved or copied repository is recognised
	Created time.Time `json:"created"`
}

// Open opens the repository in s. It fails with ErrNoRepository where there is
// none, and refuses formats that are newer than this code by name. A marker
// that is damaged, or gone while backups are there, does not keep anybody from
// them: Damage says so. The caller goes on owning s.
func Open(ctx context.Context, s sinks.Sink) (*Repository, error) {
	r := &Repository{sink: s, keys: KeysOf(s), own: map[string]bool{}, unusable: map[string]error{}}
	// It is believed whoever signed it: it says nothing but the ID, which every other
	// signature names.
	data, err := r.ReadBytes(ctx, MarkerName)
	if err == nil {
		if err = Unseal(data, &r.marker); err != nil {
			err = fmt.Errorf("%s in %s: %w", MarkerName, s, err)
		}
	}
	switch {
	case errors.Is(err, sinks.ErrNotFound):
		ids, _, errIDs := r.ListTimelines(ctx)
		if errIDs != nil {
			return nil, errIDs
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("%s: %w: %s is missing; check the URL, or make a first backup to it", s, ErrNoRepository, MarkerName)
		}
		// Somebody may have made it since: the marker comes before all else.
		if _, err := s.Stat(ctx, MarkerName); err == nil {
			return Open(ctx, s)
		}
		r.damage = fmt.Errorf("%s is missing in %s, although backups are there", MarkerName, s)
		return r, r.mayTrust()
	case errors.Is(err, ErrAltered):
		r.damage = err
		r.marker = Marker{}
		return r, r.mayTrust()
	case err != nil:
		return nil, err
	case r.marker.Format != Format:
		return nil, fmt.Errorf("%s is a repository of format %d, by %s; this version of requorum reads format %d: use a newer one, or put %[3]s back from a copy where somebody replaced it", s, r.marker.Format, MarkerName, Format)
	}
	return r, nil
}

// Init opens the repository in s, and makes one where there is none yet. Of
// several that do so at once all open the same.
func Init(ctx context.Context, s sinks.Sink, now time.Time) (*Repository, error) {
	r, err := Open(ctx, s)
	lost := err == nil && r.damage != nil && !errors.Is(r.damage, ErrAltered)
	if !errors.Is(err, ErrNoRepository) && !lost {
		return r, err
	}
	if lost && r.keys.Signer != nil {
		return nil, fmt.Errorf("%w: with a new one, what was signed for the old one would be nobody's: put it back from a copy of the repository, or use another place", r.damage)
	}
	var id [16]byte
	rand.Read(id[:]) // never fails, by its documentation
	m := Marker{Format: Format, ID: hex.EncodeToString(id[:]), Created: now.UTC().Truncate(time.Second)}
	err = (&Repository{sink: s, keys: KeysOf(s), marker: m}).WriteDocument(ctx, MarkerName, m)
	if err != nil && !errors.Is(err, sinks.ErrExists) {
		return nil, fmt.Errorf("make a repository: %w", err)
	}
	made, err := Open(ctx, s)
	if err == nil && lost {
		made.damage = fmt.Errorf("%w; a new one was written", r.damage)
	}
	return made, err
}

// GoneError reports that a repository which was used before is not in its place.
type GoneError struct{ place, cause string }

func (e *GoneError) Error() string { return e.place + ": " + e.cause }

// Cause is the error without the place.
func (e *GoneError) Cause() string { return e.cause }

// OpenKnown opens the repository in s that was used before, and has that ID if it is not
// empty. Unlike Init it makes none: an unmounted file system looks like an empty place. The
// error is a *GoneError if there is none, or another one.
func OpenKnown(ctx context.Context, s sinks.Sink, id string) (*Repository, error) {
	r, err := Open(ctx, s)
	switch {
	case errors.Is(err, ErrNoRepository):
		return nil, &GoneError{s.String(), MarkerName + " and all backups are missing"}
	case err != nil:
		return nil, err
	case r.ID() == "": // the marker is damaged or missing
		r.marker.ID = id
	case id != "" && r.ID() != id:
		return nil, &GoneError{s.String(), fmt.Sprintf("another repository (%s) is in its place (%s)", r.ID(), id)}
	}
	return r, nil
}

// Damage says what is wrong with the repository's marker; nil when it is
// whole. The backups are not affected.
func (r *Repository) Damage() error { return r.damage }

// Sink is where the repository's objects are.
func (r *Repository) Sink() sinks.Sink { return r.sink }

// ID is the repository's own, the same wherever it is copied to.
func (r *Repository) ID() string { return r.marker.ID }

// Created is when it was made, by the clock of who made it; zero where the marker
// is damaged.
func (r *Repository) Created() time.Time { return r.marker.Created }

// String is the repository's URL, without secrets.
func (r *Repository) String() string { return r.sink.String() }

// ReadDocument reads the document called name into v. It fails with ErrAltered
// where it isn't as it was written, with ErrUnsigned where no trusted key signed
// it, and with sinks.ErrNotFound where there is none.
func (r *Repository) ReadDocument(ctx context.Context, name string, v any) error {
	_, err := r.ReadSealed(ctx, name, v)
	return err
}

// ReadSealed is ReadDocument, and returns the bytes of the object as well: all of
// them, with what this version knows no field for.
func (r *Repository) ReadSealed(ctx context.Context, name string, v any) ([]byte, error) {
	data, err := r.ReadBytes(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := r.Unseal(name, data, v); err != nil {
		return nil, err
	}
	return data, nil
}

// ReadBytes reads a document's bytes, as they are. One that is larger than a
// document can be is ErrAltered, and is not read to its end.
func (r *Repository) ReadBytes(ctx context.Context, name string) ([]byte, error) {
	data, err := sinks.Get(ctx, r.sink, name, DocumentLimit)
	if errors.Is(err, sinks.ErrTooLarge) {
		return nil, r.PassOver(name, fmt.Errorf("%w: %w", ErrAltered, err))
	}
	return data, err
}

// WriteDocument writes v as the document called name, locked where the sink is
// configured to lock and Locked says so, and signed where there is a key.
func (r *Repository) WriteDocument(ctx context.Context, name string, v any) error {
	data, err := r.Seal(name, v)
	if err != nil {
		return fmt.Errorf("write %s in %s: %w", name, r, err)
	}
	_, err = sinks.Put(ctx, r.sink, name, data, sinks.CreateOptions{Lock: Locked(name), ContentType: "application/json"})
	return err
}

// Full is what names alone say of a full snapshot.
type Full struct {
	Timeline TimelineID
	ID       string
	// Complete says that there is a manifest, without which it is not a
	// backup but what an interrupted run left.
	Complete bool
	Objects  []sinks.Object
	// More is how many objects are there beside those in Objects: no backup has as
	// many.
	More int
}

// Fulls lists the full snapshots of one timeline, ordered by ID, and what
// interrupted ones left behind: MaxBackups of them at most, see Budget.
func (r *Repository) Fulls(ctx context.Context, t TimelineID) ([]Full, error) {
	all, _, err := r.SomeFulls(ctx, []TimelineID{t})
	return all, err
}

// SomeFulls are those of several timelines, in the order of these, and how many each
// timeline has.
func (r *Repository) SomeFulls(ctx context.Context, timelines []TimelineID) (all []Full, listed map[TimelineID]int, err error) {
	of := func(each func(context.Context, TimelineID) iter.Seq2[Full, error]) iter.Seq2[Full, error] {
		return func(yield func(Full, error) bool) {
			listed = map[TimelineID]int{}
			for _, t := range timelines {
				for f, err := range each(ctx, t) {
					if listed[t]++; !yield(f, err) {
						return
					}
				}
			}
		}
	}
	all, _, err = Some(r, MaxBackups, MaxBytes, of(r.eachFull), of(r.eachOwnFull), func(f Full) (int64, time.Time) { return f.documentSize(), f.stored() })
	return all, listed, err
}

// NewestFulls are the n last of the full snapshots of a timeline by ID, of those that
// have a manifest which is not unsigned.
func (r *Repository) NewestFulls(ctx context.Context, t TimelineID, n int) ([]Full, error) {
	all, err := r.Fulls(ctx, t)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(f Full) bool { return !f.Complete })
	var newest []Full
	for len(all) > 0 && len(newest) < n {
		from := max(0, len(all)-n)
		own, err := dropUnsigned(ctx, r, all[from:], func(f Full) string { return ManifestName(f.Timeline, f.ID) })
		if err != nil {
			return nil, err
		}
		all, newest = all[:from], slices.Concat(own, newest)
	}
	return newest[max(0, len(newest)-n):], nil
}

// eachOwnFull are those alone that have a manifest which is not unsigned. It reads all
// manifests.
func (r *Repository) eachOwnFull(ctx context.Context, t TimelineID) iter.Seq2[Full, error] {
	complete := func(yield func(Full, error) bool) {
		for f, err := range r.eachFull(ctx, t) {
			if (err != nil || f.Complete) && !yield(f, err) {
				return
			}
		}
	}
	return Own(ctx, r, complete, func(f Full) string { return ManifestName(f.Timeline, f.ID) })
}

// eachFull lists the full snapshots of one timeline.
func (r *Repository) eachFull(ctx context.Context, t TimelineID) iter.Seq2[Full, error] {
	return func(yield func(Full, error) bool) {
		prefix := t.String() + fullFolder
		var one *Full
		for obj, err := range r.sink.List(ctx, prefix, "") {
			if err != nil {
				yield(Full{}, fmt.Errorf("list the full snapshots of timeline %s in %s: %w", t, r, err))
				return
			}
			id, base, ok := strings.Cut(strings.TrimPrefix(obj.Name, prefix), "/")
			if !ok || ValidBackupID(id) != nil {
				continue
			}
			if one != nil && one.ID != id {
				if !yield(*one, nil) {
					return
				}
				one = nil
			}
			if one == nil {
				one = &Full{Timeline: t, ID: id}
			}
			one.add(obj, base == manifestBase)
		}
		if one != nil {
			yield(*one, nil)
		}
	}
}

// add takes one of its objects.
func (f *Full) add(obj sinks.Object, manifest bool) {
	f.Complete = f.Complete || manifest
	if len(f.Objects) < maxObjects || manifest {
		f.Objects = append(f.Objects, obj)
	} else {
		f.More++
	}
}

// manifest is the manifest's object, or else the first one.
func (f *Full) manifest() sinks.Object {
	for _, o := range f.Objects {
		if o.Name == ManifestName(f.Timeline, f.ID) {
			return o
		}
	}
	return f.Objects[0]
}

// stored is since when it exists.
func (f *Full) stored() time.Time { return f.manifest().ModTime }

// documentSize is what of it is read into memory: nothing where it has no manifest,
// or one that is refused for its size.
func (f *Full) documentSize() int64 {
	if m := f.manifest(); f.Complete && m.Size <= DocumentLimit {
		return m.Size
	}
	return 0
}
