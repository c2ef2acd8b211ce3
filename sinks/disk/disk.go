// Package disk keeps objects as files below one folder.
//
// It keeps the promises of package sinks so:
//
//  1. An object is written to a file without a name (Linux O_TMPFILE), which
//     the kernel forgets when the process ends, however it ends. Where the file
//     system has no such files it is written below ".tmp" and locked; what a
//     dead process left there is swept by the next Create.
//  2. The file gets its name by link(2), which fails when the name is taken.
//  3. Commit syncs the file, then its folder and every folder above it up to
//     the root.
//
// A root that a Sink has seen is not made again: should it vanish, or something
// else stand in its place, as when its file system is unmounted, every call
// fails with a temporary error until it is back.
//
// Files are 0600, folders 0700. Nothing is written through a symbolic link that
// leads out of the root. What in the root is not a file with a valid name is
// not an object: it is left alone and not listed.
//
// Objects are written on unix systems; elsewhere they can only be read.
package disk

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/requorum/requorum/sinks"
)

// Sink is a folder that holds objects. It keeps no connections and no open
// files between calls.
type Sink struct {
	path string

	// seen is the root as it was first opened, under mu.
	mu   sync.Mutex
	seen seen

	// anchored says that the root's own name was synced by this Sink.
	anchored atomic.Bool
	// named turns unnamed files off: tests run both ways on one file system.
	named bool
	// sync is (*os.File).Sync, except in tests of what follows when it fails.
	sync func(*os.File) error
}

var _ sinks.Sink = (*Sink)(nil)

// New returns the sink in the folder root, which need not exist: the first
// object that is written makes it. New itself does not look at the disk.
func New(root string) (*Sink, error) {
	if root == "" {
		return nil, errors.New("a disk sink needs the path of a folder")
	}
	path, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	return &Sink{path: path, sync: (*os.File).Sync}, nil
}

// String implements sinks.Sink.
func (s *Sink) String() string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(s.path)}).String()
}

// Close implements sinks.Sink; there is nothing to release.
func (s *Sink) Close() error { return nil }

// Abilities implements sinks.Sink. Exclusive creation is what link(2) is.
// Checksums is false: a file system takes any bytes, and only reading back
// tells what it kept. Nothing travels on the way there, so that is no reason
// for a note: notes speak where objects lie in memory, or where folders cannot
// be synced.
func (s *Sink) Abilities(ctx context.Context) (sinks.Abilities, error) {
	if err := ctx.Err(); err != nil {
		return sinks.Abilities{}, s.failed("probe", "", err)
	}
	notes, err := s.notes()
	if err != nil {
		return sinks.Abilities{}, s.failed("probe", "", err)
	}
	return sinks.Abilities{ExclusiveCreate: true, Notes: notes}, nil
}
