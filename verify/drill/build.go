package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
)

// build makes the members' data directories, as a restore does.
func (d *drill) build(ctx context.Context) error {
	request, err := d.request()
	if err != nil {
		return err
	}
	done := d.phase(PhaseBuild)
	if d.plan, err = restore.NewPlan(ctx, request); err != nil {
		if errors.Is(err, restore.ErrTooOld) {
			return unable("it is newer than the bundled etcd %s: %w", version.Version, err)
		}
		return fmt.Errorf("plan the cluster: %w", err)
	}
	_, err = restore.Execute(ctx, d.plan, d.image, restore.ExecOptions{
		Logger: d.options.Logger,
		Progress: func(p restore.Progress) {
			if p.Phase == restore.PhaseWrite {
				d.options.Progress(PhaseBuild, p.Done, p.Total)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("build the cluster: %w", err)
	}
	done()
	d.check.Bytes = d.image.Size()
	d.check.Compared = fmt.Sprintf("a cluster of %s, of etcd %s, was built from it", d.size(), version.Version)
	return nil
}

// request is a cluster of the original size, with members and addresses of its
// own.
func (d *drill) request() (restore.Request, error) {
	voters, learners := d.options.Members, 0
	if voters == 0 {
		voters, learners = sizeOf(d.facts.Members)
	}
	ports, err := store.FreePorts(2 * (voters + learners))
	if err != nil {
		return restore.Request{}, unable("find ports for %d members: %w", voters+learners, err)
	}
	request := restore.Request{
		Image: d.image,
		// Revisions are to be those of the image; no client ever saw a later one
		// of this cluster.
		Bump:          restore.BumpRequest{Mode: restore.BumpOff},
		DataDir:       filepath.Join(d.scratch.Path(), "{name}"),
		TargetVersion: version.Cluster(version.Version),
	}
	d.clients = map[string]string{}
	var cluster []string
	for i := range voters + learners {
		name := fmt.Sprintf("m%d", i+1)
		cluster = append(cluster, fmt.Sprintf("%s=http://127.0.0.1:%d", name, ports[2*i]))
		d.clients[name] = fmt.Sprintf("http://127.0.0.1:%d", ports[2*i+1])
		if i >= voters {
			request.Learners = append(request.Learners, name)
		}
	}
	request.InitialCluster = strings.Join(cluster, ",")
	return request, nil
}

// sizeOf counts voters and learners. An image without members, as some tools
// leave them, is tried with one.
func sizeOf(members []snapshot.Member) (voters, learners int) {
	for _, m := range members {
		if m.IsLearner {
			learners++
		} else {
			voters++
		}
	}
	return max(voters, 1), learners
}

// size says how large the cluster is.
func (d *drill) size() string {
	voters, learners := 0, 0
	for _, m := range d.plan.Members {
		if m.Learner {
			learners++
		} else {
			voters++
		}
	}
	text := sizeText(voters, learners)
	if original := sizeText(sizeOf(d.facts.Members)); original != text {
		text += " (it had " + original + ")"
	}
	return text
}

func sizeText(voters, learners int) string {
	text := plural(voters, "member")
	if learners > 0 {
		text += " and " + plural(learners, "learner")
	}
	return text
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// clear removes the members that were built.
func (d *drill) clear() error {
	for _, m := range d.plan.Members {
		if err := os.RemoveAll(m.DataDir); err != nil {
			return err
		}
	}
	return nil
}

// database is the file of a member.
func database(m restore.Member) string {
	return filepath.Join(m.DataDir, "member", "snap", "db")
}
