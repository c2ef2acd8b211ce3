package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify/serve"
)

type demoOptions struct {
	dir  string
	keys int
	keep bool
}

func newDemoCommand(g *globals) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole story on the bundled etcd: archive, lose all, restore, undo, recover a lost quorum",
		Long: `Run the whole story in a folder of its own: three members serve, clients write,
their log is archived and a full snapshot taken meanwhile; somebody deletes a key;
then all members are destroyed. One command builds a new cluster of three as it
was at the end of the archive, and every write that was archived is compared.
Another restore brings back the key as it was just before it was deleted. Then all
members of the new cluster are killed while a client writes, one with its disk, and
'requorum recover' rebuilds it from the two that are left: nothing is lost.
It takes well under a minute and changes nothing outside that folder.`,
		Example: "  requorum demo\n  requorum demo --dir ./demo --keep",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.keys < 1 {
				return usageError{fmt.Errorf("--keys %d: want at least 1", o.keys)}
			}
			return g.demo(cmd.Context(), &o)
		},
	}
	cmd.Flags().StringVar(&o.dir, "dir", "", "a new `folder` to work in (default: a temporary one)")
	cmd.Flags().IntVar(&o.keys, "keys", 20000, "how many keys to write before the backup")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "keep the folder")
	return cmd
}

// demoReport is the JSON form of `requorum demo`.
type demoReport struct {
	Dir           string             `json:"dir,omitempty"` // with --keep
	Backup        *snapshot.Manifest `json:"backup"`
	Restore       *restore.Result    `json:"restore"`
	KeysCompared  int                `json:"keys_compared"`
	WritesAfter   int                `json:"writes_after_backup"` // acknowledged
	WritesLost    int                `json:"writes_lost"`         // of these, not archived yet
	HashKV        uint32             `json:"hashkv"`
	RecoverySecs  float64            `json:"recovery_seconds"`
	BackupSeconds float64            `json:"backup_seconds"`
	Undo          demoUndo           `json:"undo"`
	Quorum        demoQuorum         `json:"quorum"`
}

// demoUndo is the key that was deleted and brought back.
type demoUndo struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Revision int64  `json:"revision"` // of the state that it was found in
}

// demoQuorum is the JSON form of the demo's last chapter.
type demoQuorum struct {
	Acknowledged int     `json:"acknowledged"`  // writes before the members were killed
	KeysCompared int     `json:"keys_compared"` // with what was acknowledged
	HashKV       uint32  `json:"hashkv"`
	Seconds      float64 `json:"seconds"` // from the command's start until the cluster serves
}

// demo is the story under way. What can be done by a command is done by that.
type demo struct {
	*globals
	dir      string
	report   demoReport
	tls      store.TLSFiles    // of this run
	settings map[string]string // the variables of the commands
}

// demoQuiet keeps etcd's own log out of the story.
var demoQuiet = store.Settings{LogLevel: "error", LogOutputs: []string{os.DevNull}}

func (g *globals) demo(ctx context.Context, o *demoOptions) (err error) {
	d := &demo{globals: g}
	if d.dir, err = demoDir(o.dir); err != nil {
		return err
	}
	if o.keep {
		d.report.Dir = d.dir
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	}
	d.say("Working in %s", d.dir)
	if err := d.steps(ctx, o.keys); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if g.output == "json" {
		return g.printJSON(d.report)
	}
	return nil
}

// demoDir is a new folder: the demo deletes it in the end.
func demoDir(path string) (string, error) {
	if path == "" {
		return os.MkdirTemp("", "requorum-demo-")
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("--dir: %w: the demo wants a folder of its own, and makes it", err)
	}
	return filepath.Abs(path)
}

func (d *demo) say(format string, args ...any) {
	if d.output != "json" {
		fmt.Fprintf(d.stdout, format+"\n", args...)
	}
}

// chapter says what is done now, and gives when it began.
func (d *demo) chapter(what string) time.Time {
	d.say("\n== %s", what)
	return time.Now()
}

// since is how long it took.
func since(began time.Time) string { return took(time.Since(began)) }

