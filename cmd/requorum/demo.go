package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify/serve"
	"github.com/requorum/requorum/walreplay/archive"
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
It takes well under a minute and changes nothing outside that folder.
` + exitHelp,
		Example: "  requorum demo\n  requorum demo --dir ./demo --keep",
		Args:    cobra.NoArgs,
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

// demo is the story under way.
type demo struct {
	*globals
	dir       string
	report    demoReport
	tls       store.TLSFiles // of this run
	load      *demoLoad
	archivers *demoArchivers
}

// demoQuiet keeps etcd's own log out of the story.
var demoQuiet = store.Settings{LogLevel: "error", LogOutputs: []string{os.DevNull}}

func (g *globals) demo(ctx context.Context, o *demoOptions) (err error) {
	dir, err := demoDir(o.dir)
	if err != nil {
		return err
	}
	if !o.keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	d := &demo{globals: g, dir: dir}
	if o.keep {
		d.report.Dir = dir
	}
	d.say("Working in %s", dir)
	if err := d.run(ctx, o.keys); err != nil {
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

// clientConfig is how the demo's commands reach its clusters.
func (d *demo) clientConfig(endpoints []string) client.Config {
	return client.Config{Endpoints: endpoints, CACert: d.tls.CA, Cert: d.tls.Cert, Key: d.tls.Key, Logger: d.logger()}
}

func (d *demo) say(format string, args ...any) {
	if d.output != "json" {
		fmt.Fprintf(d.stdout, format+"\n", args...)
	}
}

// step says what is done now, and how long it took.
func (d *demo) step(what string, f func() error) (time.Duration, error) {
	d.say("\n== %s", what)
	start := time.Now()
	err := f()
	return time.Since(start), err
}

func (d *demo) run(ctx context.Context, keys int) (err error) {
	var old *store.LocalCluster
	defer func() {
		if old != nil {
			old.Kill()
		}
		if d.archivers != nil {
			err = errors.Join(err, d.archivers.end())
		}
	}()
	if err := d.makeKeys(); err != nil {
		return err
	}
	start, err := d.step("Three members of the bundled etcd", func() (err error) {
		if d.tls, err = store.MakeRunTLS(filepath.Join(d.dir, "tls")); err != nil {
			return err
		}
		settings := demoQuiet
		settings.ClientTLS, settings.PeerTLS = d.tls, d.tls
		old, err = store.StartCluster(ctx, store.ClusterConfig{DataDir: filepath.Join(d.dir, "cluster"), Members: 3, FreePorts: true, Settings: settings})
		return err
	})
	if err != nil {
		return err
	}
	d.say("serving at %s after %s", strings.Join(old.Endpoints(), ","), took(start))

	if d.load, err = newDemoLoad(old.Endpoints(), d.tls); err != nil {
		return err
	}
	defer d.load.close()
	wrote, err := d.step(fmt.Sprintf("%d keys, and a lease", keys), func() error { return d.load.fill(ctx, keys) })
	if err != nil {
		return err
	}
	d.say("written in %s; from here on a client goes on writing", took(wrote))
	d.load.startWriter()

	for _, next := range []func(context.Context, *store.LocalCluster) error{d.archive, d.backup, d.mistake, d.destroy} {
		if err := next(ctx, old); err != nil {
			return err
		}
	}
	cluster, err := d.rebuild(ctx)
	if err != nil {
		return err
	}
	defer cluster.Kill()
	if err := d.undo(ctx); err != nil {
		return err
	}
	return d.quorum(ctx, cluster)
}

// archive starts an archiver beside each member.
func (d *demo) archive(ctx context.Context, old *store.LocalCluster) error {
	elapsed, err := d.step("requorum archive beside each member, while the client writes", func() (err error) {
		if d.archivers, err = d.startArchivers(ctx, old.Members(), old.Endpoints()); err != nil {
			return err
		}
		return d.archivers.await(ctx, 1)
	})
	if err != nil {
		return err
	}
	d.say("one of them writes, a segment every %s; the first entries were stored after %s", demoInterval, took(elapsed))
	return nil
}

func (d *demo) backup(ctx context.Context, old *store.LocalCluster) error {
	elapsed, err := d.step("requorum backup, while the client writes", func() error {
		out, err := d.command(ctx, "backup", "--output", "json", "--read-back", "--endpoints", strings.Join(old.Endpoints(), ","),
			"--cacert", d.tls.CA, "--cert", d.tls.Cert, "--key", d.tls.Key, "--repo", d.repository(), "--signing-key", d.keyFile("key"), "--trust", d.keyFile("trust"))
		if err != nil {
			return err
		}
		var r backupReport
		if err := json.Unmarshal(out, &r); err != nil {
			return err
		}
		d.report.Backup = r.Repositories[0].Backup
		return nil
	})
	if err != nil {
		return err
	}
	m := d.report.Backup
	d.report.BackupSeconds = elapsed.Seconds()
	d.say("backup %s at revision %d in %s: %s stored as %s, read from %s, and read back whole",
		m.ID, m.Facts.Revision, took(elapsed), size(m.Object.RawSize), size(m.Object.StoredSize), m.Source.Name)
	return nil
}

// demoQuietTime is how long the client goes on before and after the mistake.
const demoQuietTime = time.Second

// mistake changes a key after the backup, and deletes it.
func (d *demo) mistake(ctx context.Context, _ *store.LocalCluster) error {
	_, err := d.step("A mistake: somebody deletes a key that was changed after the backup", func() error {
		time.Sleep(demoQuietTime)
		revision, err := d.load.deletePrecious(ctx)
		if err != nil {
			return err
		}
		d.say("%s is gone since revision %d, and no snapshot has its last value", demoPreciousKey, revision)
		time.Sleep(demoQuietTime)
		index, err := d.load.applied(ctx)
		if err != nil {
			return err
		}
		return d.archivers.await(ctx, index) // on a slow machine it takes longer
	})
	return err
}

// destroy kills all members right after the last acknowledgement and deletes
// their data.
func (d *demo) destroy(ctx context.Context, old *store.LocalCluster) error {
	_, err := d.step("The disaster: all three members are gone, with their disks", func() error {
		d.load.stopWriter()
		old.Kill()
		if err := d.archivers.end(); err != nil {
			return err
		}
		for _, m := range old.Members() {
			if err := os.RemoveAll(m.Config().DataDir); err != nil {
				return err
			}
		}
		err := d.load.tryWrite(ctx, 2*time.Second)
		if err == nil {
			return errors.New("a write went through without a quorum")
		}
		d.say("a write fails: %v", err)
		return nil
	})
	if err != nil {
		return err
	}
	d.report.WritesAfter = d.load.acknowledgedAfter(d.report.Backup.Facts.Revision)
	d.say("%d writes were acknowledged after the backup; the log is archived up to index %d", d.report.WritesAfter, d.archivers.archived())
	return nil
}

// rebuild restores the end of the archive and compares. The caller kills the
// cluster.
func (d *demo) rebuild(ctx context.Context) (cluster *demoCluster, err error) {
	started := time.Now()
	if _, err := d.step("requorum restore: a new cluster of three as it was at the end of the archive, one command", func() (err error) {
		cluster, err = d.restored(ctx, "restored", 3, "--latest")
		return err
	}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			cluster.Kill()
		}
	}()
	d.report.RecoverySecs = time.Since(started).Seconds()
	r := cluster.result
	d.report.Restore = r
	if recipe := r.Plan.Source.Recipe; recipe != nil {
		d.say("%d entries of the log replayed on backup %s", recipe.Entries, recipe.Base)
	}
	d.say("cluster %s at revision %d (bumped by %d, so that no client misses a change)", r.Plan.ClusterID, r.RevisionAfter, r.RevisionAfter-r.RevisionBefore)
	d.say("serving at %s, %s after the restore began", strings.Join(cluster.Endpoints(), ","), took(time.Since(started)))

	if _, err := d.step("Proof", func() (err error) {
		if d.report.HashKV, err = d.serves(ctx, cluster.LocalCluster, r.Plan, r.RevisionAfter); err != nil {
			return err
		}
		d.report.KeysCompared, err = d.load.prove(ctx, cluster.Endpoints(), r.RevisionBefore)
		return err
	}); err != nil {
		return nil, err
	}
	d.report.WritesLost = d.load.acknowledgedAfter(r.RevisionBefore)
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
	var cluster *demoCluster
	elapsed, err := d.step("Undo: requorum restore --before "+demoPreciousKey, func() (err error) {
		cluster, err = d.restored(ctx, "undo", 1, "--before", demoPreciousKey)
		return err
	})
	if err != nil {
		return err
	}
	defer cluster.Kill()
	value, err := d.load.precious(ctx, cluster.Endpoints())
	if err != nil {
		return err
	}
	d.report.Undo = demoUndo{demoPreciousKey, value, cluster.result.RevisionBefore}
	d.say("one member serves the state of revision %d after %s: %s = %q", cluster.result.RevisionBefore, took(elapsed), demoPreciousKey, value)
	return nil
}

// demoInterval is how often a segment is stored: as often as a person blinks.
const demoInterval = 250 * time.Millisecond

// demoArchivers are what 'requorum archive' runs, one beside each member.
type demoArchivers struct {
	all   []*archive.Archiver
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu  sync.Mutex
	err error
}

// startArchivers begins to archive the log of every member.
func (d *demo) startArchivers(ctx context.Context, members []*store.Member, endpoints []string) (*demoArchivers, error) {
	ctx, cancel := context.WithCancel(ctx)
	a := &demoArchivers{stop: cancel}
	for _, m := range members {
		if err := a.start(ctx, d, m, endpoints); err != nil {
			return nil, errors.Join(err, a.end())
		}
	}
	return a, nil
}

func (a *demoArchivers) start(ctx context.Context, d *demo, m *store.Member, endpoints []string) error {
	client, err := client.Dial(ctx, d.clientConfig(endpoints))
	if err != nil {
		return err
	}
	keys, err := signing.Read(d.keyFile("key"), d.keyFile("trust"), nil)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	sink, err := disk.New(filepath.Join(d.dir, "repository"))
	if err != nil {
		return errors.Join(err, client.Close())
	}
	one, err := archive.New(archive.Config{
		Client: client, DataDir: m.Config().DataDir, Sink: repository.WithKeys(sink, keys), Tool: "requorum " + version,
		SpoolDir: filepath.Join(d.dir, "spool", m.Config().Name), Interval: demoInterval, Logger: d.archiverLogger(),
	})
	if err != nil {
		return errors.Join(err, client.Close(), sink.Close())
	}
	a.all = append(a.all, one)
	a.ended.Go(func() {
		err := errors.Join(one.Run(ctx), client.Close(), sink.Close())
		a.mu.Lock()
		defer a.mu.Unlock()
		a.err = errors.Join(a.err, err)
	})
	return nil
}

// archiverLogger is nil unless more is asked for: that members do not answer once
// they are destroyed is part of the story.
func (d *demo) archiverLogger() *slog.Logger {
	if d.verbose {
		return d.logger()
	}
	return nil
}

// end stops all of them, as SIGTERM would.
func (a *demoArchivers) end() error {
	a.stop()
	a.ended.Wait()
	return a.err
}

// archived is the last entry that any of them knows to be in the repository.
func (a *demoArchivers) archived() (index uint64) {
	for _, one := range a.all {
		index = max(index, one.State().Archived)
	}
	return index
}

// await waits until the log is archived up to an index.
func (a *demoArchivers) await(ctx context.Context, index uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for a.archived() < index {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the log is archived up to index %d only: %s", a.archived(), a.all[0].State())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// demoCluster is a cluster that was restored.
type demoCluster struct {
	*store.LocalCluster
	result *restore.Result
}

// restored rebuilds a point of the archive into a new cluster of some members,
// and starts it. The caller kills it.
func (d *demo) restored(ctx context.Context, folder string, members int, target ...string) (_ *demoCluster, err error) {
	ports, err := client.FreePorts(2 * members)
	if err != nil {
		return nil, err
	}
	var initial, clients []string
	for i := range members {
		initial = append(initial, fmt.Sprintf("m%d=https://127.0.0.1:%d", i+1, ports[2*i]))
		clients = append(clients, fmt.Sprintf("m%d=https://127.0.0.1:%d", i+1, ports[2*i+1]))
	}
	c, err := d.build(ctx, filepath.Join(d.dir, folder), strings.Join(initial, ","), target...)
	if err != nil {
		return nil, err
	}
	c.LocalCluster, err = d.startPlanned(ctx, c.result.Plan, clients)
	return c, err
}

// startPlanned starts the members that a plan built, with these client URLs.
func (d *demo) startPlanned(ctx context.Context, plan *restore.Plan, clients []string) (*store.LocalCluster, error) {
	configs, err := (&startOptions{clientURLs: clients}).configs(plan, "")
	if err != nil {
		return nil, err
	}
	for i := range configs {
		configs[i].ClientTLS, configs[i].PeerTLS = d.tls, d.tls
		configs[i].LogLevel, configs[i].LogOutputs = demoQuiet.LogLevel, demoQuiet.LogOutputs
	}
	return store.StartMembers(ctx, configs)
}

// build runs 'requorum restore' as a user would.
func (d *demo) build(ctx context.Context, dir, initialCluster string, target ...string) (*demoCluster, error) {
	out, err := d.command(ctx, append([]string{
		"restore", "--output", "json", "--repo", d.repository(), "--trust", d.keyFile("trust"), "--initial-cluster", initialCluster, "--data-dir", filepath.Join(dir, "{name}"),
	}, target...)...)
	if err != nil {
		return nil, err
	}
	var r restoreReport
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, err
	}
	return &demoCluster{result: r.Restore}, nil
}

// keyFile is the key that signs what the demo stores, or the file that trusts it.
func (d *demo) keyFile(name string) string { return filepath.Join(d.dir, "signing-"+name) }

// makeKeys makes both.
func (d *demo) makeKeys() error {
	private, public, err := signing.NewKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.keyFile("key"), private, 0o600); err != nil {
		return err
	}
	return os.WriteFile(d.keyFile("trust"), append([]byte("demo "), public...), 0o600)
}

// repository is the URL of the demo's.
func (d *demo) repository() string { return "file://" + filepath.Join(d.dir, "repository") }

// command runs a command in this process, and gives what it printed.
func (d *demo) command(ctx context.Context, args ...string) ([]byte, error) {
	d.say("requorum %s\n", strings.Join(args, " "))
	env := d.environment
	var out bytes.Buffer
	env.stdout = &out
	command := newRootCommand(env)
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	return out.Bytes(), err
}

// demoQuorum is the JSON form of the demo's last chapter.
type demoQuorum struct {
	Acknowledged int     `json:"acknowledged"`  // writes before the members were killed
	KeysCompared int     `json:"keys_compared"` // with what was acknowledged
	Lost         int     `json:"lost"`          // of the acknowledged writes
	HashKV       uint32  `json:"hashkv"`
	Seconds      float64 `json:"seconds"` // from the command's start until the cluster serves
}

// demoQuorumKeys is how many keys the client of the last chapter writes at first.
const demoQuorumKeys = 1000

// quorum is the last chapter: all members of the restored cluster are killed while
// a client writes, one disk is gone, and nothing of it is in the archive.
func (d *demo) quorum(ctx context.Context, old *demoCluster) error {
	load, err := newDemoLoad(old.Endpoints(), d.tls)
	if err != nil {
		return err
	}
	defer load.close()
	watch, err := d.loseQuorum(ctx, old, load)
	if err != nil {
		return err
	}
	began := time.Now()
	var cluster *store.LocalCluster
	var plan *restore.Plan
	if _, err := d.step("requorum recover: one command, from what is left", func() (err error) {
		cluster, plan, err = d.recovered(ctx, old.result.Plan)
		return err
	}); err != nil {
		return err
	}
	defer cluster.Kill()
	d.report.Quorum.Seconds = time.Since(began).Seconds()
	d.say("serving at %s, %s after the command began", strings.Join(cluster.Endpoints(), ","), took(time.Since(began)))
	if _, err := d.step("Proof", func() error { return d.proveQuorum(ctx, cluster, plan, load, watch) }); err != nil {
		return err
	}
	q := d.report.Quorum
	d.say("all %d keys are as the last of the %d acknowledged writes left them, at the same revisions: nothing is lost", q.KeysCompared, q.Acknowledged)
	d.say("all members agree (HashKV %d); the lease lives; a watch from before goes on where it was", q.HashKV)
	return nil
}

// loseQuorum kills all members in the middle of writes, and deletes one's data. It
// gives a revision that a watch is to go on from.
func (d *demo) loseQuorum(ctx context.Context, old *demoCluster, load *demoLoad) (watch int64, err error) {
	_, err = d.step("Another disaster: all three members are killed while a client writes, and one disk is gone", func() error {
		if err := load.fill(ctx, demoQuorumKeys); err != nil {
			return err
		}
		watch = load.lastRevision()
		load.startWriter()
		time.Sleep(demoQuietTime)
		old.Kill()
		load.stopWriter()
		return os.RemoveAll(old.Members()[2].Config().DataDir)
	})
	if err != nil {
		return 0, err
	}
	d.report.Quorum.Acknowledged = load.acknowledgedAfter(0)
	d.say("%d writes were acknowledged by this cluster, and no backup has any of them", d.report.Quorum.Acknowledged)
	return watch, nil
}

// recovered runs the command as a user would, and starts what it built.
func (d *demo) recovered(ctx context.Context, old *restore.Plan) (*store.LocalCluster, *restore.Plan, error) {
	built := filepath.Join(d.dir, "recovered", "{name}")
	var local []string
	for _, m := range old.Members[:2] {
		local = append(local, m.Name+"="+m.DataDir)
	}
	args := []string{
		recoverCommand, "--local", strings.Join(local, ","), "--declare-dead", old.Members[2].Name,
		"--data-dir", built, "--yes",
	}
	// Unproven is an error: the demo would not go on.
	out, err := d.command(ctx, args...)
	if err != nil {
		return nil, nil, err
	}
	d.say("%s", out)
	result, free, err := restore.Restored(strings.ReplaceAll(built, "{name}", old.Members[0].Name))
	if err == nil && !free {
		err = fmt.Errorf("there are no whole members in %s", built)
	}
	if err != nil {
		return nil, nil, err
	}
	plan := result.Plan
	ports, err := client.FreePorts(len(plan.Members))
	if err != nil {
		return nil, nil, err
	}
	var clients []string
	for i, m := range plan.Members {
		clients = append(clients, fmt.Sprintf("%s=https://127.0.0.1:%d", m.Name, ports[i]))
	}
	cluster, err := d.startPlanned(ctx, plan, clients)
	return cluster, plan, err
}

// serves proves that a cluster serves as 'requorum recover' and a drill do, and gives
// the HashKV that its members agree on.
func (d *demo) serves(ctx context.Context, cluster *store.LocalCluster, plan *restore.Plan, revision int64) (uint32, error) {
	r, err := serve.Prove(ctx, serve.Request{
		Client: d.clientConfig(cluster.Endpoints()), ClusterID: plan.ClusterID, Members: plan.Members, RevisionAtLeast: revision,
	})
	switch {
	case err != nil:
		return 0, err
	case r.Revision == 0:
		return 0, fmt.Errorf("the members were not compared: %s", strings.Join(r.Unproved, "; "))
	}
	return r.HashKV.Hash, nil
}

// proveQuorum compares with all that was acknowledged, and goes on with a watch.
func (d *demo) proveQuorum(ctx context.Context, cluster *store.LocalCluster, plan *restore.Plan, load *demoLoad, watch int64) (err error) {
	q := &d.report.Quorum
	if q.HashKV, err = d.serves(ctx, cluster, plan, load.lastRevision()); err != nil {
		return err
	}
	if q.KeysCompared, err = load.prove(ctx, cluster.Endpoints(), math.MaxInt64); err != nil {
		return err
	}
	c, err := demoClient(cluster.Endpoints(), d.tls)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // a client that is done
	watching, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	event := <-c.Watch(watching, demoPrefix, clientv3.WithPrefix(), clientv3.WithRev(watch))
	if err := event.Err(); err != nil || len(event.Events) == 0 {
		return fmt.Errorf("a watch from revision %d does not go on: %w", watch, err)
	}
	return nil
}
