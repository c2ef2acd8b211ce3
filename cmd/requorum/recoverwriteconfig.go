package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
)

// writeFlags say what --write-config writes.
type writeFlags struct {
	file            string
	cluster         string
	hosts           []string
	run             string
	kind            supervisor.Kind
	recipients      []string
	recipientsFiles []string
	cacert          string
	cert, key       string
}

func (w *writeFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&w.file, "write-config", "", "only write a cluster `file` for --config, of the members of the newest backup (--repo) or of --host")
	f.StringVar(&w.cluster, "cluster", "", "with --write-config: what the cluster is called, `name` or ID; typed where the outcome is unproven (default: its ID)")
	f.StringSliceVar(&w.hosts, "host", nil, "with --write-config: the members' hosts, `member=address,…` (default: those of the newest backup's peer URLs)")
	f.StringVar(&w.run, "run", "", "with --write-config: the `command` through which a program is run on a host, with {host} for its address (default: ssh as root)")
	choiceVar(f, &w.kind, "kind", "", "with --write-config: how members are stopped and started: systemd (unit etcd.service) or static-pod (as kubeadm writes it)", supervisor.Systemd, supervisor.StaticPod)
	f.StringArrayVar(&w.recipients, "recipient", nil, "with --write-config: encrypt the full snapshot at the end to this age `recipient`; may be given more than once")
	f.StringArrayVar(&w.recipientsFiles, "recipients-file", nil, "with --write-config: the same, to the recipients in this `file`")
	f.StringVar(&w.cacert, "cacert", "", "with --write-config: the CA `file` of etcd's servers")
	f.StringVar(&w.cert, "cert", "", "with --write-config: a client's certificate `file` for etcd")
	f.StringVar(&w.key, "key", "", "with --write-config: its key `file`")
}

// writeOnly are of use with --write-config alone.
var writeOnly = []string{"cluster", "host", "run", "kind", "recipient", "recipients-file", "cacert", "cert", "key"}

// check refuses what cannot be meant.
func (w *writeFlags) check(g *globals) error {
	used := []string{"repo", "identity", "retry-for", "limit-download", "data-dir", "wal-dir"}
	unused := slices.DeleteFunc(slices.Concat(localFlags, clusterFlags, decidingFlags, []string{"config", "dry-run", "yes", "accept-loss", "declare-dead"}), func(n string) bool { return slices.Contains(used, n) })
	if err := g.unfit("with --write-config: nothing is recovered", unused...); err != nil {
		return err
	}
	if w.kind == "" {
		return usageError{errors.New("give --kind systemd or static-pod: how members are stopped and started (docs/quorum-loss.md has others)")}
	}
	if w.cluster != "" && !supervisor.PlainName.MatchString(w.cluster) {
		return usageError{fmt.Errorf("--cluster %s: want letters, digits, dots, underscores and hyphens", w.cluster)}
	}
	return nil
}

// given are the hosts of --host.
func (w *writeFlags) given() (all []recovery.HostConfig, err error) {
	for _, text := range w.hosts {
		name, address, ok := strings.Cut(text, "=")
		if !ok || name == "" || address == "" || strings.ContainsAny(address, "/ ") {
			return nil, usageError{fmt.Errorf("--host %s: want member=address, such as m1=10.0.0.1", text)}
		}
		all = append(all, recovery.HostConfig{Member: name, PeerURLs: []string{"https://" + net.JoinHostPort(strings.Trim(address, "[]"), "2380")}})
	}
	return all, nil
}

// writtenConfig is the JSON form of `requorum recover --write-config`.
type writtenConfig struct {
	File    string        `json:"file"`
	Cluster string        `json:"cluster"`
	Hosts   []writtenHost `json:"hosts"`
	// Silent are the members whose hosts could not be worked with.
	Silent []string `json:"silent,omitempty"`
}

type writtenHost struct {
	Member string `json:"member"`
	Run    string `json:"run"`
}

