package serve

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
)

// noting is a command that runs the members and first writes its process ID
// to a file.
func noting(t *testing.T) (command []string, pid func() int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "pid")
	return []string{"/bin/sh", "-c", `echo $$ >"$1.new"; mv "$1.new" "$1"; exec "$0" ` + MembersCommand, self, path}, func() int {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		return n
	}
}

// noted reports whether a command of noting has begun.
func noted(command []string) bool {
	_, err := os.Stat(command[len(command)-1])
	return err == nil
}

func unchecked(t *testing.T, check report.Check, says string) {
	t.Helper()
	if check.Status != report.Unchecked || !strings.Contains(check.Reason, says) || len(check.Findings) > 0 {
		t.Errorf("%s %q %v, want unchecked: %q", check.Status, check.Reason, check.Findings, says)
	}
	t.Log(check.Reason)
}

// Promise 3: what a machine lacks says nothing about the image.
func TestPromise3WhatCannotBeTriedIsUnchecked(t *testing.T) {
	t.Parallel()
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		command, pid := noting(t)
		killed := false
		check := run(t, plain(t), DrillOptions{Members: 1, Command: command, Progress: func(phase string, _, _ int64) {
			if phase == PhaseServe && !killed {
				killed = true
				if err := syscall.Kill(pid(), syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
		}})
		unchecked(t, check, "was killed")
	})
	t.Run("too new", func(t *testing.T) {
		t.Parallel()
		image := altered(t, plain(t), func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("meta")).Put([]byte("storageVersion"), []byte("3.99.0"))
		})
		unchecked(t, run(t, image, DrillOptions{}), "newer than the bundled etcd")
	})
	t.Run("no such program", func(t *testing.T) {
		t.Parallel()
		unchecked(t, run(t, plain(t), DrillOptions{Command: []string{"/does/not/exist"}}), "start the members")
	})
	t.Run("another program", func(t *testing.T) {
		t.Parallel()
		unchecked(t, run(t, plain(t), DrillOptions{Command: []string{"/bin/true"}}), "without a word")
	})
	t.Run("too slow", func(t *testing.T) {
		t.Parallel()
		unchecked(t, run(t, plain(t), DrillOptions{BootTimeout: 1}), "not ready within")
	})
	t.Run("no place", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		check, err := Drill(t.Context(), plain(t), DrillOptions{ScratchDir: filepath.Join(file, "scratch")})
		require.NoError(t, err)
		unchecked(t, check, "make the scratch folder")
	})
	t.Run("no space", func(t *testing.T) {
		t.Parallel()
		dir := storetest.SmallDisk(t, "1m")
		check, err := Drill(t.Context(), plain(t), DrillOptions{ScratchDir: dir})
		require.NoError(t, err)
		nothingIn(t, dir)
		unchecked(t, check, "not enough space")
	})
}

// Promise 3: the machine's words are distinguished from etcd's.
func TestPromise3WordsOfTheMachine(t *testing.T) {
	for words, fault := range map[string]bool{
		"write db: no space left on device":                       false,
		"fatal error: runtime: out of memory":                     false,
		"open wal: too many open files":                           false,
		"listen tcp 127.0.0.1:2380: bind: address already in use": false,
		"requorum: unknown command \"drill-members\"":             false,
		"failed to unmarshal mvccpb.KeyValue":                     true,
		"panic: page 3 already freed":                             true,
	} {
		err := verdict(words, report.KindBoot, "boot")
		var broken *faultError
		if errors.As(err, &broken) != fault {
			t.Errorf("%q is a fault of the image: %t, want %t", words, !fault, fault)
		}
		if errors.Is(err, errPortTaken) != strings.Contains(words, "in use") {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// The last words are those that say why, whatever follows.
func TestLastWords(t *testing.T) {
	for _, c := range []struct{ stderr, want string }{
		{"", ""},
		{`{"level":"warn","msg":"slow"}` + "\n", ""},
		{`{"level":"panic","msg":"bad lease","error":"short"}` + "\n" + `panic: bad lease` + "\ngoroutine 1 [running]:\n", "bad lease: short"},
		{`{"level":"fatal","msg":"bad row"}`, "bad row"},
		{"panic: page 3 already freed\n\ngoroutine 7:\npanic: second\n", "panic: page 3 already freed"},
		{"fatal error: out of memory\n", "fatal error: out of memory"},
		{"requorum: unknown command\n", "requorum: unknown command"},
	} {
		if got := lastWords([]byte(c.stderr)); got != c.want {
			t.Errorf("%q: %q, want %q", c.stderr, got, c.want)
		}
	}
}
