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
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
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
		Short: "Show the whole story on the bundled etcd: back up, lose the quorum, restore",
		Long: `Run the whole story in a folder of its own: three members serve, clients write, a
full snapshot is taken meanwhile, the quorum is destroyed, and one command
builds a new cluster of three from the snapshot. Then every key is compared.
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
	WritesAfter   int                `json:"writes_after_backup"`
	HashKV        uint32             `json:"hashkv"`
	RecoverySecs  float64            `json:"recovery_seconds"`
	BackupSeconds float64            `json:"backup_seconds"`
}

// demo is the story under way.
type demo struct {
	*globals
	dir    string
	report demoReport
	load   *demoLoad
}

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

func (d *demo) run(ctx context.Context, keys int) error {
	var old *store.LocalCluster
	defer func() {
		if old != nil {
			old.Kill()
		}
	}()
	quiet := store.Settings{LogLevel: "error", LogOutputs: []string{"/dev/null"}}
	start, err := d.step("Three members of the bundled etcd", func() (err error) {
		old, err = store.StartCluster(ctx, store.ClusterConfig{DataDir: filepath.Join(d.dir, "cluster"), Members: 3, FreePorts: true, Settings: quiet})
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

	if err := d.backup(ctx, old.Endpoints()); err != nil {
		return err
	}
	if err := d.destroy(ctx, old); err != nil {
		return err
	}
	return d.rebuild(ctx, quiet)
}

func (d *demo) backup(ctx context.Context, endpoints []string) error {
	elapsed, err := d.step("requorum backup, while the client writes", func() error {
		client, err := store.Dial(ctx, store.ClientConfig{Endpoints: endpoints, Logger: d.logger()})
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // nothing is under way any more
		sink, err := disk.New(filepath.Join(d.dir, "repository"))
		if err != nil {
			return err
		}
		defer sink.Close() //nolint:errcheck // a folder: nothing is held open
		d.load.mark()
		result, err := snapshot.Take(ctx, snapshot.Request{Client: client, Sinks: []sinks.Sink{sink}, Tool: "requorum " + version, ReadBack: true, Logger: d.logger()})
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

// destroy kills two of three members and deletes their data, then shows that
// nothing can be written any more.
func (d *demo) destroy(ctx context.Context, old *store.LocalCluster) error {
	_, err := d.step("The disaster: two of three members are gone, with their disks", func() error {
		d.report.WritesAfter = d.load.stopWriter(d.report.Backup.Facts.Revision)
		for _, m := range old.Members()[1:] {
			m.Kill()
			if err := os.RemoveAll(m.Config().DataDir); err != nil {
				return err
			}
		}
		if err := d.load.tryWrite(ctx, 2*time.Second); err == nil {
			return errors.New("a write went through without a quorum")
		} else {
			d.say("a write fails: %v", err)
		}
		old.Kill()
		return nil
	})
	return err
}

func (d *demo) rebuild(ctx context.Context, quiet store.Settings) error {
	started := time.Now()
	ports, err := store.FreePorts(6)
	if err != nil {
		return err
	}
	var initial, clients []string
	for i := range 3 {
		initial = append(initial, fmt.Sprintf("m%d=http://127.0.0.1:%d", i+1, ports[2*i]))
		clients = append(clients, fmt.Sprintf("m%d=http://127.0.0.1:%d", i+1, ports[2*i+1]))
	}
	if _, err = d.step("requorum restore: a new cluster of three, one command", func() error {
		return d.restore(ctx, strings.Join(initial, ","))
	}); err != nil {
		return err
	}
	r := d.report.Restore
	d.say("cluster %s at revision %d (bumped by %d, so that no client misses a change) in %s",
		r.Plan.ClusterID, r.RevisionAfter, r.RevisionAfter-r.RevisionBefore, took(r.Took()))

	var cluster *store.LocalCluster
	_, err = d.step("The new members start", func() error {
		configs, err := (&startOptions{clientURLs: clients}).configs(r.Plan, "")
		if err != nil {
			return err
		}
		for i := range configs {
			configs[i].LogLevel, configs[i].LogOutputs = quiet.LogLevel, quiet.LogOutputs
		}
		cluster, err = store.StartMembers(ctx, configs)
		return err
	})
	if err != nil {
		return err
	}
	defer cluster.Kill()
	d.report.RecoverySecs = time.Since(started).Seconds()
	d.say("serving at %s, %s after the restore began", strings.Join(cluster.Endpoints(), ","), took(time.Since(started)))

	_, err = d.step("Proof", func() error {
		d.report.KeysCompared, d.report.HashKV, err = d.load.prove(ctx, cluster.Endpoints(), r)
		return err
	})
	if err != nil {
		return err
	}
	d.say("all %d keys that were acknowledged before the backup began are there: value, revisions and version", d.report.KeysCompared)
	d.say("all members agree (HashKV %d); the lease lives; a compare-and-swap and a new write go through; an old watch is told to start anew", d.report.HashKV)
	d.say("%d writes that came after the backup's revision are lost: a full snapshot is a point in time", d.report.WritesAfter)
	return nil
}

func (d *demo) restore(ctx context.Context, initialCluster string) error {
	sink, err := disk.New(filepath.Join(d.dir, "repository"))
	if err != nil {
		return err
	}
	defer sink.Close() //nolint:errcheck // a folder: nothing is held open
	repo, err := repository.Open(ctx, sink)
	if err != nil {
		return err
	}
	m, catalog, err := snapshot.FindIn(ctx, repo, snapshot.Latest, "")
	if err != nil {
		return err
	}
	image := snapshot.OpenStored(repo, m)
	plan, err := restore.NewPlan(ctx, restore.Request{
		Image: image, Repository: repo.String(), BackupID: m.ID, InitialCluster: initialCluster,
		DataDir: filepath.Join(d.dir, "restored", "{name}"), HighestKnownRevision: catalog.HighestRevision(),
	})
	if err != nil {
		return err
	}
	d.report.Restore, err = restore.Execute(ctx, plan, image, restore.ExecOptions{Logger: d.logger()})
	return err
}
