package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/signing"
)

// slowRounds is in how many counted rounds the slow contestants take part.
const slowRounds = 1

// measureAll measures everything.
func (o *options) measureAll(ctx context.Context, b *bench) (r *report, err error) {
	r = &report{}
	if r.machine, err = look(b.dir); err != nil {
		return nil, err
	}
	if r.versions, err = b.versions(ctx); err != nil {
		return nil, err
	}
	if err := b.newKeys(); err != nil {
		return nil, err
	}
	gateway, err := b.startS3(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, gateway.stop()) }()
	if !o.skipSnapshots || !o.skipVerify {
		if err := o.ofDatabase(ctx, b, r); err != nil {
			return nil, err
		}
	}
	if !o.skipLog {
		if err := errors.Join(b.replays(ctx, r), b.archives(ctx, r)); err != nil {
			return nil, err
		}
	}
	if !o.skipAgent {
		if err := o.ofAgents(ctx, b, r); err != nil {
			return nil, fmt.Errorf("agents: %w", err)
		}
	}
	if !o.skipRecover {
		if err := o.recoveries(ctx, b, r); err != nil {
			return nil, fmt.Errorf("recoveries: %w", err)
		}
	}
	return r, nil
}

// ofDatabase is what is measured of one database: backups, restores, verify,
// then what both take with larger ones.
func (o *options) ofDatabase(ctx context.Context, b *bench, r *report) (err error) {
	var s source
	if s.member, err = newMember("source", b.path("source")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.server.stop()) }()

	size := o.mebibytes << 20
	if !o.skipSizes {
		if err := o.measureAt(ctx, b, &s, r, size/4, seed); err != nil {
			return err
		}
	}
	if err := o.measureAt(ctx, b, &s, r, size, seed+100); err != nil {
		return err
	}
	r.loaded = s.loaded
	if !o.skipSnapshots {
		if err := o.snapshots(ctx, b, &s, r); err != nil {
			return err
		}
	}
	if !o.skipVerify {
		if err := o.verifies(ctx, b, &s, r); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	if o.skipSizes {
		return nil
	}
	for i, larger := range []int64{size * 5 / 2, int64(o.largest)} {
		// What was made of the smaller one takes the room.
		if err := b.removeSnapshots(); err != nil {
			return err
		}
		if larger > 0 {
			if err := o.measureAt(ctx, b, &s, r, larger, seed+200+uint64(100*i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeSnapshots removes what was made of the database.
func (b *bench) removeSnapshots() (err error) {
	for _, name := range []string{
		plainFile, scriptFile, scriptFile + ".zst", scriptFile + ".gz", plainRepo, fileRepo, sealedRepo, signedRepo, secretRepo,
		verifiedFile, copiedFile, oneRepo, threeRepo, scratch, restoreFolder,
	} {
		err = errors.Join(err, os.RemoveAll(b.path(name)))
	}
	return err
}

// snapshots are backups and restores.
func (o *options) snapshots(ctx context.Context, b *bench, s *source, r *report) error {
	if err := o.backups(ctx, b, s, r); err != nil || o.skipRestore {
		return err
	}
	return o.restores(ctx, b, s, r)
}

// newKeys makes the age key that encrypted backups are for, and the key that signs.
func (b *bench) newKeys() error {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	b.recipient = id.Recipient().String()
	private, public, err := signing.NewKey()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(b.path(signingKey), private, 0o600),
		os.WriteFile(b.path(signingKey)+".trust", append([]byte("bench@localhost "), public...), 0o600),
		os.WriteFile(b.path(identityFile), []byte(id.String()+"\n"), 0o600))
}

func (o *options) backups(ctx context.Context, b *bench, s *source, r *report) (err error) {
	endpoint := s.member.clientURL
	all := append([]contestant{b.save(endpoint)}, b.backups(endpoint, s.member.dataDir)...)
	all = append(all, b.backupS3(endpoint))
	if c, ok := b.script(endpoint, 0, "zstd", "-1", "--quiet"); ok {
		all = append(all, c)
	}
	if c, ok := b.script(endpoint, slowRounds, "gzip"); ok {
		all = append(all, c)
	}
	r.backups, err = b.contest(ctx, o.backupRounds, all)
	return err
}

// restores measures restores, then starts what requorum made with the real
// etcd, and counts its keys.
func (o *options) restores(ctx context.Context, b *bench, s *source, r *report) (err error) {
	members, err := b.newMembers()
	if err != nil {
		return err
	}
	all := b.restores(members)
	if r.restores, err = b.contest(ctx, o.restoreRounds, all); err != nil {
		return err
	}
	ours := all[len(all)-1]
	if err := b.once(ctx, 0, ours, &outcome{}); err != nil {
		return fmt.Errorf("%s: %w", ours.name, err)
	}
	servers, err := b.startCluster(ctx, members)
	defer func() {
		for _, server := range servers {
			err = errors.Join(err, server.stop())
		}
	}()
	if err != nil {
		return fmt.Errorf("start the restored members: %w", err)
	}
	for _, m := range members {
		keys, err := b.countKeys(ctx, m.clientURL)
		if err != nil {
			return err
		}
		if keys != s.loaded.Keys {
			return fmt.Errorf("restored member %s serves %d keys, the source had %d", m.name, keys, s.loaded.Keys)
		}
	}
	return nil
}
