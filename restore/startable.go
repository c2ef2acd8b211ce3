package restore

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

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
