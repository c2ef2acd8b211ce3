package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/requorum/requorum/schedule/rescue/config"
)

// knownFlags say, without a cluster file, how the agents are reached: the rest comes
// from what they and the repositories know.
type knownFlags struct {
	cluster         string
	control         []string
	port            int
	ca, cert, key   string
	recipients      []string
	recipientsFiles []string
	conn            connFlags
	writeConfig     string
}

// defaultControlPort is the one of the examples in docs/agent-control.md.
const defaultControlPort = 2391

func (k *knownFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&k.cluster, "cluster", "", "without --config: what the cluster is called, `name` or ID; typed where the outcome is unproven (default: its ID)")
	f.StringSliceVar(&k.control, "control", nil, "without --config: the agents' control addresses, `member=host:port,…` (default: of the hosts in the newest backup's peer URLs)")
	f.IntVar(&k.port, "control-port", defaultControlPort, "without --config and --control: the control processes' `port`")
	f.StringVar(&k.ca, "control-ca", "", "without --config: the CA `file` of the control processes")
	f.StringVar(&k.cert, "control-cert", "", "without --config: the operator's certificate `file` for them")
	f.StringVar(&k.key, "control-key", "", "without --config: its key `file`")
	f.StringArrayVar(&k.recipients, "recipient", nil, "with --control-ca: encrypt the full snapshot at the end to this age `recipient`; may be given more than once")
	f.StringArrayVar(&k.recipientsFiles, "recipients-file", nil, "with --control-ca: the same, to the recipients in this `file`")
	f.StringVar(&k.writeConfig, "write-config", "", "with --control-ca: only write a cluster `file` for --config, of what the agents and the repositories know")
	k.conn.addFlagsAs(f, "endpoints", "with --control-ca: the members' client URLs, where neither a backup nor the members' data tells them")
}

// given tells whether this is the way that was chosen.
func (k *knownFlags) given() bool {
	return len(k.control) > 0 || k.ca != "" || k.cert != "" || k.key != "" || k.writeConfig != ""
}

// What is of use without a cluster file, beside agents, alone.
var (
	knownOnly = []string{"cluster", "control", "control-port", "control-ca", "control-cert", "control-key", "recipient", "recipients-file", "write-config",
		"endpoints", "discover-endpoints", "cacert", "cert", "key", "insecure-transport", "insecure-skip-tls-verify", "user", "password", "dial-timeout", "command-timeout"}
	// alsoKnown are those of the form without agents that name repositories.
	alsoKnown = []string{"repo", "identity"}
	// carryingOut are of no use where only a file is written.
	carryingOut = []string{"dry-run", "undo", "yes", "accept-loss", "update-flags", "take-over", "declare-dead"}
)

// check refuses what cannot be meant.
func (k *knownFlags) check(g *globals) error {
	if err := g.unfit("with --control-ca: agents work on the hosts", exceptFor(localFlags, alsoKnown)...); err != nil {
		return err
	}
	if k.writeConfig != "" {
		if err := g.unfit("with --write-config: nothing is recovered", slices.Concat(carryingOut, decidingFlags)...); err != nil {
			return err
		}
	}
	if len(k.control) > 0 {
		if err := g.unfit("with --control, which has the ports", "control-port"); err != nil {
			return err
		}
	}
	if k.port < 1 || k.port > 65535 {
		return usageError{fmt.Errorf("--control-port %d: want a port", k.port)}
	}
	var missing []string
	for _, f := range []struct{ name, value string }{{"--control-ca", k.ca}, {"--control-cert", k.cert}, {"--control-key", k.key}} {
		if f.value == "" {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		return usageError{fmt.Errorf("control processes are asked with a certificate of their CA: they need %s", strings.Join(missing, " and "))}
	}
	return nil
}

// exceptFor are the names that are not among others.
func exceptFor(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(others, n) })
}

// hosts reads --control.
func (k *knownFlags) hosts() (all []config.Host, err error) {
	for _, text := range k.control {
		name, address, ok := strings.Cut(text, "=")
		if !ok || name == "" || address == "" {
			return nil, usageError{fmt.Errorf("--control %s: want member=host:port, such as m1=10.0.0.1:%d", text, defaultControlPort)}
		}
		all = append(all, config.Host{Member: name, Control: address})
	}
	return all, nil
}

