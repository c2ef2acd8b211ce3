package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/rescue/config"
	"github.com/requorum/requorum/snapshot"
)

// writtenConfig is the JSON form of `requorum recover --write-config`.
type writtenConfig struct {
	File    string        `json:"file"`
	Cluster string        `json:"cluster"`
	Hosts   []writtenHost `json:"hosts"`
	// Silent are the members whose control processes did not answer.
	Silent []string `json:"silent,omitempty"`
}

type writtenHost struct {
	Member  string `json:"member"`
	Control string `json:"control"`
}

// writeClusterFile writes what a recovery has to know, while it can still be asked
// for.
func (g *globals) writeClusterFile(ctx context.Context, o *recoverOptions) error {
	given, err := o.givenHere()
	if err != nil {
		return err
	}
	k, err := g.gather(ctx, o, given)
	if err != nil {
		return err
	}
	cfg, err := g.configOf(o, k, "not written")
	if err != nil {
		return err
	}
	stored, err := g.storedClusters(ctx, o)
	if err != nil {
		return err
	}
	of, _ := pick(stored, k.Cluster) // without one nothing is said of URLs
	answers := askHosts(ctx, &o.known, cfg.Hosts)
	path, err := filepath.Abs(o.known.writeConfig)
	if err != nil {
		return err
	}
	text := clusterFileText(cfg, of, answers)
	if _, err := config.Parse([]byte(text), path); err != nil {
		return fmt.Errorf("what would be written is no cluster file: %w", err)
	}
	if err := writeNew(path, []byte(text)); err != nil {
		return err
	}
	done := writtenConfig{File: path, Cluster: cfg.Cluster}
	for i, a := range answers {
		done.Hosts = append(done.Hosts, writtenHost{cfg.Hosts[i].Member, cfg.Hosts[i].Control})
		if a.err != nil {
			done.Silent = append(done.Silent, cfg.Hosts[i].Member)
			g.note("the control process of %s does not answer, and is written down as given: %v", cfg.Hosts[i].Member, a.err)
		}
	}
	if dial := cfg.Etcd.Dial; dial.User != "" || dial.InsecureSkipTLSVerify {
		g.note("no password is written, and no way to accept any certificate: see etcd in %s", path)
	}
	if g.output == "json" {
		return g.printJSON(done)
	}
	g.printf("Wrote %s: cluster %s, %d %s. Look it through, and keep it off the hosts, with the certificates that it names.\n", path, cfg.Cluster, len(cfg.Hosts), plural(len(cfg.Hosts), "host", "hosts"))
	g.printf("Try it: requorum recover --config %s --dry-run\n", path)
	return nil
}

// clusterFileText is the file, with what a reader has to know beside it.
func clusterFileText(c *config.Config, of *storedCluster, answers []askedHost) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# The cluster file of `requorum recover --config`, written by it on %s.", time.Now().UTC().Format(time.DateOnly))
	line("# docs/quorum-loss.md has every key. Keep it where you work when the cluster is gone, off")
	line("# its hosts; write it anew when members come or go. It holds no secret, and names some.")
	line("")
	line("# Has to be typed where acknowledged writes may be lost: a name that you know it by.")
	line("cluster: %s", quoted(c.Cluster))
	line("")
	line("# As whom the control processes are asked (docs/agent-control.md).")
	line("control:")
	configKeys(line, "ca", c.Control.CA, "cert", c.Control.Cert, "key", c.Control.Key)
	line("")
	line("# As whom the cluster itself is asked: whether it serves, and for the proof.")
	writeEtcd(line, c.Etcd)
	if len(c.Repositories) > 0 {
		line("")
		line("# Backups and the archived log. Credentials come from the environment.")
		line("repositories: %s", quoted(c.Repositories))
	}
	if len(c.IdentityFiles) > 0 {
		line("")
		line("# What opens them, and for whom the full snapshot at the end is encrypted.")
		line("identity-files: %s", quoted(c.IdentityFiles))
		if len(c.Recipients) > 0 {
			line("recipients: %s", quoted(c.Recipients))
		}
		if len(c.RecipientsFiles) > 0 {
			line("recipients-files: %s", quoted(c.RecipientsFiles))
		}
	}
	line("")
	line("# The journal of a recovery. Default: this file's name with .recovery behind it.")
	line("# state-dir: /var/lib/requorum-recover")
	line("")
	line("# URLs that are left out are those that the cluster knew; what stands here wins.")
	line("hosts:")
	for i, h := range c.Hosts {
		writeHost(line, h, of, answers[i])
	}
	return b.String()
}

func writeEtcd(line func(string, ...any), e config.Etcd) {
	if e.CACert == "" && e.Cert == "" {
		line("# etcd: {cacert: ca.crt, cert: client.crt, key: client.key, user: root, password-file: password.txt}")
		return
	}
	line("etcd:")
	configKeys(line, "cacert", e.CACert, "cert", e.Cert, "key", e.Key)
	user := e.User
	if user == "" {
		user = "root"
	}
	line("  # user: %s", quoted(user))
	line("  # password-file: password.txt # its first line")
}

func writeHost(line func(string, ...any), h config.Host, of *storedCluster, a askedHost) {
	if a.err != nil {
		line("  # %s: its control process did not answer when this was written.", h.Member)
	} else {
		line("  # %s: kind %s, data directory %s", h.Member, a.Kind, quoted(a.DataDir))
	}
	line("  - member: %s", quoted(h.Member))
	line("    control: %s", quoted(h.Control))
	var m snapshot.Member
	if of != nil {
		for _, one := range of.members {
			if one.Name == h.Member {
				m = one
			}
		}
	}
	if len(m.PeerURLs) > 0 {
		line("    # peer-urls: %s", quoted(m.PeerURLs))
	}
	if len(m.ClientURLs) > 0 {
		line("    client-urls: %s # as of the backup of %s", quoted(m.ClientURLs), when(of.at))
	} else {
		line("    # client-urls: [\"https://HOST:2379\"] # to ask whether the cluster serves while its members run")
	}
}

// configKeys writes those of a section that have a value.
func configKeys(line func(string, ...any), pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			line("  %s: %s", pairs[i], quoted(pairs[i+1]))
		}
	}
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