// writeClusterFile writes what a recovery has to know, while it can still be asked
// for.
func (g *globals) writeClusterFile(ctx context.Context, o *recoverOptions) error {
	w := &o.write
	hosts, err := w.given()
	if err != nil {
		return err
	}
	stored, err := g.newestStored(ctx, o)
	switch {
	case err != nil:
		return err
	case len(hosts) == 0 && stored == nil:
		return usageError{errors.New("no host is known: give --host member=address,…, or --repo URL of a repository that holds a backup of the cluster")}
	case len(hosts) == 0:
		hosts = g.hostsOf(stored)
	case stored != nil: // which knows their URLs better
		for i, h := range hosts {
			for _, m := range stored.Facts.Members {
				if m.Name == h.Member {
					hosts[i].PeerURLs, hosts[i].ClientURLs = m.PeerURLs, m.ClientURLs
				}
			}
		}
	}
	if w.cluster == "" && stored != nil {
		w.cluster = snapshot.ID(stored.Timeline.ClusterID).String()
	}
	if w.cluster == "" {
		return usageError{errors.New("without a backup the cluster's name is not known: give --cluster NAME")}
	}
	path, err := filepath.Abs(w.file)
	if err != nil {
		return err
	}
	text := clusterFileText(o, hosts)
	cfg, err := recovery.ParseConfig([]byte(text), path)
	if err != nil {
		return usageError{fmt.Errorf("what would be written is no cluster file: %w", err)}
	}
	if err := writeNew(path, []byte(text)); err != nil {
		return err
	}
	answers := askHosts(ctx, cfg)
	done := writtenConfig{File: path, Cluster: cfg.Cluster}
	for i, a := range answers {
		h := cfg.Hosts[i]
		done.Hosts = append(done.Hosts, writtenHost{h.Member, strings.Join(h.Command(), " ")})
		if a.err != nil {
			done.Silent = append(done.Silent, h.Member)
			g.note("%v", a.err)
			continue
		}
		for _, fault := range a.Faults {
			g.note("host of member %s: %s", h.Member, fault)
		}
	}
	if g.output == "json" {
		return g.printJSON(done)
	}
	g.printf("Wrote %s: cluster %s, %s. Look it through, and keep it off the hosts.\n", path, cfg.Cluster, report.Counted(len(cfg.Hosts), "host", "hosts"))
	g.printf("Try it: requorum recover --config %s --dry-run\n", path)
	return nil
}

// askedHost is what a host said, or why it said nothing.
type askedHost struct {
	*host.Member
	err error
}

// askPatience bounds a question to a host.
const askPatience = 20 * time.Second

// askHosts asks all hosts how their members are, at once. It gives them no secret: a
// bucket may have named them, and nobody has looked the file through yet.
func askHosts(ctx context.Context, cfg *recovery.Config) []askedHost {
	ctx, cancel := context.WithTimeoutCause(ctx, askPatience, errors.New("no answer within "+askPatience.String()))
	defer cancel()
	lines := recovery.Lines(cfg, version, nil, nil)
	answers := make([]askedHost, len(lines))
	var all sync.WaitGroup
	for i, line := range lines {
		all.Go(func() {
			defer line.Close()
			answers[i].Member, answers[i].err = line.As("").Member(ctx)
		})
	}
	all.Wait()
	return answers
}

// clusterFileText is the file, with what a reader has to know beside it.
func clusterFileText(o *recoverOptions, hosts []recovery.HostConfig) string {
	w := &o.write
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# The cluster file of `requorum recover --config`; docs/quorum-loss.md has every key.")
	line("# Keep it where you work when the cluster is gone. It holds no secret, and names some.")
	line("cluster: %s # has to be typed where acknowledged writes may be lost", quoted(w.cluster))
	if w.cacert != "" || w.cert != "" {
		line("etcd:")
		for _, k := range [][2]string{{"cacert", w.cacert}, {"cert", w.cert}, {"key", w.key}} {
			if k[1] != "" {
				line("  %s: %s", k[0], quoted(k[1]))
			}
		}
	} else {
		line("# etcd: {cacert: ca.crt, cert: client.crt, key: client.key, user: root, password-file: password.txt}")
	}
	for _, k := range []struct {
		key    string
		values []string
	}{{"repositories", placeNames(o.repo.urls)}, {"identity-files", o.identities.files}, {"recipients", w.recipients}, {"recipients-files", w.recipientsFiles}} {
		if len(k.values) > 0 {
			line("%s: %s", k.key, quoted(k.values))
		}
	}
	for _, k := range [][2]string{{"signing-key-file", o.repo.keys.signingKey}, {"trust-file", o.repo.keys.trust}} {
		if k[1] != "" {
			line("%s: %s", k[0], quoted(k[1]))
		}
	}
	if len(o.repo.keys.revoked) > 0 {
		line("revoked-keys-files: %s", quoted(o.repo.keys.revoked))
	}
	line("defaults:")
	dataDir := o.req.DataDir
	if dataDir == "" {
		dataDir = "/var/lib/etcd"
	}
	line("  data-dir: %s", quoted(dataDir))
	if o.req.WALDir != "" {
		line("  wal-dir: %s", quoted(o.req.WALDir))
	}
	line("  kind: %s", w.kind)
	if w.kind == supervisor.Systemd {
		line("  systemd: {unit: etcd.service}")
	} else {
		line("  static-pod: {manifest: /etc/kubernetes/manifests/etcd.yaml}")
		line("  clients:")
		line("    - {name: kube-apiserver, kind: static-pod, process: kube-apiserver, static-pod: {manifest: /etc/kubernetes/manifests/kube-apiserver.yaml}}")
	}
	line("hosts:")
	for _, h := range hosts {
		line("  - member: %s", quoted(h.Member))
		line("    peer-urls: %s", quoted(h.PeerURLs))
		if len(h.ClientURLs) > 0 {
			line("    client-urls: %s", quoted(h.ClientURLs))
		} else {
			line("    # client-urls: [\"https://HOST:2379\"] # to ask whether the cluster serves while its members run")
		}
		if w.run != "" {
			line("    run: %s", quoted(strings.ReplaceAll(w.run, "{host}", h.Hostname())))
		}
	}
	return b.String()
}

