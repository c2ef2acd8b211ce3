package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/walreplay"
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

func (d *demo) say(format string, args ...any) {
	if d.output != "json" {
		fmt.Fprintf(d.stdout, format+"\n", args...)
	}
}

// step tells what is done now, and how long it took.
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
	start, err := d.step("Three members of the bundled etcd", func() (err error) {
		old, err = store.StartCluster(ctx, store.ClusterConfig{DataDir: filepath.Join(d.dir, "cluster"), Members: 3, FreePorts: true, Settings: demoQuiet})
		return err
	})
	if err != nil {
		return err
	}
	d.say("serving at %s after %s", strings.Join(old.Endpoints(), ","), took(start))

	if d.load, err = newDemoLoad(old.Endpoints()); err != nil {
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
		client, err := store.Dial(ctx, store.ClientConfig{Endpoints: old.Endpoints(), Logger: d.logger()})
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // nothing is under way any more
		sink, err := disk.New(filepath.Join(d.dir, "repository"))
		if err != nil {
			return err
		}
		defer sink.Close() //nolint:errcheck // a folder: nothing is held open
		result, err := snapshot.Take(ctx, snapshot.Request{
			Client: client, Sinks: []sinks.Sink{sink}, Tool: "requorum " + version, ReadBack: true, Reached: archive.Reached, Logger: d.logger(),
		})
		if err != nil {
			return err
		}
		d.report.Backup = result.Outcomes[0].Manifest
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
		return nil
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
		cluster, err = d.restored(ctx, "restored", 3, walreplay.Target{})
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
	if cluster.recipe != nil {
		d.say("%d entries of the log replayed on backup %s", cluster.recipe.Entries, cluster.recipe.Base)
	}
	d.say("cluster %s at revision %d (bumped by %d, so that no client misses a change)", r.Plan.ClusterID, r.RevisionAfter, r.RevisionAfter-r.RevisionBefore)
	d.say("serving at %s, %s after the restore began", strings.Join(cluster.Endpoints(), ","), took(time.Since(started)))

	if _, err := d.step("Proof", func() (err error) {
		d.report.KeysCompared, d.report.HashKV, err = d.load.prove(ctx, cluster.Endpoints(), r)
		return err
	}); err != nil {
		return nil, err
	}
	d.report.WritesLost = d.load.acknowledgedAfter(r.RevisionBefore)
	d.say("all %d keys are as the last archived write left them: value, revision, and the deleted one is gone", d.report.KeysCompared)
	d.say("all members agree (HashKV %d); the lease lives; a compare-and-swap and a new write go through; an old watch is told to start anew", d.report.HashKV)
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
		cluster, err = d.restored(ctx, "undo", 1, walreplay.Target{Kind: walreplay.BeforeKey, Key: demoPreciousKey})
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
