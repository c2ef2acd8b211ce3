package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/restore/recovery/sources"
)

const recoverCommand = "recover"

type recoverOptions struct {
	buildOptions
	file  string
	local []string

	repo        repoFlags
	identities  identityFlags
	source      string
	declareDead []string
	replace     []string
	members     string
	change      sources.MembersRequest // what these say of the new members, once they were checked

	writeConfig string // the file

	yes        bool
	acceptLoss string
	force      bool

	undo bool
}

func (o *recoverOptions) addFlags(f *pflag.FlagSet) {
	o.buildOptions.addFlags(f)
	o.repo.addFlags(f, true)
	o.identities.addFlags(f)
	f.StringVar(&o.writeConfig, "write-config", "", "only write a cluster `file` for --config, with the members that --repo or --local show")
	f.StringVar(&o.file, "config", "", "the cluster `file`: its hosts, how they are reached, its repositories")
	f.StringSliceVar(&o.local, "local", nil, "without a cluster file: the survivors' data directories on this machine, `member=dir[:wal-dir],…`")
	f.StringVar(&o.source, "source", "", "recover from this `candidate` of the plan, instead of the best one")
	f.StringSliceVar(&o.declareDead, "declare-dead", nil, "old `members` that will never start again, by name or ID")
	f.StringSliceVar(&o.replace, "replace", nil, "a new host, or a new name and host, for an old member: `old=url,…` or old=new=url")
	f.StringVar(&o.members, "members", "", "build only so many members, or only those named: a `number`, or name,… (default: all that the cluster had)")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.StringVar(&o.acceptLoss, "accept-loss", "", "for scripts, where the outcome is unproven: the `name` that would have to be typed")
	f.BoolVar(&o.force, "force", false, "with --config: recover even if the cluster serves, or if that is not known")
	o.repo.keys.addRollbackFlag(f)
	f.BoolVar(&o.undo, "undo", false, "with --config: put back the old members as they were")
	for name, usage := range map[string]string{
		"initial-cluster": "the new cluster's members, `name=peer-url,…` (default: those that the old one had)",
		"data-dir":        "with --local: the new members' data directories, with {name} for the member's name",
		"learners":        "the members that do not vote, or none (default: those that were learners)",
		"bump-revision":   "auto: only where something may be lost, beyond every known revision by 1,000,000,000; off; or an amount",
		"plan":            "with --to-snapshot: write the members' plan to this new `file`, by which 'restore --plan' builds them on each host",
		"latest":          "recover the newest state (the default)",
		"start":           "with --local: start the result with the bundled etcd and run it until interrupted",
		"to-snapshot":     "with --local: write one plain snapshot `file` instead of data directories, to restore from on each host",
	} {
		flag := f.Lookup(name)
		flag.Usage = usage
	}
}

