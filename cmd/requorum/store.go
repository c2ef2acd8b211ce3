package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/store"
)

// shutdownGrace is how long members may take to end when asked to: less than
// the 30 s after which Kubernetes kills a pod.
const shutdownGrace = 20 * time.Second

type storeOptions struct {
	member  store.MemberConfig
	cluster store.ClusterConfig
	set     *pflag.FlagSet
}

func (o *storeOptions) addFlags(f *pflag.FlagSet) {
	o.set = f
	m, s := &o.member, &o.member.Settings
	f.StringVar(&m.DataDir, "data-dir", "", "`folder` of the member, or of the cluster's members m1, m2 … with --members")
	f.IntVar(&o.cluster.Members, "members", 0, "run a local cluster of this many members: 1, 3 or 5")
	f.BoolVar(&o.cluster.Force, "force", false, "allow an even number of members")
	f.IntVar(&o.cluster.ClientPort, "client-port", 2379, "with --members: the first member's client port; the others follow 20000, 30000 … higher")
	f.BoolVar(&o.cluster.FreePorts, "free-ports", false, "with --members: use any free ports")

	f.StringVar(&m.Name, "name", "", "one member: its name")
	f.StringVar(&m.WALDir, "wal-dir", "", "one member: a `folder` of its own for the WAL")
	f.StringSliceVar(&m.ListenClientURLs, "listen-client-urls", nil, "one member: where to listen for clients (default http://127.0.0.1:2379)")
	f.StringSliceVar(&m.AdvertiseClientURLs, "advertise-client-urls", nil, "one member: the client URLs to advertise")
	f.StringSliceVar(&m.ListenPeerURLs, "listen-peer-urls", nil, "one member: where to listen for peers (default http://127.0.0.1:2380)")
	f.StringSliceVar(&m.AdvertisePeerURLs, "initial-advertise-peer-urls", nil, "one member: the peer URLs to advertise")
	f.StringSliceVar(&m.MetricsURLs, "listen-metrics-urls", nil, "one member: more URLs for metrics and health")
	f.StringVar(&m.InitialCluster, "initial-cluster", "", "one member: all members of a new cluster, name=peer-url,…")
	f.StringVar(&m.InitialClusterState, "initial-cluster-state", "", "one member: new or existing")

	f.StringVar(&s.Token, "initial-cluster-token", "", "token of a new cluster")
	f.StringVar(&s.ClientTLS.Cert, "cert-file", "", "certificate `file` for clients")
	f.StringVar(&s.ClientTLS.Key, "key-file", "", "key `file` for clients")
	f.StringVar(&s.ClientTLS.CA, "trusted-ca-file", "", "CA `file` that client certificates are verified with")
	f.BoolVar(&s.ClientTLS.ClientCertAuth, "client-cert-auth", false, "demand a client certificate")
	f.StringVar(&s.PeerTLS.Cert, "peer-cert-file", "", "certificate `file` for peers")
	f.StringVar(&s.PeerTLS.Key, "peer-key-file", "", "key `file` for peers")
	f.StringVar(&s.PeerTLS.CA, "peer-trusted-ca-file", "", "CA `file` that peers' certificates are verified with")
	f.BoolVar(&s.PeerTLS.ClientCertAuth, "peer-client-cert-auth", false, "demand a certificate of peers")
	f.BoolVar(&s.AllowPlaintext, "allow-plaintext", false, "allow to listen beyond this machine without TLS")
	bytesVar(f, &m.QuotaBytes, "quota-backend-bytes", "", "the database's largest size, such as 8GiB (default 2GiB)")
	f.StringVar(&s.AutoCompactionMode, "auto-compaction-mode", "", "periodic or revision")
	f.StringVar(&s.AutoCompactionRetention, "auto-compaction-retention", "", "how much history to keep, such as 8h or 1000; 0 keeps all")
	f.Uint64Var(&s.SnapshotCount, "snapshot-count", 0, "applied entries between the member's own snapshots (default etcd's)")
	durationVar(f, &s.Heartbeat, "heartbeat-interval", 0, 0, "time between heartbeats (default 100ms)")
	durationVar(f, &s.Election, "election-timeout", 0, 0, "time without a leader before an election (default 1s)")
	f.BoolVar(&s.InitialCorruptCheck, "experimental-initial-corrupt-check", false, "compare data with the other members before serving")
	f.StringVar(&s.LogLevel, "log-level", "warn", "etcd's log: debug, info, warn, error, panic or fatal")
	f.StringSliceVar(&s.LogOutputs, "log-outputs", []string{"stderr"}, "where etcd's log goes: stderr, stdout or files")
}

