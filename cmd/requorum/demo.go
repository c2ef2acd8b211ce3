package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify/serve"
)

// demo is the story under way. Each step is a command that a user could type.
type demo struct {
	*globals
	dir    string
	keys   int
	keep   bool
	env    []string // of the commands
	report demoReport
}

// demoReport is the JSON form of `requorum demo`.
type demoReport struct {
	KeysCompared int    `json:"keys_compared"` // in both clusters
	WritesAfter  int    `json:"writes_after_backup"`
	WritesLost   int    `json:"writes_lost"` // of these: they were not archived yet
	Undone       string `json:"undone"`      // the value that was brought back
}

func newDemoCommand(g *globals) *cobra.Command {
	d := &demo{globals: g}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole story on the bundled etcd: archive, lose all, restore, undo, recover a lost quorum",
		Long: `Run the whole story with this program's own commands: archive three members while a
client writes, destroy them all, restore, bring back a deleted key, then kill the new
cluster with one of its disks, and recover it. Every key is compared.`,
		Example: "  requorum demo\n  requorum demo --dir ./demo --keep",
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&d.dir, "dir", "", "a new `directory` to work in (default: a temporary one)")
	cmd.Flags().IntVar(&d.keys, "keys", 20000, "how many keys to write before the backup")
	cmd.Flags().BoolVar(&d.keep, "keep", false, "keep the directory")
	return cmd
}

func (d *demo) run(ctx context.Context) (err error) {
	if d.dir == "" {
		d.dir, err = os.MkdirTemp("", "requorum-demo-")
	} else if err = os.Mkdir(d.dir, 0o700); err == nil { // its own, since it is deleted
		d.dir, err = filepath.Abs(d.dir)
	}
	if err != nil {
		return err
	}
	if !d.keep {
		defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	}
	if err := d.steps(ctx); err != nil || d.output != "json" {
		return err
	}
	return d.printJSON(d.report)
}

func (d *demo) say(format string, args ...any) {
	if d.output != "json" {
		fmt.Fprintf(d.stdout, format+"\n", args...)
	}
}

// command shows a command of this program, and prepares it.
func (d *demo) command(ctx context.Context, args ...string) *exec.Cmd {
	d.say("$ requorum %s", strings.Join(args, " "))
	self, err := os.Executable()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Err = errors.Join(cmd.Err, err)
	cmd.Env = append([]string{"TMPDIR=" + d.dir, "XDG_STATE_HOME=" + d.path("state")}, d.env...)
	return cmd
}

func (d *demo) path(elem ...string) string { return filepath.Join(d.dir, filepath.Join(elem...)) }

// demoCluster is a cluster that a command serves until it is killed.
type demoCluster struct {
	*clientv3.Client
	cmd    *exec.Cmd
	config client.Config
}

// end sends a command a signal, and waits for its end. It may have ended before.
func end(cmd *exec.Cmd, signal os.Signal) { _, _ = cmd.Process.Signal(signal), cmd.Wait() }

// kill kills all members at once.
func (c *demoCluster) kill() { end(c.cmd, syscall.SIGKILL) }

// serve runs a command that serves a cluster. It decodes the report that the command
// prints before it serves to built, unless that is nil.
func (d *demo) serve(ctx context.Context, built any, args ...string) (*demoCluster, error) {
	began, c := time.Now(), &demoCluster{cmd: d.command(ctx, args...)}
	c.cmd.Args = append(c.cmd.Args, "--output", "json")
	var stderr bytes.Buffer
	c.cmd.Stderr = &stderr
	out, err := c.cmd.StdoutPipe()
	if err = errors.Join(err, c.cmd.Start()); err != nil {
		return nil, err
	}
	in, serving := json.NewDecoder(out), servingReport{}
	if built != nil {
		err = in.Decode(built)
	}
	if err = errors.Join(err, in.Decode(&serving)); err != nil {
		c.kill()
		return nil, fmt.Errorf("requorum %s: %w: %s", args[0], err, &stderr)
	}
	d.say("serving at %s after %s", strings.Join(serving.Endpoints, ","), took(time.Since(began)))
	c.config = client.Config{Endpoints: serving.Endpoints, CACert: serving.CACert, Cert: serving.Cert, Key: serving.Key, Logger: d.logger()}
	cfg := clientv3.Config{Endpoints: serving.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}
	if serving.CACert != "" {
		cfg.TLS, err = store.TLSFiles{CA: serving.CACert, Cert: serving.Cert, Key: serving.Key}.Client()
	}
	if err == nil {
		c.Client, err = clientv3.New(cfg)
	}
	return c, err
}

// restore serves a point of the archive with a new cluster of n members. Clients get the
// port below the peers'.
func (d *demo) restore(ctx context.Context, to string, n int, point ...string) (*demoCluster, *restore.Result, error) {
	ports, err := client.FreePorts(2 * n)
	if err != nil {
		return nil, nil, err
	}
	if ports[2*n-1]-ports[0] != 2*n-1 { // one between them is taken
		return d.restore(ctx, to, n, point...)
	}
	var peers []string
	for i := range n {
		peers = append(peers, fmt.Sprintf("m%d=https://127.0.0.1:%d", i+1, ports[2*i+1]))
	}
	var built restoreReport
	c, err := d.serve(ctx, &built, append([]string{"restore", "--initial-cluster", strings.Join(peers, ","), "--data-dir", d.path(to, "{name}"), "--start"}, point...)...)
	return c, built.Restore, err
}

