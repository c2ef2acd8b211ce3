package restore

import (
	"context"
	"fmt"

	"github.com/requorum/requorum/snapshot"
)

// Source is the image that a plan was made for.
type Source struct {
	Name       string `json:"name"`
	Repository string `json:"repository,omitempty"`
	BackupID   string `json:"backup_id,omitempty"`
	Size       int64  `json:"size"` // of the database, in bytes
	// DatabaseSHA256 is the sum over the database's bytes; empty where the
	// image has none (a bare db file).
	DatabaseSHA256 string `json:"database_sha256,omitempty"`
	// Summed says that reading the image compares a sum of all its bytes. A bare
	// db file has none; its structure is checked instead.
	Summed bool           `json:"summed"`
	Facts  snapshot.Facts `json:"facts"`
}

// hashed is an Image that knows the SHA-256 of its database and whose Open
// compares it, so that it need not be computed twice.
type hashed interface {
	// DatabaseSHA256 is in hexadecimal, empty when it is not known.
	DatabaseSHA256() string
}

func sourceOf(image snapshot.Image, repository, backupID string, facts snapshot.Facts) Source {
	s := Source{Name: image.Name(), Repository: repository, BackupID: backupID, Size: image.Size(), Facts: facts}
	if h, ok := image.(hashed); ok {
		s.DatabaseSHA256 = h.DatabaseSHA256()
	}
	trailer, ok := image.(interface{ HasHash() bool })
	s.Summed = s.DatabaseSHA256 != "" || ok && trailer.HasHash()
	return s
}

// check refuses an image that is not the one that was planned for.
func (s Source) check(ctx context.Context, image snapshot.Image, plan string) error {
	facts, err := image.Facts(ctx)
	if err != nil {
		return fmt.Errorf("restore: look into %s: %w", image.Name(), err)
	}
	differ := func(what string, has, want any) error {
		return fmt.Errorf("restore: %w: the %s of %s is %v, plan %s was made for %v of %s: make a new plan, or name the planned backup",
			ErrOtherImage, what, image.Name(), has, plan, want, s.Name)
	}
	if h, ok := image.(hashed); ok && h.DatabaseSHA256() != "" && h.DatabaseSHA256() != s.DatabaseSHA256 && s.DatabaseSHA256 != "" {
		return differ("SHA-256", h.DatabaseSHA256(), s.DatabaseSHA256)
	}
	if image.Size() != s.Size {
		return differ("size", image.Size(), s.Size)
	}
	want := s.Facts
	if facts.Revision != want.Revision {
		return differ("revision", facts.Revision, want.Revision)
	}
	if facts.RaftIndex != want.RaftIndex || facts.RaftTerm != want.RaftTerm || facts.CompactedRevision != want.CompactedRevision || fmt.Sprint(facts.Alarms) != fmt.Sprint(want.Alarms) {
		return differ("content", "another one", "raft index "+fmt.Sprint(want.RaftIndex))
	}
	return nil
}
