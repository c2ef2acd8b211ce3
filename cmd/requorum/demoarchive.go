package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay/archive"
)

// demoInterval is how often a segment is stored: as often as a person blinks.
const demoInterval = 250 * time.Millisecond

// demoArchivers are what 'requorum archive' runs, one beside each member.
type demoArchivers struct {
	all   []*archive.Archiver
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu  sync.Mutex
	err error
}

// startArchivers begins to archive the log of every member.
func (d *demo) startArchivers(ctx context.Context, members []*store.Member, endpoints []string) (*demoArchivers, error) {
	ctx, cancel := context.WithCancel(ctx)
	a := &demoArchivers{stop: cancel}
	for _, m := range members {
		if err := a.start(ctx, d, m, endpoints); err != nil {
			return nil, errors.Join(err, a.end())
		}
	}
	return a, nil
}

func (a *demoArchivers) start(ctx context.Context, d *demo, m *store.Member, endpoints []string) error {
	client, err := store.Dial(ctx, store.ClientConfig{Endpoints: endpoints, Logger: d.logger()})
	if err != nil {
		return err
	}
	sink, err := disk.New(filepath.Join(d.dir, "repository"))
	if err != nil {
		return errors.Join(err, client.Close())
	}
	one, err := archive.New(archive.Config{
		Client: client, DataDir: m.Config().DataDir, Sink: sink, Tool: "requorum " + version,
		SpoolDir: filepath.Join(d.dir, "spool", m.Config().Name), Interval: demoInterval, Logger: d.archiverLogger(),
	})
	if err != nil {
		return errors.Join(err, client.Close(), sink.Close())
	}
	a.all = append(a.all, one)
	a.ended.Go(func() {
		err := errors.Join(one.Run(ctx), client.Close(), sink.Close())
		a.mu.Lock()
		defer a.mu.Unlock()
		a.err = errors.Join(a.err, err)
	})
	return nil
}

// archiverLogger is nil unless more is asked for: that members do not answer once
// they are destroyed is part of the story.
func (d *demo) archiverLogger() *slog.Logger {
	if d.verbose {
		return d.logger()
	}
	return nil
}

// end stops all of them, as SIGTERM would.
func (a *demoArchivers) end() error {
	a.stop()
	a.ended.Wait()
	return a.err
}

// archived is the last entry that any of them knows to be in the repository.
func (a *demoArchivers) archived() (index uint64) {
	for _, one := range a.all {
		index = max(index, one.State().Archived)
	}
	return index
}

// await waits until the log is archived up to an index.
func (a *demoArchivers) await(ctx context.Context, index uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for a.archived() < index {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the log is archived up to index %d only: %s", a.archived(), a.all[0].State())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