// prove compares the members of a cluster with each other, and its keys with the writes up
// to a revision.
func (d *demo) prove(ctx context.Context, c *demoCluster, r *restore.Result, l *demoLoad, upTo int64) error {
	served, err := serve.Prove(ctx, serve.Request{Client: c.config, ClusterID: r.Plan.ClusterID, Members: r.Plan.Members, RevisionAtLeast: r.RevisionAfter})
	if err == nil && served.Revision == 0 {
		err = fmt.Errorf("the members were not compared: %s", strings.Join(served.Unproved, "; "))
	}
	found, foundErr := c.Get(ctx, demoPrefix, clientv3.WithPrefix())
	if err = errors.Join(err, foundErr); err != nil {
		return err
	}
	d.report.KeysCompared += len(found.Kvs)
	d.say("%d keys have the value and the revision that was acknowledged, and the members agree (HashKV %d)", len(found.Kvs), served.HashKV.Hash)
	return l.compare(found.Kvs, upTo)
}

func (d *demo) steps(ctx context.Context) error {
	d.say("== Three members of the bundled etcd serve, and a client writes %d keys and more", d.keys)
	first, err := d.serve(ctx, nil, "store", "--data-dir", d.path("cluster"), "--members", "3", "--free-ports")
	if err != nil {
		return err
	}
	defer first.kill()
	load := &demoLoad{cli: first.Client, revisions: map[string]int64{}}
	for left := d.keys; left > 0; left -= 100 { // etcd allows 128 at once
		if err := load.write(ctx, min(left, 100)); err != nil {
			return err
		}
	}
	stopWriter := load.keepWriting(ctx)
	defer stopWriter()

	d.say("\n== The log of each member is archived, and a full snapshot is taken")
	d.env = []string{"REQUORUM_REPO=" + d.path("repository"), "ETCDCTL_ENDPOINTS=" + strings.Join(first.config.Endpoints, ",")}
	d.say("$ export %s", strings.Join(d.env, " "))
	var archivers []*exec.Cmd
	for _, m := range []string{"m1", "m2", "m3"} {
		a := d.command(ctx, "agent", "--jobs", "none", "--name", m, "--listen", "127.0.0.1:0", "--data-dir", d.path("cluster", m))
		if err := a.Start(); err != nil {
			return err
		}
		defer end(a, syscall.SIGKILL)
		archivers = append(archivers, a)
	}
	if text, err := d.command(ctx, "backup", "--read-back").CombinedOutput(); err != nil {
		return fmt.Errorf("requorum backup: %w: %s", err, text)
	}
	taken, err := first.Get(ctx, demoPrecious) // for its revision
	if err != nil {
		return err
	}

	d.say("\n== A mistake: somebody deletes %s, which is newer than the snapshot", demoPrecious)
	time.Sleep(time.Second)
	for _, op := range []clientv3.Op{clientv3.OpPut(demoPrecious, demoValue), clientv3.OpDelete(demoPrecious)} {
		if _, err := load.commit(ctx, op); err != nil {
			return err
		}
	}
	time.Sleep(time.Second)
	if err := d.await(ctx, first); err != nil {
		return err
	}

	d.say("\n== The disaster: all three members are gone, with their disks")
	stopWriter()
	first.kill()
	for _, a := range archivers {
		end(a, syscall.SIGTERM)
	}
	if err := os.RemoveAll(d.path("cluster")); err != nil {
		return err
	}
	d.report.WritesAfter = load.count(taken.Header.Revision)

	d.say("\n== One command: a new cluster of three as it was at the end of the archive")
	second, built, err := d.restore(ctx, "restored", 3, "--latest")
	if err != nil {
		return err
	}
	defer second.kill()
	d.report.WritesLost = load.count(built.RevisionBefore)
	if err := d.prove(ctx, second, built, load, built.RevisionBefore); err != nil {
		return err
	}
	d.say("%d writes came after the snapshot. %d of them were not archived yet, and are lost with the disks.", d.report.WritesAfter, d.report.WritesLost)

	d.say("\n== Undo the mistake: the state before it, beside the cluster")
	third, _, err := d.restore(ctx, "undo", 1, "--before", demoPrecious)
	if err != nil {
		return err
	}
	defer third.kill()
	undone, err := third.Get(ctx, demoPrecious)
	if err != nil || len(undone.Kvs) != 1 || string(undone.Kvs[0].Value) != demoValue {
		return fmt.Errorf("%s was not brought back: %v, %w", demoPrecious, undone, err)
	}
	d.report.Undone = string(undone.Kvs[0].Value)
	d.say("%s = %q", demoPrecious, d.report.Undone)
	return d.quorum(ctx, second, load)
}