// run runs a command in this process.
func (d *demo) run(ctx context.Context, out, diagnostics io.Writer, args ...string) error {
	env := d.environment
	env.stdout, env.stderr = out, diagnostics
	env.getenv = func(name string) string { return d.settings[name] }
	command := newRootCommand(env)
	command.SetArgs(args)
	return command.ExecuteContext(ctx)
}

// result shows and runs a command, and reads what it prints as JSON.
func (d *demo) result(ctx context.Context, to any, args ...string) error {
	d.say("requorum %s\n", strings.Join(args, " "))
	var out bytes.Buffer
	if err := d.run(ctx, &out, d.stderr, append(args, "--output", "json")...); err != nil {
		return err
	}
	return json.Unmarshal(out.Bytes(), to)
}

func (d *demo) steps(ctx context.Context, keys int) (err error) {
	key := filepath.Join(d.dir, "signing.key")
	if err := d.run(ctx, io.Discard, d.stderr, "keys", "new", key); err != nil {
		return err
	}
	began := d.chapter("Three members of the bundled etcd")
	if d.tls, err = store.MakeRunTLS(filepath.Join(d.dir, "tls")); err != nil {
		return err
	}
	settings := demoQuiet
	settings.ClientTLS, settings.PeerTLS = d.tls, d.tls
	first, err := store.StartCluster(ctx, store.ClusterConfig{DataDir: filepath.Join(d.dir, "cluster"), Members: 3, FreePorts: true, Settings: settings})
	if err != nil {
		return err
	}
	defer first.Kill()
	d.say("serving at %s after %s", strings.Join(first.Endpoints(), ","), since(began))

	cli, err := demoClient(first.Endpoints(), d.tls)
	if err != nil {
		return err
	}
	defer cli.Close() //nolint:errcheck // a client that is done
	load := &demoLoad{client: cli}
	began = d.chapter(fmt.Sprintf("%d keys, and a lease", keys))
	if err := load.fill(ctx, keys); err != nil {
		return err
	}
	d.say("written in %s; from here on a client goes on writing", since(began))
	load.startWriter()
	defer load.stopWriter()

	began = d.chapter("requorum archive beside each member, while the client writes")
	d.settings = map[string]string{
		"XDG_STATE_HOME": filepath.Join(d.dir, "state"), // nothing is left behind elsewhere
		"REQUORUM_REPO":  "file://" + filepath.Join(d.dir, "repository"), "REQUORUM_SIGNING_KEY": key, "REQUORUM_TRUST": key + ".trust",
		"ETCDCTL_ENDPOINTS": strings.Join(first.Endpoints(), ","), "ETCDCTL_CACERT": d.tls.CA, "ETCDCTL_CERT": d.tls.Cert, "ETCDCTL_KEY": d.tls.Key,
	}
	for _, name := range slices.Sorted(maps.Keys(d.settings)) {
		d.say("export %s=%s", name, d.settings[name])
	}
	archivers := d.startArchivers(ctx, first)
	defer archivers.end() //nolint:errcheck // it was ended before, or what ended the story is reported
	if err := archivers.await(1); err != nil {
		return err
	}
	d.say("one of them writes, a segment every %s; the first entries were stored after %s", demoInterval, since(began))

	if err := d.backup(ctx); err != nil {
		return err
	}
	if err := d.mistake(ctx, load, archivers); err != nil {
		return err
	}
	if err := d.destroy(ctx, first, load, archivers); err != nil {
		return err
	}
	restored, err := d.rebuild(ctx, load)
	if err != nil {
		return err
	}
	defer restored.Kill()
	if err := d.undo(ctx); err != nil {
		return err
	}
	return d.quorum(ctx, restored)
}

func (d *demo) backup(ctx context.Context) error {
	began := d.chapter("requorum backup, while the client writes")
	var r backupReport
	if err := d.result(ctx, &r, "backup", "--read-back"); err != nil {
		return err
	}
	m := r.Repositories[0].Backup
	d.report.Backup, d.report.BackupSeconds = m, time.Since(began).Seconds()
	d.say("backup %s at revision %d in %s: %s stored as %s, read from %s, and read back whole",
		m.ID, m.Facts.Revision, since(began), size(m.Object.RawSize), size(m.Object.StoredSize), m.Source.Name)
	return nil
}

