package walreplay

import (
	"context"
	"io"

	"github.com/requorum/requorum/snapshot"
)

// Rebuilt is the database at a point. It is a snapshot.Image; where nothing had
// to be replayed it is the base's own. Close removes it.
type Rebuilt struct {
	// Recipe is nil where nothing was replayed.
	Recipe *Recipe
	// Base is what was begun from.
	Base *Base
	// Phases are how long it took; none where nothing was replayed.
	Phases []PhaseTime
	// Stamps are the live hashes that it was compared with.
	Stamps Stamps

	image   snapshot.Image
	name    string
	facts   snapshot.Facts
	scratch *scratch
}

// Name tells the base and the point.
func (r *Rebuilt) Name() string { return r.name }

// Size is the database's, in bytes.
func (r *Rebuilt) Size() int64 { return r.image.Size() }

// Open reads the database.
func (r *Rebuilt) Open(ctx context.Context) (io.ReadCloser, error) { return r.image.Open(ctx) }

// Facts are what the database says.
func (r *Rebuilt) Facts(context.Context) (snapshot.Facts, error) { return r.facts, nil }

// DatabaseSHA256 is the base's own where nothing was replayed, and empty
// otherwise: two replays may write different pages.
func (r *Rebuilt) DatabaseSHA256() string {
	if s, ok := r.image.(interface{ DatabaseSHA256() string }); ok {
		return s.DatabaseSHA256()
	}
	return ""
}

// HasHash tells whether every byte that it was made from had a checksum.
func (r *Rebuilt) HasHash() bool {
	if r.Recipe != nil && r.Recipe.DataDir == "" && r.Recipe.Image == "" {
		return true
	}
	if s, ok := r.image.(interface{ HasHash() bool }); ok {
		return s.HasHash()
	}
	return r.DatabaseSHA256() != ""
}

// ReplayRecipe is Recipe, for those that only know an image.
func (r *Rebuilt) ReplayRecipe() *Recipe { return r.Recipe }

// Path is the rebuilt database's file, until Close; empty where nothing was
// replayed.
func (r *Rebuilt) Path() string {
	if r.scratch == nil {
		return ""
	}
	return r.scratch.database()
}

// Close removes the scratch folder. The image cannot be read any more then.
func (r *Rebuilt) Close() error {
	if r.scratch == nil {
		return nil
	}
	s := r.scratch
	r.scratch = nil
	return s.remove()
}
