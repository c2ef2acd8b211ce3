package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
)

// Defaults of ClusterConfig.
const (
	DefaultMembers    = 3
	DefaultClientPort = 2379
)

// ClusterConfig says how to run all members of a cluster in this process.
type ClusterConfig struct {
	// DataDir holds one folder a member: m1, m2 …
	DataDir string
	// Members is 1, 3, 5 or 7. 0 is as many as DataDir holds, or 3.
	Members int
	// Force allows an even number, and starting fewer members than the cluster
	// has.
	Force bool

	// Host is listened on; empty is 127.0.0.1.
	Host string
	// ClientPort is the first member's; 0 is 2379. Its peer port is one more; the
	// second member has 20000 more, the third 30000 and so on.
	ClientPort int
	// FreePorts takes any free ports instead; members that exist keep theirs.
	FreePorts bool

	Settings
}

// LocalCluster is a cluster whose members all run in this process.
type LocalCluster struct {
	members []*Member
	dying   chan error
}

// portAttempts is how often new free ports are tried when somebody else took
// one between finding and listening.
const portAttempts = 5

// StartCluster starts all members at the same time and waits until each is
// ready to serve, or ctx ends. When one fails, all are stopped. Existing
// folders are started as what they are; a contradiction to what is asked is
// refused. The caller closes the cluster.
func StartCluster(ctx context.Context, config ClusterConfig) (*LocalCluster, error) {
	for attempt := 1; ; attempt++ {
		plan, fresh, err := config.plan()
		if err != nil {
			return nil, err
		}
		cluster, err := StartMembers(ctx, plan)
		if err == nil {
			return cluster, nil
		}
		if !config.FreePorts || !fresh || attempt == portAttempts || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		// These folders were made a moment ago, by this call.
		for _, m := range plan {
			if err := os.RemoveAll(m.DataDir); err != nil {
				return nil, fmt.Errorf("store: starting again with other ports: %w", err)
			}
		}
	}
}

// StartMembers starts the members of one cluster at the same time and waits
// until each is ready to serve, or ctx ends. When one fails, all are stopped.
// The caller closes the cluster.
func StartMembers(ctx context.Context, plan []MemberConfig) (*LocalCluster, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cluster := &LocalCluster{members: make([]*Member, len(plan))}
	failures := make([]error, len(plan))
	var wg sync.WaitGroup
	for i, m := range plan {
		wg.Go(func() {
			if cluster.members[i], failures[i] = StartMember(ctx, m); failures[i] != nil {
				cancel(errOtherFailed) // the others would wait for this one's vote
			}
		})
	}
	wg.Wait()
	if err := firstFailure(failures); err != nil {
		cluster.members = slices.DeleteFunc(cluster.members, func(m *Member) bool { return m == nil })
		cluster.Kill()
		return nil, err
	}
	cluster.dying = make(chan error, len(plan))
	go cluster.watch()
	return cluster, nil
}

var errOtherFailed = errors.New("another member of the cluster failed to start")

// firstFailure prefers a failure of its own to one that another caused.
func firstFailure(failures []error) error {
	var caused error
	for _, err := range failures {
		if err != nil && !errors.Is(err, errOtherFailed) {
			return err
		}
		caused = cmp.Or(caused, err)
	}
	return caused
}

func (c *LocalCluster) watch() {
	defer close(c.dying)
	var wg sync.WaitGroup
	for _, m := range c.members {
		wg.Go(func() {
			if err := <-m.Err(); err != nil {
				c.dying <- err
			}
		})
	}
	wg.Wait()
}

// Members are in the order of their names.
func (c *LocalCluster) Members() []*Member { return slices.Clone(c.members) }

// Endpoints are the client URLs of all members.
func (c *LocalCluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.Endpoints()...)
	}
	return all
}

// Err gives one error for each member that ends by itself, and is closed when
// all have ended.
func (c *LocalCluster) Err() <-chan error { return c.dying }

// Close stops all members at the same time, cleanly, and returns when all is
// on disk. Nobody hands over a leadership: nobody stays. When ctx ends before,
// it returns the context's error and the members go on stopping.
func (c *LocalCluster) Close(ctx context.Context) error {
	return c.each(func(m *Member) error { return m.end(ctx, false) })
}

// Kill stops all members at once.
func (c *LocalCluster) Kill() {
	_ = c.each(func(m *Member) error { m.Kill(); return nil }) // always nil
}

func (c *LocalCluster) each(do func(*Member) error) error {
	failures := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { failures[i] = do(m) })
	}
	wg.Wait()
	return errors.Join(failures...)
}