// demoQuietTime is how long the client goes on before and after the mistake.
const demoQuietTime = time.Second

// mistake changes a key after the backup, and deletes it.
func (d *demo) mistake(ctx context.Context, load *demoLoad, archivers *demoArchivers) error {
	d.chapter("A mistake: somebody deletes a key that was changed after the backup")
	time.Sleep(demoQuietTime)
	revision, err := load.deletePrecious(ctx)
	if err != nil {
		return err
	}
	d.say("%s is gone since revision %d, and no snapshot has its last value", demoPreciousKey, revision)
	time.Sleep(demoQuietTime)
	index, err := load.applied(ctx)
	if err != nil {
		return err
	}
	return archivers.await(index) // on a slow machine it takes longer
}

// destroy kills all members right after the last acknowledgement and deletes
// their data.
func (d *demo) destroy(ctx context.Context, first *store.LocalCluster, load *demoLoad, archivers *demoArchivers) error {
	d.chapter("The disaster: all three members are gone, with their disks")
	load.stopWriter()
	first.Kill()
	if err := archivers.end(); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(d.dir, "cluster")); err != nil {
		return err
	}
	err := load.tryWrite(ctx, 2*time.Second)
	if err == nil {
		return errors.New("a write went through without a quorum")
	}
	d.say("a write fails: %v", err)
	d.report.WritesAfter = load.acknowledgedAfter(d.report.Backup.Facts.Revision)
	d.say("%d writes were acknowledged after the backup; the log is archived up to index %d", d.report.WritesAfter, archivers.archived.Load())
	return nil
}

// rebuild restores the end of the archive and compares. The caller kills the
// cluster.
func (d *demo) rebuild(ctx context.Context, load *demoLoad) (cluster *demoCluster, err error) {
	began := d.chapter("requorum restore: a new cluster of three as it was at the end of the archive, one command")
	if cluster, err = d.restored(ctx, "restored", 3, "--latest"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			cluster.Kill()
		}
	}()
	d.report.RecoverySecs = time.Since(began).Seconds()
	r := cluster.result
	d.report.Restore = r
	if recipe := r.Plan.Source.Recipe; recipe != nil {
		d.say("%d entries of the log replayed on backup %s", recipe.Entries, recipe.Base)
	}
	d.say("cluster %s at revision %d (bumped by %d, so that no client misses a change)", r.Plan.ClusterID, r.RevisionAfter, r.RevisionAfter-r.RevisionBefore)
	d.say("serving at %s, %s after the restore began", strings.Join(cluster.Endpoints(), ","), since(began))

	d.chapter("Proof")
	if d.report.HashKV, err = d.serves(ctx, cluster, r.RevisionAfter); err != nil {
		return cluster, err
	}
	if d.report.KeysCompared, err = load.prove(ctx, cluster.client, r.RevisionBefore); err != nil {
		return cluster, err
	}
	d.report.WritesLost = load.acknowledgedAfter(r.RevisionBefore)
	d.say("all %d keys are as the last archived write left them: value, revision, and the deleted one is gone", d.report.KeysCompared)
	d.say("all members agree (HashKV %d); the lease lives; a compare-and-swap goes through, and fails the second time", d.report.HashKV)
	if d.report.WritesLost > 0 {
		d.say("of the %d writes since the backup the last %d were not archived yet: that is what losing all disks at once costs", d.report.WritesAfter, d.report.WritesLost)
	} else {
		d.say("none of the %d writes since the backup is lost", d.report.WritesAfter)
	}
	return cluster, nil
}

