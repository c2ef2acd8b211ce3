package restore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
)

// Source is the image that a plan was made for.
type Source struct {
	Name       string `json:"name"`
	Repository string `json:"repository,omitempty"`
	BackupID   string `json:"backup_id,omitempty"`
	// Timeline is the one of that backup in the repository; zero for an image that
	// came from none.
	Timeline repository.TimelineID `json:"timeline,omitzero"`
	Size     int64                 `json:"size"` // of the database, in bytes
	// DatabaseSHA256 is the sum over the database's bytes; empty where the
	// image has none (a bare db file).
	DatabaseSHA256 string `json:"database_sha256,omitempty"`
	// Summed says that reading the image compares a sum of all its bytes. A bare
	// db file has none; its structure is checked instead.
	Summed bool           `json:"summed"`
	Facts  snapshot.Facts `json:"facts"`

	// Target is the point that was asked for, in the words of the command line;
	// empty where none was.
	Target string `json:"target,omitempty"`
	// Recipe is how the image was rebuilt from a backup and the log after it;
	// nil for an image that exists as it is. Every host rebuilds it, and Size is
	// that of the host that planned: pages may differ from host to host.
	Recipe *walreplay.Recipe `json:"recipe,omitempty"`
}

// replayed is an Image that was rebuilt by replaying a log. Its recipe is nil
// where nothing had to be replayed.
type replayed interface {
	ReplayRecipe() *walreplay.Recipe
}

func recipeOf(image snapshot.Image) *walreplay.Recipe {
	if r, ok := image.(replayed); ok {
		return r.ReplayRecipe()
	}
	return nil
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
	s.Recipe = recipeOf(image)
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
	if s.Recipe == nil && image.Size() != s.Size {
		return differ("size", image.Size(), s.Size)
	}
	want := s.Facts
	if facts.Revision != want.Revision {
		return differ("revision", facts.Revision, want.Revision)
	}
	if facts.RaftIndex != want.RaftIndex || facts.RaftTerm != want.RaftTerm || facts.CompactedRevision != want.CompactedRevision || fmt.Sprint(facts.Alarms) != fmt.Sprint(want.Alarms) {
		return differ("content", "another one", "raft index "+fmt.Sprint(want.RaftIndex))
	}
	recipe := recipeOf(image)
	switch {
	case s.Recipe == nil && recipe == nil:
		return nil
	case s.Recipe == nil || recipe == nil:
		return differ("way that it was made", howMade(recipe), howMade(s.Recipe))
	}
	if err := recipe.Check(s.Recipe); err != nil {
		return fmt.Errorf("restore: %w: plan %s: %w", ErrOtherImage, plan, err)
	}
	return nil
}

func howMade(r *walreplay.Recipe) string {
	if r == nil {
		return "without the log"
	}
	return fmt.Sprintf("by %d entries of the log", r.Entries)
}

// ofImage is the source as it is carried out with an image that was checked:
// what was rebuilt here may have other pages than where it was planned.
func (p *Plan) ofImage(image snapshot.Image) *Plan {
	if p.Source.Recipe == nil {
		return p
	}
	c := *p
	c.BytesDB += image.Size() - c.Source.Size
	c.Source.Size = image.Size()
	return &c
}

// checkStructure goes through all pages of a database that came without a sum.
func checkStructure(ctx context.Context, image snapshot.Image, path string) (err error) {
	f, err := safedir.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return snapshot.CheckStructure(ctx, image.Name(), f, image.Size())
}

// ErrNotStartable says that a member must not be started as its directories are.
var ErrNotStartable = errors.New("is nothing that a member could start from")

// CheckStartable fails with ErrNotStartable where a data directory, with its
// separate WAL directory or "", has no log: an etcd that was started there would
// begin an empty cluster, or join one as a member that has forgotten what it
// acknowledged. And where a restore or a recovery is under way there, so that
// etcd would refuse. It changes nothing.
func CheckStartable(dataDir, walDir string) error {
	member := filepath.Join(dataDir, "member")
	logs := []string{filepath.Join(member, "wal")}
	if walDir != "" {
		logs = append(logs, walDir)
	}
	for _, dir := range logs {
		b, err := readBlocker(dir)
		if err != nil {
			return err
		}
		if b != nil {
			return fmt.Errorf("%s %w: %s: %s", dir, ErrNotStartable, b.What, b.WhatToDo)
		}
	}
	log := logs[len(logs)-1]
	names, err := entries(log)
	if err != nil {
		return err
	}
	segments := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".wal") {
			segments++
		}
	}
	if segments == 0 {
		return fmt.Errorf("%s %w: it holds no segment of a log", log, ErrNotStartable)
	}
	db := filepath.Join(member, "snap", "db")
	there, err := exists(db)
	if err == nil && !there {
		err = fmt.Errorf("%s %w: there is no %s", dataDir, ErrNotStartable, db)
	}
	return err
}
