package e2e

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/archive"
)

func TestMain(m *testing.M) { os.Exit(storetest.M{M: m}.Run()) }

// TestScripts runs the command lines in testdata/script as a user would type
// them, against a bundled etcd of their own each.
func TestScripts(t *testing.T) {
	folder := filepath.Dir(storetest.Requorum(t))
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", folder+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			// Which no other process takes before a script comes to use them.
			for _, name := range []string{"PORT1", "PORT2"} {
				_, port, err := net.SplitHostPort(storetest.FreeAddress(env.T().(testing.TB)))
				if err != nil {
					return err
				}
				env.Setenv(name, port)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"etcd":   scriptEtcd,
			"put":    scriptPut,
			"fill":   scriptFill,
			"delete": scriptDelete,
			"keys":   scriptKeys,
			"exits":  scriptExits,
			"flip":   scriptFlip,
			"only":   scriptOnly,
			"found":  scriptFound,
			"await":  scriptAwait,

			"serving":  scriptServing,
			"timeline": scriptTimeline,

			"archived": scriptArchived,
			"log":      scriptLog,
			"facts":    scriptFacts,
			"none":     scriptNone,

			"sshkey": scriptSSHKey,
			"forge":  scriptForge,
			"plant":  scriptPlant,
			"junk":   scriptJunk,
		},
	})
}

// scriptEtcd starts a bundled member, of a cluster of its own, and sets $ENDPOINT and
// $DATADIR: etcd [folder]
func scriptEtcd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: etcd [folder]")
	}
	dir := "etcd"
	if len(args) > 0 {
		dir = args[0]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c, err := store.StartCluster(ctx, store.ClusterConfig{
		DataDir: ts.MkAbs(dir), Members: 1, FreePorts: true, Settings: store.Settings{LogFile: os.DevNull},
	})
	ts.Check(err)
	ts.Defer(c.Kill)
	ts.Setenv("ENDPOINT", c.Endpoints()[0])
	ts.Setenv("DATADIR", c.Members()[0].DataDir())
}

// scriptArchived waits until all that the member has applied is archived in the
// repository in a folder: archived repo
func scriptArchived(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: archived folder")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	client, err := client.Dial(ctx, client.Config{Endpoints: []string{ts.Getenv("ENDPOINT")}})
	ts.Check(err)
	defer client.Close()
	survey, err := client.Survey(ctx)
	ts.Check(err)
	want := survey.Members[0].AppliedIndex
	sink, err := disk.New(ts.MkAbs(args[0]))
	ts.Check(err)
	for reached := uint64(0); reached < want; time.Sleep(50 * time.Millisecond) {
		if ctx.Err() != nil {
			ts.Fatalf("after five minutes the log is archived to index %d, not %d", reached, want)
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
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for i := 0; i < len(args); i += 2 {
		_, err := c.Put(ctx, args[i], args[i+1])
		ts.Check(err)
	}
}

// scriptFill writes keys prefix0 to prefix(n-1): fill prefix n
func scriptFill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fill prefix n")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	var all []string
	for i := range n {
		all = append(all, args[0]+strconv.Itoa(i), "x")
	}
	scriptPut(ts, false, all)
}

// scriptDelete deletes all keys that begin with a prefix, one after the other as
// Kubernetes does: delete prefix
func scriptDelete(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: delete prefix")
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{ts.Getenv("ENDPOINT")}, DialTimeout: 5 * time.Second})
	ts.Check(err)
	defer c.Close()
	all, err := c.Get(context.Background(), args[0], clientv3.WithPrefix(), clientv3.WithKeysOnly())
	ts.Check(err)
	if len(all.Kvs) == 0 {
		ts.Fatalf("no key begins with %s", args[0])
	}
	for _, kv := range all.Kvs {
		_, err := c.Delete(context.Background(), string(kv.Key))
		ts.Check(err)
	}
}

// scriptKeys wants a snapshot file to hold so many keys that begin with a prefix:
// keys file prefix n
func scriptKeys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: keys file prefix n")
	}
	n := 0
	all, err := newestKeys(ts.MkAbs(args[0]))
	ts.Check(err)
	for key := range all {
		if strings.HasPrefix(key, args[1]) {
			n++
		}
	}
	if strconv.Itoa(n) != args[2] {
		ts.Fatalf("%s has %d keys that begin with %s, want %s", args[0], n, args[1], args[2])
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
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && strings.Contains(string(data), args[1]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not hold %q after five minutes: %s (%v)", args[0], args[1], data, err)
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

// scriptFound sets a variable to what the group of a pattern matches in the last
// command's output: found '"name": "(.*)"' VARIABLE
func scriptFound(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: found pattern VARIABLE")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	match := pattern.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(match) != 2 {
		ts.Fatalf("%s: no match, or not one group", args[0])
	}
	ts.Setenv(args[1], match[1])
}

// scriptServing waits until a member answers, and sets $ENDPOINT: serving url
func scriptServing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serving url")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		client, err := client.Dial(ctx, client.Config{Endpoints: args})
		if err == nil {
			survey, errSurvey := client.Survey(ctx)
			if err = errSurvey; err == nil {
				_, err = client.Barrier(ctx, survey)
			}
			client.Close()
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			ts.Fatalf("%s does not serve after five minutes: %v", args[0], err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	ts.Setenv("ENDPOINT", args[0])
}

// scriptTimeline sets a variable to the timeline of a descriptor, or to the one other
// beside it: timeline [-other] descriptor VARIABLE
func scriptTimeline(ts *testscript.TestScript, neg bool, args []string) {
	other := len(args) == 3 && args[0] == "-other"
	if other {
		args = args[1:]
	}
	if neg || len(args) != 2 {
		ts.Fatalf("usage: timeline [-other] descriptor VARIABLE")
	}
	path := ts.MkAbs(args[0])
	if other {
		all, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.json"))
		ts.Check(err)
		if len(all) != 2 {
			ts.Fatalf("%d timelines, want 2: %s", len(all), all)
		}
		if all[0] == path {
			all[0] = all[1]
		}
		path = all[0]
	}
	ts.Setenv(args[1], strings.TrimSuffix(filepath.Base(path), ".json"))
}