// undo brings the deleted key back, beside the cluster that goes on.
func (d *demo) undo(ctx context.Context) error {
	began := d.chapter("Undo: requorum restore --before " + demoPreciousKey)
	cluster, err := d.restored(ctx, "undo", 1, "--before", demoPreciousKey)
	if err != nil {
		return err
	}
	defer cluster.Kill()
	value, err := readPrecious(ctx, cluster.client)
	if err != nil {
		return err
	}
	d.report.Undo = demoUndo{demoPreciousKey, value, cluster.result.RevisionBefore}
	d.say("one member serves the state of revision %d after %s: %s = %q", cluster.result.RevisionBefore, since(began), demoPreciousKey, value)
	return nil
}

// demoQuorumKeys is how many keys the client of the last chapter writes at first.
const demoQuorumKeys = 1000

// quorum is the last chapter: all members of the restored cluster are killed while
// a client writes, one disk is gone, and nothing of it is in the archive.
func (d *demo) quorum(ctx context.Context, old *demoCluster) error {
	load := &demoLoad{client: old.client}
	d.chapter("Another disaster: all three members are killed while a client writes, and one disk is gone")
	if err := load.fill(ctx, demoQuorumKeys); err != nil {
		return err
	}
	watched := load.lastRevision()
	load.startWriter()
	time.Sleep(demoQuietTime)
	old.Kill()
	load.stopWriter()
	members := old.result.Plan.Members
	if err := os.RemoveAll(members[2].DataDir); err != nil {
		return err
	}
	q := &d.report.Quorum
	q.Acknowledged = load.acknowledgedAfter(0)
	d.say("%d writes were acknowledged by this cluster, and no backup has any of them", q.Acknowledged)

	began := d.chapter("requorum recover: one command, from what is left")
	d.settings = nil // nor is the archive looked at
	var r recoveryReport
	// Unproven is an error: the demo would not go on.
	if err := d.result(ctx, &r, recoverCommand, "--local", fmt.Sprintf("%s=%s,%s=%s", members[0].Name, members[0].DataDir, members[1].Name, members[1].DataDir),
		"--declare-dead", members[2].Name, "--data-dir", filepath.Join(d.dir, "recovered", "{name}"), "--yes"); err != nil {
		return err
	}
	d.say("PROVEN: %s\nLost: %s", r.Plan.Why, r.Plan.Loss.Text)
	cluster, err := d.start(ctx, r.Restore)
	if err != nil {
		return err
	}
	defer cluster.Kill()
	q.Seconds = time.Since(began).Seconds()
	d.say("serving at %s, %s after the command began", strings.Join(cluster.Endpoints(), ","), since(began))

	d.chapter("Proof")
	if q.HashKV, err = d.serves(ctx, cluster, load.lastRevision()); err != nil {
		return err
	}
	if q.KeysCompared, err = load.prove(ctx, cluster.client, math.MaxInt64); err != nil {
		return err
	}
	if err := watchOn(ctx, cluster.client, watched); err != nil {
		return err
	}
	d.say("all %d keys are as the last of the %d acknowledged writes left them, at the same revisions: nothing is lost", q.KeysCompared, q.Acknowledged)
	d.say("all members agree (HashKV %d); the lease lives; a watch from before goes on where it was", q.HashKV)
	return nil
}

// demoInterval is how often a segment is stored: as often as a person blinks.
const demoInterval = 250 * time.Millisecond

// demoArchivers are 'requorum archive' beside each member.
type demoArchivers struct {
	running *errgroup.Group
	ctx     context.Context // ends with the first that fails
	stop    context.CancelFunc
	// archived is the last entry that any of them said to be in the repository.
	archived atomic.Uint64
}

func (d *demo) startArchivers(ctx context.Context, cluster *store.LocalCluster) *demoArchivers {
	a := &demoArchivers{}
	ctx, a.stop = context.WithCancel(ctx)
	a.running, a.ctx = errgroup.WithContext(ctx)
	diagnostics := d.stderr
	if !d.verbose { // that members do not answer once they are destroyed is part of the story
		diagnostics = io.Discard
	}
	for _, m := range cluster.Members() {
		args := []string{"archive", "--data-dir", m.Config().DataDir, "--interval", demoInterval.String(), "--no-snapshot"}
		d.say("requorum %s", strings.Join(args, " "))
		args = append(args, "--status", demoInterval.String(), "--output", "json")
		a.running.Go(func() error { return d.run(a.ctx, a, diagnostics, args...) })
	}
	return a
}

