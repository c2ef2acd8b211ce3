package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store"
)

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
	load, err := newDemoLoad(old.Endpoints())
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
	if _, err := d.step("requorum recover: one command, from what is left", func() (err error) {
		cluster, err = d.recovered(ctx, old.result.Plan)
		return err
	}); err != nil {
		return err
	}
	defer cluster.Kill()
	d.report.Quorum.Seconds = time.Since(began).Seconds()
	d.say("serving at %s, %s after the command began", strings.Join(cluster.Endpoints(), ","), took(time.Since(began)))
	if _, err := d.step("Proof", func() error { return d.proveQuorum(ctx, cluster.Endpoints(), load, watch) }); err != nil {
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
func (d *demo) recovered(ctx context.Context, old *restore.Plan) (*store.LocalCluster, error) {
	file := filepath.Join(d.dir, "recovery.json")
	var local []string
	for _, m := range old.Members[:2] {
		local = append(local, m.Name+"="+m.DataDir)
	}
	args := []string{
		recoverCommand, "--local", strings.Join(local, ","), "--declare-dead", old.Members[2].Name,
		"--data-dir", filepath.Join(d.dir, "recovered", "{name}"), "--plan", file, "--yes",
	}
	d.say("requorum %s\n", strings.Join(args, " "))
	env := d.environment
	if d.output == "json" {
		env.stdout = io.Discard
	}
	command := newRootCommand(env)
	command.SetArgs(args)
	// Unproven is an error: the demo would not go on.
	if err := command.ExecuteContext(ctx); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	plan, err := restore.ParsePlan(data)
	if err != nil {
		return nil, err
	}
	ports, err := store.FreePorts(len(plan.Members))
	if err != nil {
		return nil, err
	}
	var clients []string
	for i, m := range plan.Members {
		clients = append(clients, fmt.Sprintf("%s=http://127.0.0.1:%d", m.Name, ports[i]))
	}
	return d.startPlanned(ctx, plan, clients)
}

// proveQuorum compares with all that was acknowledged, and goes on with a watch.
func (d *demo) proveQuorum(ctx context.Context, endpoints []string, load *demoLoad, watch int64) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // a client that is done
	q := &d.report.Quorum
	if q.KeysCompared, err = load.compareKeys(ctx, c, math.MaxInt64); err != nil {
		return err
	}
	if err := load.proveLease(ctx, c); err != nil {
		return err
	}
	watching, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	event := <-c.Watch(watching, demoPrefix, clientv3.WithPrefix(), clientv3.WithRev(watch))
	if err := event.Err(); err != nil || len(event.Events) == 0 {
		return fmt.Errorf("a watch from revision %d does not go on: %w", watch, err)
	}
	q.HashKV, err = proveAgreement(ctx, c, endpoints)
	return err
}
