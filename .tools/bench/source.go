package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// source is the one-member cluster that backups are taken of.
type source struct {
	member member
	server *server
	loaded loaded
}

// grow loads the database until it has so many bytes in use. While loading the
// member does not sync; it is then started anew as a member ordinarily runs.
func (b *bench) grow(ctx context.Context, s *source, bytes int64, seed uint64) error {
	if err := s.server.stop(); err != nil {
		return err
	}
	var err error
	cluster := initialCluster(s.member)
	if s.server, err = b.startMember(ctx, s.member, cluster, "--unsafe-no-fsync"); err != nil {
		return err
	}
	b.log.Info("loading", "to", mebibytes(bytes))
	self, err := os.Executable()
	if err != nil {
		return err
	}
	load := exec.CommandContext(ctx, self, "load", s.member.clientURL, fmt.Sprint(bytes), fmt.Sprint(seed))
	load.Stderr = os.Stderr
	out, err := load.Output()
	if err != nil {
		return fmt.Errorf("the loading process: %w", err)
	}
	if err := json.Unmarshal(out, &s.loaded); err != nil {
		return fmt.Errorf("the loading process: %w", err)
	}
	if err := s.server.stop(); err != nil {
		return err
	}
	if s.loaded.bytes, err = bytesUnder(filepath.Join(s.member.dataDir, "member", "snap", "db")); err != nil {
		return err
	}
	b.log.Info("loaded", "keys", s.loaded.Keys, "revision", s.loaded.Revision, "leases", s.loaded.Leases)
	s.server, err = b.startMember(ctx, s.member, cluster)
	return err
}
