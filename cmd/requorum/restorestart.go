package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/safedir"
)

// startOptions start a restored cluster with the bundled store.
type startOptions struct {
	start      bool
	clientURLs []string
	timeout    time.Duration
}

func (o *startOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.start, "start", false, "start the result with the bundled etcd, with TLS made for this run, and run it until interrupted; as root only in directories of root")
	f.StringSliceVar(&o.clientURLs, "client-urls", nil, "with --start: the members' client URLs, `name=https://…,…` (default: the peer URL's host, and its port less one)")
	durationVar(f, &o.timeout, "start-timeout", time.Minute, 0, "with --start: how long to wait for a quorum")
}

// startRestored starts the members that this host built, waits for a quorum,
// and serves until interrupted. printed says what was done: before it starts,
// since the token and the flags are needed most if it does not.
//
// What was restored may be all secrets of a Kubernetes cluster, and every user of
// this machine reaches its ports: so they take certificates of this run alone.
func (g *globals) startRestored(ctx context.Context, o *buildOptions, plan *restore.Plan, printed func(endpoints []string) error) (err error) {
	dir, err := os.MkdirTemp("", "requorum-start-") // for this user alone
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	files, configs, err := o.start.secured(filepath.Join(dir, "tls"), plan, o.name)
	if err != nil {
		return err
	}
	var endpoints []string
	for _, c := range configs {
		endpoints = append(endpoints, c.ListenClientURLs...)
	}
	if err := printed(endpoints); err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, o.start.timeout)
	defer cancel()
	cluster, err := store.StartMembers(starting, configs)
	if err != nil {
		return fmt.Errorf("the restore is done, starting its result failed: %w", err)
	}
	return g.serve(ctx, cluster, files)
}

// check finds out before anything is built whether the result, which is to belong to owner
// where that is given, could be started.
func (o *startOptions) check(ctx context.Context, p *restore.Plan, owner *restore.Owner, only string) error {
	if !o.start {
		return nil
	}
	configs, err := o.configs(p, only)
	if err != nil {
		return err
	}
	if err := ownDirectories(configs, owner); err != nil {
		return err
	}
	for _, c := range configs {
		for _, raw := range append(c.ListenPeerURLs, c.ListenClientURLs...) {
			u, err := url.Parse(raw)
			if err != nil {
				return usageError{fmt.Errorf("--start: %s: %w", raw, err)}
			}
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", u.Host)
			if err != nil {
				return fmt.Errorf("--start: member %s could not listen at %s: %w", c.Name, raw, err)
			}
			if err := l.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownDirectories refuses to start members as root in directories that others may change, or
// that are to be theirs: etcd goes through the links that it finds there.
func ownDirectories(configs []store.MemberConfig, owner *restore.Owner) error {
	if os.Geteuid() != 0 {
		return nil
	}
	const next = "without --start, and start etcd or 'requorum store' as the user whose directory it is"
	if owner != nil && owner.UID != 0 {
		return usageError{fmt.Errorf("--start runs members as root, and they are to belong to user %d: restore %s", owner.UID, next)}
	}
	for _, c := range configs {
		for _, dir := range []string{c.DataDir, filepath.Join(c.DataDir, "member"), filepath.Join(c.DataDir, "member", "snap"), filepath.Join(c.DataDir, "member", "wal"), c.WALDir} {
			if dir == "" {
				continue
			}
			_, err := os.Lstat(dir)
			if errors.Is(err, fs.ErrNotExist) { // it will be made
				err = safedir.TrustedFile(existing(dir))
			} else if err == nil {
				err = safedir.TrustedFolder(dir)
			}
			if err != nil {
				return fmt.Errorf("--start: member %s would run as root in %s: %w; or restore %s", c.Name, dir, err, next)
			}
		}
	}
	return nil
}

// secured makes the certificates of a run in dir, which must not exist, and says
// how the members are started with them. The caller removes dir.
func (o *startOptions) secured(dir string, p *restore.Plan, only string) (store.TLSFiles, []store.MemberConfig, error) {
	configs, err := o.configs(p, only)
	if err != nil {
		return store.TLSFiles{}, nil, err
	}
	var hosts []string
	for _, c := range configs {
		for _, raw := range append(c.ListenPeerURLs, c.ListenClientURLs...) {
			if u, err := url.Parse(raw); err == nil && u.Hostname() != "" {
				hosts = append(hosts, u.Hostname())
			}
		}
	}
	files, err := store.MakeRunTLS(dir, hosts...)
	for i := range configs {
		configs[i].TLS = files
	}
	return files, configs, err
}

// configs are how the plan's members, or the one named, are started; certificates
// are still to come.
func (o *startOptions) configs(p *restore.Plan, only string) ([]store.MemberConfig, error) {
	urls := map[string]string{}
	for _, one := range o.clientURLs {
		name, u, ok := strings.Cut(one, "=")
		if !ok {
			return nil, usageError{fmt.Errorf("--client-urls %s: want name=url", one)}
		}
		if !strings.HasPrefix(u, "https://") {
			return nil, usageError{fmt.Errorf("--client-urls %s: --start serves over TLS only, since every user of this machine can reach it: write https://", one)}
		}
		urls[name] = u
	}
	if only != "" && len(p.Members) > 1 {
		return nil, usageError{errors.New("--start: the certificates of the members are made for one run: start all of them in one, without --name, or leave --start out and use etcd or 'requorum store'")}
	}
	var configs []store.MemberConfig
	for _, m := range p.Members {
		if only != "" && m.Name != only {
			continue
		}
		client, ok := urls[m.Name]
		if !ok {
			var err error
			if client, err = clientURL(m.PeerURLs); err != nil {
				return nil, usageError{fmt.Errorf("member %s: %w: give --client-urls %s=URL", m.Name, err, m.Name)}
			}
		}
		delete(urls, m.Name)
		listen, err := peersToListen(m.PeerURLs, len(p.Members) == 1)
		if err != nil {
			return nil, err
		}
		configs = append(configs, store.MemberConfig{
			Name: m.Name, DataDir: m.DataDir, WALDir: m.WALDir,
			ListenPeerURLs: listen, AdvertisePeerURLs: m.PeerURLs, ListenClientURLs: []string{client},
			InitialCluster: p.InitialCluster(), InitialClusterState: "existing", Token: p.ClusterToken,
		})
	}
	for name := range urls {
		return nil, usageError{fmt.Errorf("--client-urls: this host builds no member %s", name)}
	}
	return configs, nil
}

// peersToListen are a member's peer URLs with TLS. One that is alone is dialled by
// nobody, whatever its peer URL says.
func peersToListen(peers []string, alone bool) (listen []string, err error) {
	for _, raw := range peers {
		rest, plain := strings.CutPrefix(raw, "http://")
		if plain && !alone {
			return nil, usageError{fmt.Errorf("--start: peer URL %s: members started here talk over TLS only, since every user of this machine can reach them: give the new members https:// URLs with --initial-cluster, or leave --start out and use etcd or 'requorum store'", raw)}
		}
		if plain {
			raw = "https://" + rest
		}
		listen = append(listen, raw)
	}
	return listen, nil
}

// clientURL goes by etcd's habit: 2379 for clients beside 2380 for peers.
func clientURL(peers []string) (string, error) {
	u, err := url.Parse(peers[0])
	if err != nil {
		return "", err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil || port < 2 {
		return "", errors.New("its client URL cannot be guessed from the peer URL " + peers[0])
	}
	u.Scheme, u.Host = "https", net.JoinHostPort(u.Hostname(), strconv.Itoa(port-1))
	return u.String(), nil
}
