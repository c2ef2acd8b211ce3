package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/cmd/requorum/binarytest"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay/archive"
)

func TestMain(m *testing.M) {
	testscript.Main(binarytest.M{M: m}, map[string]func(){"requorum": main})
}

// TestScripts runs the command lines in testdata/script as a user would type
// them, against a bundled etcd of their own each.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			ports, err := store.FreePorts(2)
			if err != nil {
				return err
			}
			env.Setenv("PORT1", strconv.Itoa(ports[0]))
			env.Setenv("PORT2", strconv.Itoa(ports[1]))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"etcd":  scriptEtcd,
			"put":   scriptPut,
			"exits": scriptExits,
			"flip":  scriptFlip,
			"only":  scriptOnly,
			"await": scriptAwait,

			"archived": scriptArchived,
			"log":      scriptLog,
			"facts":    scriptFacts,
			"none":     scriptNone,
		},
	})
}

// scriptEtcd starts a bundled member and sets $ENDPOINT and $DATADIR.
func scriptEtcd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: etcd")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := store.StartCluster(ctx, store.ClusterConfig{
		DataDir: ts.MkAbs("etcd"), Members: 1, FreePorts: true, Settings: store.Settings{LogLevel: "error", LogOutputs: []string{"/dev/null"}},
	})
	ts.Check(err)
	ts.Defer(c.Kill)
	ts.Setenv("ENDPOINT", c.Endpoints()[0])
	ts.Setenv("DATADIR", c.Members()[0].Config().DataDir)
}

// scriptArchived waits until all that the member has applied is archived in the
// repository in a folder: archived repo
func scriptArchived(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: archived folder")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := store.Dial(ctx, store.ClientConfig{Endpoints: []string{ts.Getenv("ENDPOINT")}})
	ts.Check(err)
	defer client.Close()
	survey, err := client.Survey(ctx)
	ts.Check(err)
	want := survey.Members[0].AppliedIndex
	sink, err := disk.New(ts.MkAbs(args[0]))
	ts.Check(err)
	for reached := uint64(0); reached < want; time.Sleep(50 * time.Millisecond) {
		if ctx.Err() != nil {
			ts.Fatalf("after a minute the log is archived to index %d, not %d", reached, want)
		}
		repo, err := repository.Open(ctx, sink)
		if err != nil {
			continue // it is being made
		}
		ids, err := repo.TimelineIDs(ctx)
		ts.Check(err)
		for _, id := range ids {
			index, _, _, err := archive.Reached(ctx, repo, id)
			ts.Check(err)
			reached = max(reached, index)
		}
	}
}

// scriptPut writes keys: put key value …
func scriptPut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args)%2 != 0 {
		ts.Fatalf("usage: put key value …")
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{ts.Getenv("ENDPOINT")}, DialTimeout: 5 * time.Second})
	ts.Check(err)
	defer c.Close()
	for i := 0; i < len(args); i += 2 {
		_, err := c.Put(context.Background(), args[i], args[i+1])
		ts.Check(err)
	}
}

// scriptExits runs a command and wants this exit code: exits 3 requorum …
// Its output is what stdout and stderr compare afterwards.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command …")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var exit *exec.ExitError
	got := 0
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// scriptFlip flips one bit in the middle of a file.
func scriptFlip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: flip file")
	}
	path := ts.MkAbs(args[0])
	data, err := os.ReadFile(path)
	ts.Check(err)
	data[len(data)/2] ^= 1
	ts.Check(os.WriteFile(path, data, 0o600))
}

// scriptAwait waits until a file holds a text: await file text
func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await file text")
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && strings.Contains(string(data), args[1]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not hold %q after a minute: %s (%v)", args[0], args[1], data, err)
		}
	}
}

// scriptOnly sets a variable to the one file that a pattern matches, since IDs
// are different each time: only repo/*/full/*/manifest.json MANIFEST
func scriptOnly(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: only pattern VARIABLE")
	}
	found, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(found) != 1 {
		ts.Fatalf("%s matches %d files: %s", args[0], len(found), strings.Join(found, ", "))
	}
	ts.Setenv(args[1], found[0])
}
