package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/rescue/config"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// storedCluster is one that lives in a repository, with the members of its newest
// full snapshot.
type storedCluster struct {
	id      snapshot.ID
	members []snapshot.Member
	at      time.Time // when the snapshot was taken, by its own clock
	in      string    // the repository
}

// storedClusters are those that the repositories know; one that has ended in favour
// of another is not among them. A repository that cannot be read stops nothing where
// the hosts are given.
func (g *globals) storedClusters(ctx context.Context, o *recoverOptions) (all []storedCluster, err error) {
	if len(o.repo.urls) == 0 {
		return nil, nil
	}
	opened, err := o.repo.openSinks(ctx, g)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeSinks(opened)) }()
	var failed []error
	for _, s := range opened {
		some, err := clustersIn(ctx, s)
		if err != nil {
			failed = append(failed, err)
			g.note("%v", err)
			continue
		}
		all = append(all, some...)
	}
	if len(all) == 0 && len(o.known.control) == 0 {
		return nil, errors.Join(failed...)
	}
	return all, nil
}

func clustersIn(ctx context.Context, s sinks.Sink) ([]storedCluster, error) {
	repo, err := repository.Open(ctx, s)
	if err != nil {
		return nil, err
	}
	catalog, err := snapshot.ReadCatalog(ctx, repo)
	if err != nil {
		return nil, err
	}
	ids, err := repo.TimelineIDs(ctx)
	if err != nil {
		return nil, err
	}
	newest := map[uint64]storedCluster{}
	for _, t := range ids {
		_, ended, err := repo.Superseded(ctx, t)
		if err != nil {
			return nil, err
		}
		if ended {
			continue
		}
		c, there := newest[t.ClusterID]
		if !there {
			c = storedCluster{id: snapshot.ID(t.ClusterID), in: repo.String()}
		}
		if m := catalog.Newest(t); m != nil && m.Finished.After(c.at) {
			c.members, c.at = m.Facts.Members, m.Finished
		}
		newest[t.ClusterID] = c
	}
	var all []storedCluster
	for _, c := range newest {
		all = append(all, c)
	}
	return all, nil
}

// pick chooses the one that is meant: by its ID where that is given, otherwise the
// only one. nil without an error is none.
func pick(all []storedCluster, cluster string) (*storedCluster, error) {
	byID := map[snapshot.ID]*storedCluster{}
	for i, c := range all {
		if known := byID[c.id]; known == nil || c.at.After(known.at) {
			byID[c.id] = &all[i]
		}
	}
	var id snapshot.ID
	if id.UnmarshalText([]byte(cluster)) == nil && byID[id] != nil {
		return byID[id], nil
	}
	if len(byID) > 1 {
		var names []string
		for _, c := range byID {
			names = append(names, fmt.Sprintf("%s (%s, newest full snapshot of %s)", c.id, memberNames(c.members), when(c.at)))
		}
		slices.Sort(names)
		return nil, usageError{fmt.Errorf("the repositories hold %d clusters: say which one with --cluster ID:\n  %s", len(byID), strings.Join(names, "\n  "))}
	}
	for _, c := range byID {
		return c, nil
	}
	return nil, nil
}

func memberNames(members []snapshot.Member) string {
	var names []string
	for _, m := range members {
		names = append(names, cmp.Or(m.Name, m.ID.String()))
	}
	return orNone(strings.Join(names, ", "))
}

// hosts are those of the members: where their peers find them, a control process
// listens as well.
func (c *storedCluster) hosts(g *globals, port int) (all []config.Host) {
	for _, m := range c.members {
		host := ""
		for _, text := range m.PeerURLs {
			if u, err := url.Parse(text); err == nil && host == "" {
				host = u.Hostname()
			}
		}
		if m.Name == "" || host == "" {
			g.note("member %s in the newest backup has no name or no peer URL: its host is known only with --control", m.ID)
			continue
		}
		all = append(all, config.Host{Member: m.Name, Control: net.JoinHostPort(host, strconv.Itoa(port))})
	}
	return all
}
