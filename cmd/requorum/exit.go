package main

import (
	"context"
	"errors"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/companions"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
	"github.com/requorum/requorum/walreplay/walfile"
)

// Exit codes. They are documented in docs/commands.md and do not change.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDamaged     = 3
	exitNothing     = 4
	exitIncomplete  = 5
	exitUnproven    = 6
	exitInterrupted = 130
)

// exitHelp ends the help of every command.
const exitHelp = `
Exit status:
  0  done
  1  failed
  2  wrong usage
  3  the backup or the log was found damaged
  4  there is nothing to restore or show that matches
  5  incomplete: some repositories or members failed, the others are done
  6  recovered, or planned so, but unproven: acknowledged writes may be missing
  130  interrupted`

// errReported says that the command has told the user already what is wrong.
var errReported = errors.New("reported")

// errUnproven says that all was done, and that acknowledged writes may be missing.
var errUnproven = errors.New("unproven")

// usageError is an error in how the command was called.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func exitCode(ctx context.Context, err error) int {
	var usage usageError
	var damaged *snapshot.DamagedError
	var log *walfile.CorruptError
	var fork *segment.ForkError
	var request *restore.RequestError
	var need *recovery.NeedSourceError
	var source *recovery.SourceError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(context.Cause(ctx), errInterrupted):
		return exitInterrupted
	case errors.As(err, &usage), errors.As(err, &request), errors.As(err, &need), errors.As(err, &source):
		return exitUsage
	case errors.Is(err, snapshot.ErrIncomplete):
		return exitIncomplete
	case errors.As(err, &damaged), errors.As(err, &log), errors.As(err, &fork):
		return exitDamaged
	case errors.Is(err, snapshot.ErrNoBackup), errors.Is(err, companions.ErrNone):
		return exitNothing
	case errors.Is(err, errUnproven):
		return exitUnproven
	}
	return exitFailed
}
