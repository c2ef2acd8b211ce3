package rebuild

import (
	"path/filepath"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/walreplay/walfile"
)

// Need is a part of a survivor's data that a source is made of. Either Base or
// Log is set.
type Need struct {
	Owner string
	// Base needs the file member/snap/File.
	Base bool
	File string
	// Log needs the entries First to Last. The first is the one where the piece
	// meets what comes before it; a log that begins right behind that will do where
	// the database before it is the owner's own.
	Log         bool
	First, Last uint64
}

// Needed is what has to be at hand of survivors' data, in the order of its use.
// What is in repositories is not among it.
func Needed(s recovery.Source) []Need {
	var all []Need
	if s.Base.Path != "" {
		all = append(all, Need{Owner: s.Base.Owner, Base: true, File: filepath.Base(s.Base.Path)})
	}
	for _, piece := range withWitness(&s) {
		if _, archived := TimelineOf(piece.Owner); archived {
			continue
		}
		first := piece.First
		if first > 1 && first != s.Base.Index {
			first-- // where it meets what comes before
		}
		all = append(all, Need{Owner: piece.Owner, Log: true, First: first, Last: piece.Last})
	}
	return all
}

// Files are those of a log's files, given by name, that a log's need takes, in
// their order: from the one that holds First to the last there is, for later
// records overwrite earlier ones.
func (n Need) Files(names []string) []string {
	if !n.Log {
		return nil
	}
	return walfile.From(names, n.First)
}
