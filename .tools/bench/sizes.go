package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	verifyreport "github.com/requorum/requorum/verify/report"
)

// sized is what was measured of a database of one size.
type sized struct {
	loaded   loaded
	outcomes []outcome // etcdctl first
}

// measureAt grows the database, and measures once what has to grow no faster than it does.
func (o *options) measureAt(ctx context.Context, b *bench, s *source, r *report, bytes int64, seed uint64) error {
	if err := b.grow(ctx, s, bytes, seed); err != nil || o.skipSizes {
		return err
	}
	endpoint := s.member.clientURL
	members, err := b.newMembers()
	if err != nil {
		return err
	}
	all := []contestant{
		b.save(endpoint),
		b.backup(endpoint, plainRepo, "`requorum backup`"),
		b.backup(endpoint, fileRepo, "`requorum backup --data-dir`, signed", "--data-dir", s.member.dataDir, "--signing-key", b.path(signingKey)),
		{name: "`requorum verify` of the repository", run: func(ctx context.Context) (usage, error) {
			if err := os.RemoveAll(b.path(plainFile)); err != nil { // the next ones need the room
				return usage{}, err
			}
			u, _, err := b.verify(ctx, verifyreport.Structure, "--repo", "file://"+b.path(plainRepo), "--no-verdict")
			return u, err
		}},
		b.restorePlain(members),
	}
	if err := os.MkdirAll(b.path(scratch), 0o700); err != nil {
		return err
	}
	at := sized{loaded: s.loaded, outcomes: make([]outcome, len(all))}
	for i, c := range all {
		at.outcomes[i].name = c.name
		if err := b.once(ctx, 1, c, &at.outcomes[i]); err != nil {
			return fmt.Errorf("%s of %s: %w", c.name, mebibytes(bytes), err)
		}
	}
	r.sizes = append(r.sizes, at)
	return b.removeSnapshots()
}

const titleSizes = "By the size of the database"

// writeSizes shows that nothing grows faster than the database.
func (r *report) writeSizes(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\nOnce each: wall, CPU, peak memory.\n\n| database | keys |", titleSizes)
	for _, o := range r.sizes[0].outcomes {
		fmt.Fprintf(b, " %s |", o.name)
	}
	b.WriteString("\n| ---: | ---: |" + strings.Repeat(" ---: |", len(r.sizes[0].outcomes)) + "\n")
	for _, at := range r.sizes {
		fmt.Fprintf(b, "| %s | %d |", mebibytes(at.loaded.bytes), at.loaded.Keys)
		for i := range at.outcomes {
			o := &at.outcomes[i]
			fmt.Fprintf(b, " %.1f s, %.1f s, %s |", o.wall().median.Seconds(), o.cpu().median.Seconds(), mebibytes(o.rss()))
		}
		b.WriteString("\n")
	}
}