// Write reads a line that one of them printed.
func (a *demoArchivers) Write(line []byte) (int, error) {
	var l struct {
		State struct {
			Archived uint64 `json:"archived"`
		} `json:"state"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return 0, err
	}
	for {
		was := a.archived.Load()
		if l.State.Archived <= was || a.archived.CompareAndSwap(was, l.State.Archived) {
			return len(line), nil
		}
	}
}

// end stops all of them, as SIGTERM would.
func (a *demoArchivers) end() error {
	a.stop()
	return a.running.Wait()
}

// await waits until the log is archived up to an index.
func (a *demoArchivers) await(index uint64) error {
	timeout := time.After(30 * time.Second)
	for a.archived.Load() < index {
		select {
		case <-a.ctx.Done():
			return errors.Join(context.Cause(a.ctx), a.end())
		case <-timeout:
			return fmt.Errorf("the log is archived up to index %d only, of %d; --verbose says more", a.archived.Load(), index)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// demoCluster is a cluster that was restored.
type demoCluster struct {
	*store.LocalCluster
	client *clientv3.Client
	result *restore.Result
}

// Kill ends the client after its members.
func (c *demoCluster) Kill() {
	c.LocalCluster.Kill()
	c.client.Close() //nolint:errcheck // a client that is done
}

// restored rebuilds a point of the archive into a new cluster of some members,
// and starts it. The caller kills it.
func (d *demo) restored(ctx context.Context, folder string, members int, target ...string) (*demoCluster, error) {
	ports, err := client.FreePorts(members)
	if err != nil {
		return nil, err
	}
	var initial []string
	for i, port := range ports {
		initial = append(initial, fmt.Sprintf("m%d=https://127.0.0.1:%d", i+1, port))
	}
	var r restoreReport
	if err := d.result(ctx, &r, append([]string{"restore", "--initial-cluster", strings.Join(initial, ","), "--data-dir", filepath.Join(d.dir, folder, "{name}")}, target...)...); err != nil {
		return nil, err
	}
	return d.start(ctx, r.Restore)
}

// start starts the members that a command built.
func (d *demo) start(ctx context.Context, r *restore.Result) (*demoCluster, error) {
	ports, err := client.FreePorts(len(r.Plan.Members))
	if err != nil {
		return nil, err
	}
	var clients []string
	for i, m := range r.Plan.Members {
		clients = append(clients, fmt.Sprintf("%s=https://127.0.0.1:%d", m.Name, ports[i]))
	}
	configs, err := (&startOptions{clientURLs: clients}).configs(r.Plan, "")
	if err != nil {
		return nil, err
	}
	for i := range configs {
		configs[i].ClientTLS, configs[i].PeerTLS = d.tls, d.tls
		configs[i].LogLevel, configs[i].LogOutputs = demoQuiet.LogLevel, demoQuiet.LogOutputs
	}
	c, err := store.StartMembers(ctx, configs)
	if err != nil {
		return nil, err
	}
	cli, err := demoClient(c.Endpoints(), d.tls)
	if err != nil {
		c.Kill()
		return nil, err
	}
	return &demoCluster{c, cli, r}, nil
}

// serves proves that a cluster serves as 'requorum recover' and a drill do, and gives
// the HashKV that its members agree on.
func (d *demo) serves(ctx context.Context, c *demoCluster, revision int64) (uint32, error) {
	r, err := serve.Prove(ctx, serve.Request{
		Client:    client.Config{Endpoints: c.Endpoints(), CACert: d.tls.CA, Cert: d.tls.Cert, Key: d.tls.Key, Logger: d.logger()},
		ClusterID: c.result.Plan.ClusterID, Members: c.result.Plan.Members, RevisionAtLeast: revision,
	})
	switch {
	case err != nil:
		return 0, err
	case r.Revision == 0:
		return 0, fmt.Errorf("the members were not compared: %s", strings.Join(r.Unproved, "; "))
	}
	return r.HashKV.Hash, nil
}
