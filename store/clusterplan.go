package store

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/requorum/requorum/store/internal/ports"
)

// plan decides what the members are: those found in DataDir, or new ones.
func (c ClusterConfig) plan() (members []MemberConfig, fresh bool, err error) {
	if c.DataDir == "" {
		return nil, false, errors.New("store: no data directory for the cluster; give --data-dir")
	}
	found, err := c.findMembers()
	if err != nil {
		return nil, false, err
	}
	count := c.Members
	switch {
	case len(found) == 0 && count == 0:
		count = DefaultMembers
	case count == 0:
		count = len(found)
	case len(found) != 0 && count != len(found):
		return nil, false, fmt.Errorf("store: %s holds a cluster of %d members, and %d were asked for; leave the number out to start what is there, or change the membership with etcdctl member add/remove",
			c.DataDir, len(found), count)
	}
	if len(found) == 0 {
		if err := c.checkSize(count); err != nil {
			return nil, false, err
		}
	}
	free, err := c.freePorts(count)
	if err != nil {
		return nil, false, err
	}
	var initial []string
	for i := range count {
		m := MemberConfig{Name: fmt.Sprintf("m%d", i+1), Settings: c.Settings}
		m.DataDir = filepath.Join(c.DataDir, m.Name)
		clientPort, peerPort := c.ports(i, free)
		m.ListenClientURLs = []string{memberURL(c.ClientTLS, c.host(), clientPort)}
		m.ListenPeerURLs = []string{memberURL(c.PeerTLS, c.host(), peerPort)}
		if len(found) != 0 {
			if err := c.adopt(&m, found[i]); err != nil {
				return nil, false, err
			}
		}
		m = m.withDefaults()
		initial = append(initial, m.InitialCluster)
		members = append(members, m)
	}
	for i := range members {
		members[i].InitialCluster = strings.Join(initial, ",")
	}
	return members, len(found) == 0, nil
}

// findMembers reads DataDir/m1, m2 … and checks that they are one cluster.
func (c ClusterConfig) findMembers() ([]existing, error) {
	var found []existing
	missing := 0
	for i := 1; missing == 0 || i <= maxMembers; i++ {
		dir := filepath.Join(c.DataDir, fmt.Sprintf("m%d", i))
		e, err := readExisting(dir, "")
		if err != nil {
			return nil, err
		}
		if e == nil {
			if missing == 0 {
				missing = i
			}
			continue
		}
		if missing != 0 {
			return nil, fmt.Errorf("store: %s is there and %s/m%d is not: a member's data is missing; a lone member can be started by itself, and a lost one replaced with etcdctl member remove and add", dir, c.DataDir, missing)
		}
		if len(found) != 0 && e.ClusterID != found[0].ClusterID {
			return nil, fmt.Errorf("store: %s belongs to cluster %x and %s/m1 to cluster %x: these directories are not of one cluster", dir, e.ClusterID, c.DataDir, found[0].ClusterID)
		}
		found = append(found, *e)
	}
	if len(found) != 0 && found[0].Members > len(found) && !c.Force {
		return nil, fmt.Errorf("store: the members in %s belong to a cluster of %d, and only %d directories are there; start them one by one, or force it", c.DataDir, found[0].Members, len(found))
	}
	if len(found) != 0 {
		return found, nil
	}
	// A file of that name, or a folder of something else, is nothing of ours.
	if entries, err := os.ReadDir(c.DataDir); err == nil {
		for _, entry := range entries {
			if entry.Name() == "member" {
				return nil, fmt.Errorf("store: %s is the data directory of one member, not a folder of several; start it as one member", c.DataDir)
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store: data directory of the cluster: %w", err)
	}
	return nil, nil
}

// maxMembers is as far as missing folders are looked past: etcd advises at
// most seven members.
const maxMembers = 9

func (c ClusterConfig) checkSize(n int) error {
	switch {
	case n == 1 || n == 3 || n == 5 || n == 7 || c.Force && n > 0 && n <= maxMembers:
		return nil
	case n > 0 && n%2 == 0 && n <= maxMembers:
		return fmt.Errorf("store: a cluster of %d members tolerates the loss of %d, no more than one of %d does, and has one more that can fail; use %d or %d, or force it", n, (n-1)/2, n-1, n-1, n+1)
	default:
		return fmt.Errorf("store: a local cluster of %d members: use 1, 3 or 5", n)
	}
}

// adopt keeps the addresses that an existing member is known by. Its peer URL
// stands in the membership and cannot be changed by starting it elsewhere.
func (c ClusterConfig) adopt(m *MemberConfig, e existing) error {
	if e.Name != "" && e.Name != m.Name {
		return fmt.Errorf("store: data directory %s belongs to member %q; a local cluster's members are named as their folders", m.DataDir, e.Name)
	}
	if c.FreePorts {
		if len(e.ClientURLs) != 0 {
			m.ListenClientURLs = e.ClientURLs
		}
		if len(e.PeerURLs) != 0 {
			m.ListenPeerURLs = e.PeerURLs
		}
		return nil
	}
	if len(e.PeerURLs) != 0 && !sameURLs(e.PeerURLs, m.ListenPeerURLs) {
		return fmt.Errorf("store: member %s in %s is known to its cluster as %s, and would listen on %s; use the host and ports that it was made with, or change its peer URL with etcdctl member update first",
			m.Name, m.DataDir, strings.Join(e.PeerURLs, ","), strings.Join(m.ListenPeerURLs, ","))
	}
	return nil
}

func (c ClusterConfig) host() string {
	if c.Host == "" {
		return "127.0.0.1"
	}
	return c.Host
}

func (c ClusterConfig) freePorts(members int) ([]int, error) {
	if !c.FreePorts {
		if _, last := c.ports(members-1, nil); c.clientPort() < 1 || last > 65535 {
			return nil, fmt.Errorf("store: client port %d for %d members: their ports go up by %d from one to the next, up to %d, and 65535 is the last; choose a lower one, or any free ports", c.clientPort(), members, portStep, last)
		}
		return nil, nil
	}
	free, err := ports.Free(2 * members)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return free, nil
}

func (c ClusterConfig) clientPort() int {
	if c.ClientPort == 0 {
		return DefaultClientPort
	}
	return c.ClientPort
}

// ports are 2379 and 2380, 22379 and 22380, 32379 … as in etcd's own Procfile,
// which leaves 12379 to its proxy.
func (c ClusterConfig) ports(i int, free []int) (client, peer int) {
	if free != nil {
		return free[2*i], free[2*i+1]
	}
	client = c.clientPort()
	if i > 0 {
		client += (i + 1) * portStep
	}
	return client, client + 1
}

const portStep = 10000

func memberURL(files TLSFiles, host string, port int) string {
	scheme := "http"
	if files.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
}
