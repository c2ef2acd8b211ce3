package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/verify/report"
)

// writeConfigFlags are the options that --write-config takes.
var writeConfigFlags = []string{"repo", "local", "identity", "source", "retry-for", "limit-download", "allow-rollback"}

// checkWriteConfig refuses what cannot be meant.
func (o *recoverOptions) checkWriteConfig(g *globals) error {
	unused := slices.DeleteFunc(slices.Concat(localFlags, clusterFlags, decidingFlags, []string{"config", "dry-run", "yes", "accept-loss", "declare-dead"}), func(n string) bool { return slices.Contains(writeConfigFlags, n) })
	if err := g.unfit("with --write-config: nothing is recovered", unused...); err != nil {
		return err
	}
	if len(o.repo.urls)+len(o.local) == 0 {
		return usageError{errors.New("--write-config finds the members in a repository or in data directories: give --repo URL or --local member=dir,…; without them copy deploy/recover/cluster.yaml and edit it")}
	}
	return nil
}

// writtenConfig is the JSON form of `requorum recover --write-config`.
type writtenConfig struct {
	File    string   `json:"file"`
	Cluster string   `json:"cluster"`
	Members []string `json:"members"`
	// Incomplete are the faults that the file has until it is filled in.
	Incomplete []string `json:"incomplete,omitempty"`
}

// writeClusterFile writes a cluster file with the members that a survey finds.
func (g *globals) writeClusterFile(ctx context.Context, o *recoverOptions) error {
	p, doubt, err := g.findMembers(ctx, o)
	if err != nil {
		if p != nil {
			err = errors.Join(g.printPreview(p), err)
		}
		return orRollback(ofURL(err))
	}
	for _, u := range p.Findings.Unread {
		g.note("%s: %s", u.Repository, u.Reason)
	}
	path, err := filepath.Abs(o.writeConfig)
	if err != nil {
		return err
	}
	cluster := p.Plan.ClusterID.String()
	text := clusterFileText(o, cluster, doubt, p.Plan.Members)
	done := writtenConfig{File: path, Cluster: cluster}
	for _, m := range p.Plan.Members {
		done.Members = append(done.Members, m.Name)
	}
	if _, err := recovery.ParseConfig([]byte(text), path); err != nil {
		done.Incomplete = strings.Split(err.Error(), "\n")
	}
	if err := writeNew(path, []byte(text)); err != nil {
		return err
	}
	if g.output == "json" {
		return g.printJSON(done)
	}
	g.printf("Wrote %s: cluster %s, %s. Complete the lines that say FILL IN, and keep it off the hosts.\n", path, cluster, report.Counted(len(done.Members), "host", "hosts"))
	if len(done.Incomplete) > 0 {
		fmt.Fprintln(g.stdout, "Its keys are not complete:")
	}
	for _, fault := range done.Incomplete {
		printItem(g.stdout, "  - ", fault)
	}
	g.printf("Then try it: %s\n", shell.Quote("requorum", "recover", "--config", path, "--dry-run"))
	return nil
}

// findMembers surveys what is left, and chooses the source whose members are written. A recovery
// asks the operator which of several histories is meant; the file only says so.
func (g *globals) findMembers(ctx context.Context, o *recoverOptions) (p *recovery.Preview, doubt string, err error) {
	req, err := g.rescueRequest(o)
	if err != nil {
		return nil, "", err
	}
	req.Build = nil
	events := newRescueEvents(g, nil)
	defer events.finish()
	req.Events = events
	p, err = recovery.Preflight(ctx, req)
	if need := new(sources.NeedSourceError); !errors.As(err, &need) {
		return p, "", err
	}
	usable := slices.DeleteFunc(slices.Clone(p.Plan.Candidates), func(c sources.Candidate) bool { return c.Source == nil })
	newest := slices.MaxFunc(usable, func(a, b sources.Candidate) int { return cmp.Compare(a.LastIndex, b.LastIndex) })
	req.Source = newest.Name
	p, err = recovery.Preflight(ctx, req)
	return p, "these are the members of " + newest.Name + "; other histories were found, too: see --dry-run", err
}

// clusterFileText returns the file, with a comment where the operator knows better.
func clusterFileText(o *recoverOptions, cluster, doubt string, members []snapshot.Member) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	list := func(key string, values []string) {
		if len(values) > 0 {
			line("%s: %s", key, quoted(values))
		}
	}
	file := func(key, path string) {
		if path != "" {
			line("%s: %s", key, quoted(absolute(path)))
		}
	}
	keys := o.repo.keys
	line("# The cluster file of `requorum recover --config`; docs/quorum-loss.md has every key.")
	line("# Keep it where you work when the cluster is gone. It holds no secret, and names some.")
	line("cluster: %s # FILL IN a name: you type it if acknowledged writes may be lost", quoted(cluster))
	line("# FILL IN if etcd has TLS or authentication:")
	line("# etcd: {cacert: ca.crt, cert: client.crt, key: client.key, user: root, password-file: password.txt}")
	list("repositories", placeNames(o.repo.urls))
	list("identity-files", absolutes(o.identities.files))
	line("# recipients: [age1…] # FILL IN if the repositories are encrypted: the agents' recipients")
	file("signing-key-file", keys.signingKey)
	if keys.trust != "" && keys.signingKey == "" {
		line("# signing-key-file: signing-key # FILL IN: a key that the trust file names")
	}
	file("trust-file", keys.trust)
	list("revoked-keys-files", absolutes(keys.revoked))
	line("defaults: # FILL IN; deploy/recover/cluster-kubeadm.yaml is for static pods")
	line("  data-dir: /var/lib/etcd")
	line("  kind: systemd # or static-pod, or command: {start: [program, argument], stop: [program]}")
	line("  systemd: {unit: etcd.service}")
	line("  # run: ssh -o BatchMode=yes admin@HOST sudo -n # for each host; by default ssh as root")
	line("hosts:")
	if doubt != "" {
		line("  # FILL IN: %s", doubt)
	}
	for _, m := range members {
		line("  - member: %s", quoted(m.Name))
		line("    peer-urls: %s", quoted(m.PeerURLs))
		if len(m.ClientURLs) > 0 {
			line("    client-urls: %s", quoted(m.ClientURLs))
		} else {
			line("    # client-urls: [\"https://HOST:2379\"] # FILL IN")
		}
	}
	return b.String()
}

func absolutes(paths []string) (all []string) {
	for _, path := range paths {
		all = append(all, absolute(path))
	}
	return all
}

// writeNew writes a file that must not exist, whole and durably, for its owner only.
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