func newRecoverCommand(g *globals) *cobra.Command {
	var o recoverOptions
	cmd := &cobra.Command{
		Use:   recoverCommand + " --config FILE | --write-config FILE … | --local m1=DIR,m2=DIR,… --data-dir 'NEW/{name}'",
		Short: "After a lost quorum: rebuild the cluster from all that is left",
		Long: `Rebuild a cluster that lost its quorum: look at every data directory and every
repository, show what the newest state is and what it would lose, ask, and build
the new cluster from it.

With --config it works on all hosts of the cluster file, on each of which it runs
'requorum host', through ssh or what the file names: it stops the clients and what is
left of the old members, sets their data aside, rebuilds and starts all members,
proves that they serve the same and what they should, and lets the clients back.
--undo takes it back.

--write-config writes the cluster file with the members that repositories (--repo) or data
directories (--local) show. You fill in the rest: before the disaster, or as its first step.

With --local, without a cluster file, it reads data directories that lie on this
machine and builds the new members here, in other places than those; --to-snapshot
writes one file instead, for 'restore --plan' on each host.

The outcome is proven where the logs that were read are those of a majority: then
every write that was acknowledged is in it, and clients go on where they were.
Otherwise it is unproven, status 6: the plan says what may be missing, the name of
the cluster has to be typed, or given with --accept-loss, and the revision is
raised so that clients list anew. Histories that went different ways are never
mixed: --source names the one to go on with.

A survivor is only read, and nothing is deleted. Killed at any point, the same
command goes on. While the cluster still has its quorum, replace single members
instead.`,
		Example: `  requorum recover --config cluster.yaml --dry-run
  requorum recover --config cluster.yaml
  requorum recover --config cluster.yaml --declare-dead m3 --replace m3=https://10.0.0.9:2380
  requorum recover --config cluster.yaml --undo
  requorum recover --write-config cluster.yaml --repo URL
  requorum recover --local m1=/mnt/m1,m2=/mnt/m2 --declare-dead m3 --repo URL --data-dir '/var/lib/etcd-{name}'
  requorum recover --local m1=/mnt/m1,m2=/mnt/m2 --to-snapshot state.db --plan plan.json --data-dir /var/lib/etcd
  requorum restore --plan plan.json --file state.db --name m1 --set-aside    # then on each host`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(g); err != nil {
				return err
			}
			switch {
			case o.writeConfig != "":
				return g.writeClusterFile(cmd.Context(), &o)
			case o.undo:
				return g.undoRecovery(cmd.Context(), &o)
			}
			return g.recoverCluster(cmd.Context(), &o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// What is of use in one of the two forms alone.
var (
	localFlags   = []string{"local", "repo", "identity", "limit-upload", "limit-download", "retry-for", "initial-cluster", "initial-cluster-token", "learners", "data-dir", "wal-dir", "plan", "set-aside", "owner", "target-version", "engine", "to-snapshot", "start", "client-urls", "start-timeout", "replay-engine"}
	clusterFlags = []string{"force", "undo"}
	// decidingFlags were decided when what is undone was begun.
	decidingFlags = slices.Concat(targetFlags, []string{"at-nearest", "source", "replace", "members", "bump-revision", "min-lease-ttl", "lease-checkpoint-persist", "source-version", "force", "allow-rollback"})
)

// check refuses what cannot be meant, before anything is read.
func (o *recoverOptions) check(g *globals) error {
	switch {
	case o.writeConfig != "":
		return o.checkWriteConfig(g)
	case o.file == "" && len(o.local) == 0 && len(o.repo.urls) == 0:
		return usageError{errors.New("nothing to recover: give --config FILE (--write-config writes one), or --local member=dir,… (and --repo URL, if there is a backup)")}
	case o.file != "":
		if err := g.unfit("with --config: the cluster file says it", localFlags...); err != nil {
			return err
		}
	default:
		if err := g.unfit("without a cluster file (--config)", clusterFlags...); err != nil {
			return err
		}
	}
	if err := o.buildOptions.check(g); err != nil {
		return err
	}
	var err error
	if o.change, err = o.newMembers(); err != nil {
		return err
	}
	if o.undo {
		if o.dryRun {
			return usageError{errors.New("--undo and --dry-run exclude each other: --undo says what it would do, and asks")}
		}
		return g.unfit("with --undo: it takes back what was decided", decidingFlags...)
	}
	if o.file == "" {
		return o.checkLocal(g)
	}
	return nil
}

// checkLocal is check for the form without a cluster file.
func (o *recoverOptions) checkLocal(g *globals) error {
	if o.req.InitialCluster != "" {
		if err := g.unfit("with --initial-cluster, which says all", "replace", "members"); err != nil {
			return err
		}
	}
	if o.toSnapshot == "" {
		if err := g.unfit("without --to-snapshot: all members are built here", "plan"); err != nil {
			return err
		}
	} else {
		if err := g.unfit("with --to-snapshot: no member is built", "set-aside", "engine", "start", "client-urls", "start-timeout"); err != nil {
			return err
		}
		if o.plan == "" {
			return g.unfit("with --to-snapshot, unless --plan plans the members for other hosts", "initial-cluster", "initial-cluster-token", "learners", "data-dir", "wal-dir", "replace", "members")
		}
		if err := o.checkPlanFolder(); err != nil {
			return err
		}
		if _, err := os.Stat(o.plan); err == nil {
			return usageError{fmt.Errorf("--plan %s is there already: name a new file, for a plan of the snapshot that is written now", o.plan)}
		}
	}
	if o.req.DataDir == "" && (o.toSnapshot == "" || o.plan != "") {
		return usageError{errors.New("no data directory to build in: give --data-dir, with {name} in it for several members on one host (or recover the cluster of --config FILE, which names them)")}
	}
	if g.output == "json" && !o.dryRun && !o.yes && o.acceptLoss == "" {
		return usageError{errors.New("with --output json nobody is asked: give --yes")}
	}
	return nil
}

// newMembers is what the options say of them.
func (o *recoverOptions) newMembers() (sources.MembersRequest, error) {
	var r sources.MembersRequest
	for _, text := range o.replace {
		old, rest, ok := strings.Cut(text, "=")
		name, url := "", rest
		if n, u, named := strings.Cut(rest, "="); named && !strings.Contains(n, "://") {
			name, url = n, u
		}
		if !ok || old == "" || !strings.Contains(url, "://") {
			return r, usageError{fmt.Errorf("--replace %s: want old=peer-url, such as m3=https://10.0.0.9:2380, or old=new=peer-url", text)}
		}
		i := slices.IndexFunc(r.Replace, func(p sources.Replacement) bool { return p.Old == old })
		if i < 0 {
			r.Replace, i = append(r.Replace, sources.Replacement{Old: old}), len(r.Replace)
		}
		p := &r.Replace[i]
		if name != "" && p.Name != "" && p.Name != name {
			return r, usageError{fmt.Errorf("--replace %s: member %s cannot become %s as well as %s", text, old, p.Name, name)}
		}
		p.Name = max(p.Name, name)
		p.PeerURLs = append(p.PeerURLs, url)
	}
	if o.members == "" {
		return r, nil
	}
	n, err := strconv.Atoi(o.members)
	switch {
	case err != nil:
		for name := range strings.SplitSeq(o.members, ",") {
			if name == "" {
				return r, usageError{fmt.Errorf("--members %s: want a number, or the names of members", o.members)}
			}
			r.Names = append(r.Names, name)
		}
	case n < 1:
		return r, usageError{fmt.Errorf("--members %d: want 1 or more", n)}
	default:
		r.Count = n
	}
	return r, nil
}
