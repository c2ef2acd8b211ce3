package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/shell"
)

// shutdownGrace is how long members may take to end: less than the 30 s after which
// Kubernetes kills a pod.
const shutdownGrace = 20 * time.Second

func newStoreCommand(g *globals) *cobra.Command {
	var c store.ClusterConfig
	cmd := &cobra.Command{
		Use:   "store {--members 3 --data-dir DIR | -- ETCD-FLAGS…}",
		Short: "Run the bundled etcd: one member, or a local cluster",
		Long: `Run the bundled etcd. Behind -- it takes etcd's own flags, reads etcd's environment
variables and exits as etcd does: 'requorum store -- --help' lists them.

With --members a whole cluster runs in this process on loopback, without TLS: every
user of this machine can read and write. Its members m1, m2 … have their directories
in --data-dir. Started again, it continues with its data, at the same addresses.
SIGTERM and Ctrl-C end it cleanly.`,
		Example: `  requorum store --members 3 --data-dir cluster
  requorum store -- --name m1 --data-dir m1 --listen-client-urls https://10.0.0.1:2379 …`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			const want = "give --members 3 and --data-dir for a local cluster, or pass etcd's own flags after --"
			switch dash := cmd.ArgsLenAtDash(); {
			case dash == 0:
				if err := g.unfit("with etcd's own flags: pass them after --", "members", "data-dir", "client-port", "free-ports"); err != nil {
					return err
				}
				runEtcd(args)
				return nil
			case len(args) > 0:
				return usageError{fmt.Errorf("unknown argument %q: %s", args[0], want)}
			case c.Members == 0 || c.DataDir == "":
				return usageError{errors.New(want)}
			}
			cluster, err := store.StartCluster(cmd.Context(), c)
			if err != nil {
				return err
			}
			return g.serve(cmd.Context(), cluster, store.TLSFiles{})
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.Members, "members", 0, "run a local cluster of 1, 3 or 5 members")
	f.StringVar(&c.DataDir, "data-dir", "", "`directory` of the local cluster's members m1, m2 …")
	f.IntVar(&c.ClientPort, "client-port", 2379, "first client port of a new local cluster; the others are 20000, 30000 … higher")
	f.BoolVar(&c.FreePorts, "free-ports", false, "use any free ports for a new local cluster")
	return cmd
}

// runEtcd runs etcd's main, which ends the process.
func runEtcd(args []string) {
	// etcd handles signals itself, and dies of the one that ended it.
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	os.Args = append([]string{"etcd"}, args...) // some of etcd's commands read it
	etcdmain.Main(os.Args)
}

// servingReport is the JSON line that says that a store serves.
type servingReport struct {
	Serving   bool     `json:"serving"`
	Endpoints []string `json:"endpoints"`
	// The files that clients need, as etcdctl's flags are called; with --start.
	CACert string `json:"cacert,omitempty"`
	Cert   string `json:"cert,omitempty"`
	Key    string `json:"key,omitempty"`
}

// serve prints where the cluster serves, and runs it until a signal comes or it
// dies. files are those that clients need, if they were made for this run.
func (g *globals) serve(ctx context.Context, s *store.LocalCluster, files store.TLSFiles) error {
	endpoints := strings.Join(s.Endpoints(), ",")
	if g.output == "json" {
		if err := g.printJSON(servingReport{true, s.Endpoints(), files.CA, files.Cert, files.Key}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(g.stdout, "Serving at %s\n", endpoints)
		if files.Cert != "" {
			fmt.Fprintf(g.stdout, "For this user alone: %s …\n", shell.Quote("ETCDCTL_ENDPOINTS="+endpoints, "ETCDCTL_CACERT="+files.CA, "ETCDCTL_CERT="+files.Cert, "ETCDCTL_KEY="+files.Key, "etcdctl"))
		}
	}
	var died error
	select {
	case <-ctx.Done():
	case died = <-s.Err():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := errors.Join(died, s.Close(closing)); err != nil {
		return err
	}
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return nil // this is how it is meant to end
	}
	return context.Cause(ctx)
}