// clusterOnly and memberOnly are options that the other way of running would
// ignore.
var (
	clusterOnly = []string{"force", "client-port", "free-ports"}
	memberOnly  = []string{"name", "wal-dir", "listen-client-urls", "advertise-client-urls", "listen-peer-urls", "initial-advertise-peer-urls", "listen-metrics-urls", "initial-cluster", "initial-cluster-state"}
)

func (o *storeOptions) check() error {
	if o.member.DataDir == "" {
		return usageError{errors.New("no data directory: give --data-dir")}
	}
	unfit, how := clusterOnly, "with --members only"
	if o.cluster.Members != 0 {
		unfit, how = memberOnly, "without --members only"
	}
	for _, name := range unfit {
		if o.set.Changed(name) {
			return usageError{fmt.Errorf("--%s is of use %s", name, how)}
		}
	}
	if o.cluster.Members < 0 {
		return usageError{fmt.Errorf("--members %d: want 1, 3 or 5", o.cluster.Members)}
	}
	return nil
}

func newStoreCommand(g *globals) *cobra.Command {
	var o storeOptions
	cmd := &cobra.Command{
		Use:   "store --data-dir DIR [--members 3]",
		Short: "Run the bundled Raft store: one etcd member, or a local cluster",
		Long: `Run the bundled Raft store, which is etcd itself: any etcd client talks to it.

Without --members one member runs, with etcd's own options. With --members a
whole cluster runs in this process, its members m1, m2 … in folders of their own
below --data-dir; started again, it goes on with what is there. An even number
is refused unless forced: it survives no more failures than one member less.

Listening beyond this machine needs TLS, unless --allow-plaintext says otherwise.
On loopback without TLS every user of this machine can read and write.
SIGTERM and Ctrl-C end it cleanly.`,
		Example: `  requorum store --data-dir /var/lib/requorum --members 3
  requorum store --data-dir m1 --name m1 --listen-client-urls https://10.0.0.1:2379 \
      --cert-file server.crt --key-file server.key …`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			running, err := o.start(cmd.Context())
			if err != nil {
				return err
			}
			return g.serve(cmd.Context(), running, store.TLSFiles{})
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// runningStore is a member or a cluster.
type runningStore interface {
	Endpoints() []string
	Err() <-chan error
	Close(context.Context) error
}

func (o *storeOptions) start(ctx context.Context) (runningStore, error) {
	if o.cluster.Members == 0 {
		return store.StartMember(ctx, o.member)
	}
	o.cluster.DataDir, o.cluster.Settings = o.member.DataDir, o.member.Settings
	return store.StartCluster(ctx, o.cluster)
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

// serve says where the store serves, and runs it until a signal comes or it
// dies. files are those that clients need, where they were made for this run.
func (g *globals) serve(ctx context.Context, s runningStore, files store.TLSFiles) error {
	endpoints := strings.Join(s.Endpoints(), ",")
	if g.output == "json" {
		if err := g.printJSON(servingReport{true, s.Endpoints(), files.CA, files.Cert, files.Key}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(g.stdout, "Serving at %s\n", endpoints)
		if files.Cert != "" {
			fmt.Fprintf(g.stdout, "For this user alone: etcdctl --endpoints %s --cacert %s --cert %s --key %s …\n", endpoints, files.CA, files.Cert, files.Key)
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