// optionOf is what a key of a cluster file is called here.
func optionOf(key string) string {
	switch {
	case strings.HasPrefix(key, "hosts"):
		return "--control (" + key + ")"
	case strings.HasPrefix(key, "etcd."):
		return "--" + strings.TrimPrefix(key, "etcd.")
	case key == "repositories":
		return "--repo"
	case key == "identity-files":
		return "--identity"
	}
	return "--" + strings.ReplaceAll(key, ".", "-")
}

// knownConfig is what a cluster file would say. Where a recovery is under way that
// the same options began, it is what was known then.
func (g *globals) knownConfig(ctx context.Context, o *recoverOptions) (*config.Config, error) {
	base, err := stateBase(g.getenv)
	if err != nil {
		return nil, err
	}
	given, err := o.givenHere()
	if err != nil {
		return nil, err
	}
	kept, err := findKept(base, given, o.undo)
	if err != nil {
		return nil, err
	}
	var k *known
	if kept != nil {
		k = kept
	} else if k, err = g.gather(ctx, o, given); err != nil {
		return nil, err
	}
	cfg, err := g.configOf(o, k, filepath.Join(base, folderOf(k.Cluster)))
	if err != nil {
		return nil, err
	}
	if !o.dryRun && !o.undo && o.known.writeConfig == "" {
		if err := k.keep(cfg.StateDir); err != nil {
			return nil, err
		}
	}
	if o.known.writeConfig == "" {
		g.note("cluster %s: the state of its recovery is in %s, where the same command goes on", cfg.Cluster, cfg.StateDir)
	}
	return cfg, nil
}

// configOf makes the configuration.
func (g *globals) configOf(o *recoverOptions, k *known, stateDir string) (*config.Config, error) {
	dial, err := o.known.conn.config(g)
	if err != nil {
		return nil, err
	}
	cfg := config.Config{
		Cluster:      k.Cluster,
		Control:      config.Control{CA: o.known.ca, Cert: o.known.cert, Key: o.known.key},
		Etcd:         config.Etcd{CACert: dial.CACert, Cert: dial.Cert, Key: dial.Key, User: dial.User, Dial: &dial, Endpoints: k.Endpoints},
		Repositories: k.Given.Repositories, IdentityFiles: o.identities.files,
		Recipients: o.known.recipients, RecipientsFiles: o.known.recipientsFiles,
		StateDir: stateDir, Hosts: k.Hosts,
	}
	for _, u := range dial.Endpoints {
		if !slices.Contains(cfg.Etcd.Endpoints, u) {
			cfg.Etcd.Endpoints = append(cfg.Etcd.Endpoints, u)
		}
	}
	made, err := config.Given(cfg, optionOf)
	if err != nil {
		return nil, usageError{err}
	}
	return made, nil
}

// gather finds out what the options leave open.
func (g *globals) gather(ctx context.Context, o *recoverOptions, given given) (*known, error) {
	k := &known{Cluster: o.known.cluster, Given: given}
	var err error
	if k.Hosts, err = o.known.hosts(); err != nil {
		return nil, err
	}
	stored, err := g.storedClusters(ctx, o)
	if err != nil {
		return nil, err
	}
	one, err := pick(stored, k.Cluster)
	if err != nil && len(k.Hosts) == 0 {
		return nil, err
	}
	if len(k.Hosts) == 0 {
		if one == nil {
			return nil, usageError{errors.New("which hosts there are is not known: give --control member=host:port,…, or --repo URL of a repository that holds a backup of the cluster")}
		}
		k.Hosts = one.hosts(g, o.known.port)
	}
	if k.Cluster == "" {
		switch {
		case one != nil:
			k.Cluster = one.id.String()
		default:
			if k.Cluster, err = g.clusterOfHosts(ctx, o, k.Hosts); err != nil {
				return nil, err
			}
			one, _ = pick(stored, k.Cluster) // it may be in none
		}
	}
	if one != nil {
		for _, m := range one.members {
			k.Endpoints = append(k.Endpoints, m.ClientURLs...)
		}
	}
	return k, nil
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