// await waits until the repository has the log as far as the members have it now.
func (d *demo) await(ctx context.Context, c *demoCluster) error {
	until := uint64(0)
	for _, endpoint := range c.config.Endpoints {
		s, err := c.Status(ctx, endpoint)
		if err != nil {
			return err
		}
		until = max(until, s.RaftAppliedIndex)
	}
	d.say("$ requorum list # until it shows index %d", until)
	quiet := &demo{globals: &globals{output: "json"}, dir: d.dir, env: d.env}
	for began := time.Now(); time.Since(began) < time.Minute && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		var listed struct {
			Ranges []struct {
				Last uint64 `json:"last_index"`
			} `json:"ranges"`
		}
		text, err := quiet.command(ctx, "list", "--output", "json").Output()
		if err == nil && json.Unmarshal(text, &listed) == nil && len(listed.Ranges) > 0 && listed.Ranges[len(listed.Ranges)-1].Last >= until {
			return nil
		}
	}
	return fmt.Errorf("the log is not archived up to index %d", until)
}

// quorum is the last chapter: no backup has anything of what is recovered.
func (d *demo) quorum(ctx context.Context, old *demoCluster, load *demoLoad) error {
	d.say("\n== Another disaster: all three members are killed while a client writes, and one disk is gone")
	load.cli = old.Client
	stopWriter := load.keepWriting(ctx)
	time.Sleep(time.Second)
	old.kill()
	stopWriter()
	if err := os.RemoveAll(d.path("restored", "m3")); err != nil {
		return err
	}

	d.say("\n== One command: the cluster again, from the two disks that are left")
	d.env = nil // without the archive
	var built recoveryReport
	c, err := d.serve(ctx, &built, "recover", "--local", "m1="+d.path("restored", "m1")+",m2="+d.path("restored", "m2"),
		"--declare-dead", "m3", "--data-dir", d.path("recovered", "{name}"), "--start", "--yes")
	if err != nil {
		return err
	}
	defer c.kill()
	d.say("PROVEN: %s\nLost: %s", built.Plan.Why, built.Plan.Loss.Text)
	return d.prove(ctx, c, built.Restore, load, math.MaxInt64)
}

const (
	demoPrefix   = "/demo/"
	demoPrecious = demoPrefix + "precious" // is deleted by mistake
	demoValue    = "written after the backup"
)

// demoLoad writes keys, each once, and remembers what was acknowledged. It is used by one
// goroutine at a time.
type demoLoad struct {
	cli       *clientv3.Client
	next      int              // key
	revisions map[string]int64 // of each key
	pending   string           // the key of a write that was not acknowledged: it may be there
}

func demoValueOf(key string) string { return "written to " + key + " by requorum demo" }

// commit commits operations in one transaction. It retries: a member refuses them while a
// leader is elected.
func (l *demoLoad) commit(ctx context.Context, ops ...clientv3.Op) (revision int64, err error) {
	for try := 0; ; try++ {
		res, err := l.cli.Txn(ctx).Then(ops...).Commit()
		if err == nil {
			return res.Header.Revision, nil
		}
		if ctx.Err() != nil || try == 300 {
			return 0, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// write writes the next n keys at once.
func (l *demoLoad) write(ctx context.Context, n int) error {
	var keys []string
	var ops []clientv3.Op
	for range n {
		l.next++
		keys = append(keys, fmt.Sprintf("%skeys/%06d", demoPrefix, l.next))
		ops = append(ops, clientv3.OpPut(keys[len(keys)-1], demoValueOf(keys[len(keys)-1])))
	}
	revision, err := l.commit(ctx, ops...)
	for _, key := range keys {
		if l.pending = key; err == nil {
			l.revisions[key], l.pending = revision, ""
		}
	}
	return err
}

// keepWriting writes a key after the other until stop is called, or a write fails.
func (l *demoLoad) keepWriting(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		for l.write(ctx, 1) == nil {
		}
	})
	return func() { cancel(); writing.Wait() }
}

// count returns how many writes were acknowledged after a revision.
func (l *demoLoad) count(after int64) (n int) {
	for _, revision := range l.revisions {
		if revision > after {
			n++
		}
	}
	return n
}

// compare returns an error if keys are not as the writes up to a revision left them. From
// then on these are the keys.
func (l *demoLoad) compare(found []*mvccpb.KeyValue, upTo int64) error {
	missing, now := len(l.revisions)-l.count(upTo), map[string]int64{}
	for _, kv := range found {
		key := string(kv.Key)
		if now[key] = kv.ModRevision; key == l.pending {
			continue
		}
		if kv.ModRevision > upTo || kv.ModRevision != l.revisions[key] || string(kv.Value) != demoValueOf(key) {
			return fmt.Errorf("key %s has revision %d and value %q, and revision %d was acknowledged", key, kv.ModRevision, kv.Value, l.revisions[key])
		}
		missing--
	}
	if missing > 0 {
		return fmt.Errorf("%d keys are missing", missing)
	}
	l.revisions = now
	return nil
}