// writeNew writes a file that must not be there yet, whole and durably, for its owner
// alone.
func writeNew(path string, data []byte) error {
	f, err := safedir.Create(path)
	if errors.Is(err, fs.ErrExist) {
		return usageError{fmt.Errorf("%s is there already, and is not overwritten: name another file, or move it away", path)}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, safedir.Remove(path))
	}
	return safedir.Sync(filepath.Dir(path))
}

// quoted writes a text, or a list of them, as JSON, which is YAML as well.
func quoted(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return `""` // texts always can be
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// newestStored is the full snapshot in the repositories whose members are meant: the
// newest of the cluster whose ID --cluster is, or else of the history that restore takes.
// nil without an error is none. What cannot be read stops nothing where another one answers,
// or the hosts are given.
func (g *globals) newestStored(ctx context.Context, o *recoverOptions) (newest *snapshot.Manifest, err error) {
	opened, err := o.repo.openOthers(ctx, g)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	failed := opened.Errors
	var repos []*repository.Repository
	var catalogs []*snapshot.Catalog
	for _, repo := range opened.Opened {
		c, err := snapshot.ReadCatalog(ctx, repo)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		repos, catalogs = append(repos, repo), append(catalogs, c)
	}
	if newest = newestOfCluster(catalogs, o.write.cluster); newest == nil {
		var more []error
		newest, more = newestRestored(ctx, repos, catalogs)
		failed = append(failed, more...)
	}
	if newest == nil && len(o.write.hosts) == 0 {
		return nil, errors.Join(failed...)
	}
	for _, err := range failed {
		g.note("%v", err)
	}
	return newest, nil
}

// newestOfCluster is the newest full snapshot of the cluster with this ID; nil where there
// is none: a name may look like an ID.
func newestOfCluster(catalogs []*snapshot.Catalog, cluster string) (newest *snapshot.Manifest) {
	var id snapshot.ID
	if id.UnmarshalText([]byte(cluster)) != nil {
		return nil
	}
	for _, c := range catalogs {
		for _, m := range c.Manifests {
			if m.Timeline.ClusterID == uint64(id) && (newest == nil || m.Finished.After(newest.Finished)) {
				newest = m
			}
		}
	}
	return newest
}

// newestRestored is the newest of what restore takes of each repository, if that is of one
// cluster, and why it is not known of some.
func newestRestored(ctx context.Context, repos []*repository.Repository, catalogs []*snapshot.Catalog) (newest *snapshot.Manifest, failed []error) {
	var choices []string
	for i, c := range catalogs {
		m, err := walreplay.NewArchives(repos[i]).Newest(ctx, c)
		var several *snapshot.SeparateError
		var damaged *snapshot.DamagedManifestError
		switch {
		case errors.As(err, &several):
			for _, t := range several.Timelines {
				choices = append(choices, c.Summary(t))
			}
		case errors.As(err, &damaged): // an older one knows members as well
			m = c.Newest(damaged.Timeline)
			failed = append(failed, err)
		case err != nil && !errors.Is(err, snapshot.ErrNoBackup):
			failed = append(failed, err)
		}
		if m == nil {
			continue
		}
		if newest == nil || newest.Timeline.ClusterID != m.Timeline.ClusterID {
			choices = append(choices, c.Summary(m.Timeline))
		}
		if newest == nil || m.Finished.After(newest.Finished) {
			newest = m
		}
	}
	if len(choices) > 1 {
		return nil, append(failed, usageError{fmt.Errorf("the repositories hold several histories: say which cluster with --cluster ID, the first part of a timeline:\n  %s", strings.Join(choices, "\n  "))})
	}
	return newest, failed
}

// hostsOf are those of a full snapshot's members, by their URLs.
func (g *globals) hostsOf(stored *snapshot.Manifest) (all []recovery.HostConfig) {
	for _, m := range stored.Facts.Members {
		if m.Name == "" || len(m.PeerURLs) == 0 {
			g.note("member %s in the newest backup has no name or no peer URL: its host is known only with --host", m.ID)
			continue
		}
		all = append(all, recovery.HostConfig{Member: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs})
	}
	return all
}
