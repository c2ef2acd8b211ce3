package rebuilding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"filippo.io/age"

	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// Repositories tries to read something of each piece in each repository of the
// configuration, with this host's own credentials and keys. It reads a manifest and the
// beginning of a snapshot, or one segment of a log, all repositories at once, and gives
// those up that take longer than some seconds.
func (b *Builder) Repositories(ctx context.Context, pieces []protocol.Stored) []protocol.Repository {
	return b.tryAll(ctx, func(ctx context.Context, repo *repository.Repository, identities []age.Identity) (lacks []protocol.Lack, err error) {
		for _, p := range pieces {
			if err := readSome(ctx, repo, p, identities); err != nil {
				lacks = append(lacks, protocol.Lack{Piece: p, Absent: errors.Is(err, sinks.ErrNotFound), Why: oneLine(err)})
			}
		}
		return lacks, nil
	})
}

// tryAll opens each repository of the configuration and tries something with it.
func (b *Builder) tryAll(ctx context.Context, try func(context.Context, *repository.Repository, []age.Identity) ([]protocol.Lack, error)) []protocol.Repository {
	type answer struct {
		i     int
		lacks []protocol.Lack
		err   error
	}
	late := fmt.Errorf("it gave no answer in %v", b.askFor)
	ctx, cancel := context.WithTimeoutCause(ctx, b.askFor, late)
	defer cancel()
	all := make([]protocol.Repository, len(b.config.Repositories))
	answers := make(chan answer, len(all))
	identities, identitiesErr := b.identities()
	for i, url := range b.config.Repositories {
		all[i] = protocol.Repository{URL: place.Name(url), Error: late.Error()}
		go func() {
			a := answer{i: i, err: identitiesErr}
			if a.err == nil {
				a.lacks, a.err = tryOne(ctx, url, identities, try)
			}
			answers <- a
		}()
	}
	for range all {
		select {
		case a := <-answers:
			if all[a.i].Error, all[a.i].Lacks = "", a.lacks; a.err != nil {
				all[a.i].Error = oneLine(because(ctx, a.err))
			}
		case <-ctx.Done(): // a folder of a dead mount hears of no deadline
			return all
		}
	}
	return all
}

func tryOne(ctx context.Context, url string, identities []age.Identity, try func(context.Context, *repository.Repository, []age.Identity) ([]protocol.Lack, error)) (lacks []protocol.Lack, err error) {
	o, err := open(ctx, url, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.meter.Close()) }()
	return try(ctx, o.Repository, identities)
}

// readSome reads as much of a piece as tells that it is there, and can be opened.
func readSome(ctx context.Context, repo *repository.Repository, p protocol.Stored, identities []age.Identity) error {
	if p.Backup == "" {
		return readSegment(ctx, repo, p.Timeline, identities)
	}
	m, err := snapshot.ReadManifest(ctx, repo, p.Timeline, p.Backup)
	if err != nil {
		return fmt.Errorf("backup %s of timeline %s: %w", p.Backup, p.Timeline, err)
	}
	if err := begin(ctx, repo, m, identities); err != nil {
		return fmt.Errorf("%s: %w", m.Object.Name, err)
	}
	return nil
}

// begin reads the beginning of a full snapshot, and opens it where it is encrypted.
func begin(ctx context.Context, repo *repository.Repository, m *snapshot.Manifest, identities []age.Identity) (err error) {
	in, err := repo.Sink().Open(ctx, m.Object.Name, 0, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if !m.Object.Encrypted() {
		_, err := io.ReadFull(in, make([]byte, 1))
		return err
	}
	r, err := codec.NewReader(ctx, in, m.Object.Encoding, identities...)
	if err != nil {
		return err
	}
	return r.Close()
}

// readSegment reads the newest segment of a log, of the small ones where there are some.
func readSegment(ctx context.Context, repo *repository.Repository, t repository.TimelineID, identities []age.Identity) error {
	all, err := repo.Segments(ctx, t)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("a log of timeline %s: %w", t, sinks.ErrNotFound)
	}
	newest := slices.MaxFunc(all, func(a, b repository.Segment) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(a.First, b.First))
	})
	_, _, err = segment.Read(ctx, repo.Sink(), newest.String(), identities...)
	return err
}

// readNewest reads as much of the newest full snapshot, and of the log of its timeline,
// as tells that a rebuild can: nothing where there is none.
func readNewest(ctx context.Context, repo *repository.Repository, identities []age.Identity) error {
	timelines, err := repo.TimelineIDs(ctx)
	if err != nil {
		return err
	}
	var newest protocol.Stored
	for _, t := range timelines {
		fulls, err := repo.Fulls(ctx, t)
		if err != nil {
			return err
		}
		for _, f := range fulls {
			if f.Complete && f.ID > newest.Backup {
				newest = protocol.Stored{Timeline: t, Backup: f.ID}
			}
		}
	}
	if newest.Backup == "" {
		return nil
	}
	if err := readSome(ctx, repo, newest, identities); err != nil {
		return err
	}
	err = readSegment(ctx, repo, newest.Timeline, identities)
	if errors.Is(err, sinks.ErrNotFound) {
		return nil
	}
	return err
}
