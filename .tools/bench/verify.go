package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	verifyreport "github.com/requorum/requorum/verify/report"
)

// folders of the part that verifies, beside those that backups are written to.
const (
	verifiedFile = "verified.db" // what etcdctl saved
	copiedFile   = "copied.db"   // a copy of it for each run: `etcdutl hashkv` changes what it reads
	oneRepo      = "repo-one"    // a backup of the one member
	threeRepo    = "repo-three"  // a backup of a cluster of three with the same data
	scratch      = "scratch"     // where verify unpacks
)

// verified is what was measured of ways to check one snapshot.
type verified struct {
	title    string
	outcomes []outcome // etcdutl first
	checked  []string  // by each of them
}

// checker is one of these ways.
type checker struct {
	name, checked string
	reads         string       // the file or folder that is made cold or warm
	before        func() error // makes that
	run           func(context.Context) (usage, error)
}

// verifies measures checks of one snapshot, and then drills, and leaves the
// source stopped: nothing else is to run beside them.
func (o *options) verifies(ctx context.Context, b *bench, s *source, r *report) error {
	if err := b.makeVerified(ctx, s); err != nil {
		return err
	}
	all := b.checkers()
	for _, state := range []struct {
		title string
		make  func(root string) error
	}{{titleCold, makeCold}, {titleWarm, makeWarm}} {
		v := verified{title: state.title}
		var contestants []contestant
		for _, c := range all {
			v.checked = append(v.checked, c.checked)
			contestants = append(contestants, contestant{name: c.name, run: c.run, prepare: func() error {
				if err := c.before(); err != nil {
					return err
				}
				return state.make(c.reads)
			}})
		}
		var err error
		if v.outcomes, err = b.contest(ctx, o.verifyRounds, contestants); err != nil {
			return fmt.Errorf("%s: %w", state.title, err)
		}
		r.verified = append(r.verified, v)
	}
	return o.drills(ctx, b, r)
}

// makeVerified saves the source's database with both tools, then stops it.
func (b *bench) makeVerified(ctx context.Context, s *source) error {
	endpoint := s.member.clientURL
	if err := errors.Join(os.RemoveAll(b.path(verifiedFile)), os.RemoveAll(b.path(oneRepo)), os.MkdirAll(b.path(scratch), 0o700)); err != nil {
		return err
	}
	if _, err := output(ctx, b.etcd("etcdctl"), "--endpoints", endpoint, "snapshot", "save", b.path(verifiedFile)); err != nil {
		return err
	}
	if _, err := output(ctx, b.requorum(), "backup", "--endpoints", endpoint, "--repo", "file://"+b.path(oneRepo)); err != nil {
		return err
	}
	server := s.server
	s.server = nil
	return server.stop()
}

// checkers are etcdutl's two commands, the rival, and requorum's one; the last
// line is what the disk or the memory gives at best.
func (b *bench) checkers() []checker {
	file := b.path(copiedFile)
	fresh := func() error { return copyFile(b.path(verifiedFile), file) }
	ours := func(from ...string) func(context.Context) (usage, error) {
		return func(ctx context.Context) (usage, error) {
			u, _, err := b.verify(ctx, verifyreport.Structure, from...)
			return u, err
		}
	}
	return []checker{
		{
			name:    "`etcdutl snapshot status`, then `etcdutl hashkv`",
			checked: "bbolt's check of the pages; every row decodes; HashKV, which you compare yourself. Not the SHA-256 at the end",
			reads:   file,
			before:  fresh,
			run: func(ctx context.Context) (usage, error) {
				status, err := measure(ctx, nil, b.etcd("etcdutl"), "snapshot", "status", file)
				if err != nil {
					return status, err
				}
				hash, err := measure(ctx, nil, b.etcd("etcdutl"), "hashkv", file)
				return status.then(hash), err
			},
		},
		{
			name:    "`requorum verify --from-file`",
			checked: "the SHA-256 at the end; every page; every bucket decodes; each key's history, leases, users, members agree; HashKV",
			reads:   file,
			before:  fresh,
			run:     ours("--from-file", file),
		},
		{
			name:    "`requorum verify` of the repository",
			checked: "the same, and the stored object's two hashes and the manifest; HashKV and the other facts equal to the manifest's",
			reads:   b.path(oneRepo),
			before:  func() error { return nil },
			run:     ours("--repo", "file://"+b.path(oneRepo), "--no-verdict"),
		},
		{
			name:    "`dd` of the file to `/dev/null`",
			checked: "nothing: as fast as it can be read",
			reads:   file,
			before:  fresh,
			run: func(ctx context.Context) (usage, error) {
				return measure(ctx, nil, "dd", "if="+file, "of=/dev/null", "bs=1M", "status=none")
			},
		},
	}
}
