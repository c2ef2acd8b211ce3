package storetest

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
)

// layOut chooses names, folders and ports.
func (c *Cluster) layOut() error {
	if len(c.options.DataDirs) != 0 {
		return c.layOutExisting()
	}
	for i := range c.options.Members {
		name := fmt.Sprintf("m%d", i+1)
		if err := c.addMember(name, filepath.Join(c.options.Dir, name), "new"); err != nil {
			return err
		}
	}
	return nil
}

// addMember puts a proxy in front of the member's peer port: the one to cut
// when the member is isolated.
func (c *Cluster) addMember(name, dataDir, state string) error {
	free, err := c.freePorts(3)
	if err != nil {
		return err
	}
	m := &Member{
		Name: name, DataDir: dataDir, state: state,
		Log:       filepath.Join(c.options.Dir, name+".log"),
		ClientURL: c.url(free[0]), listenPeer: c.url(free[1]), PeerURL: c.url(free[2]),
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", free[2]))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	to := len(c.members)
	m.proxy = serveProxy(l, fmt.Sprintf("127.0.0.1:%d", free[1]), func(conns ...net.Conn) []net.Conn { return c.refused(to, conns...) })
	c.members = append(c.members, m)
	return nil
}

func (c *Cluster) layOutExisting() error {
	peers := map[string]string{}
	for part := range strings.SplitSeq(c.options.InitialCluster, ",") {
		name, url, _ := strings.Cut(part, "=")
		peers[name] = url
	}
	free, err := c.freePorts(len(c.options.DataDirs))
	if err != nil {
		return err
	}
	for i, name := range slices.Sorted(maps.Keys(c.options.DataDirs)) {
		if peers[name] == "" {
			return fmt.Errorf("member %s is not in the initial cluster %q", name, c.options.InitialCluster)
		}
		c.members = append(c.members, &Member{
			Name: name, DataDir: c.options.DataDirs[name], state: "new",
			Log:       filepath.Join(c.options.Dir, name+".log"),
			ClientURL: c.url(free[i]), listenPeer: peers[name], PeerURL: peers[name],
		})
	}
	return nil
}

func (c *Cluster) url(port int) string {
	scheme := "http"
	if c.options.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port)
}

// launch starts a member, with more arguments than those of all.
func (c *Cluster) launch(i int, more ...string) error {
	m := c.members[i]
	args := []string{
		"--name", m.Name, "--data-dir", m.DataDir,
		"--listen-client-urls", m.ClientURL, "--advertise-client-urls", m.ClientURL,
		"--listen-peer-urls", m.listenPeer, "--initial-advertise-peer-urls", m.PeerURL,
		"--initial-cluster", c.InitialCluster(), "--initial-cluster-state", m.state,
		"--logger", "zap",
		"--bcrypt-cost", "4", // a login takes 60 ms of a processor otherwise
	}
	if !Soak() {
		// A process that is killed loses nothing by it, and a slow disk ends no leader's term.
		args = append(args, "--unsafe-no-fsync")
	}
	if c.options.Token != "" {
		args = append(args, "--initial-cluster-token", c.options.Token)
	}
	if c.options.TLS {
		server, key := filepath.Join(c.authority.dir, "server.pem"), filepath.Join(c.authority.dir, "server.key")
		args = append(args,
			"--cert-file", server, "--key-file", key, "--trusted-ca-file", c.authority.CA, "--client-cert-auth",
			"--peer-cert-file", server, "--peer-key-file", key, "--peer-trusted-ca-file", c.authority.CA, "--peer-client-cert-auth")
	}
	binary := c.binary
	if m.binary != "" {
		binary = m.binary
	}
	p, err := startEtcd(binary, m.Log, slices.Concat(args, c.options.ExtraArgs, more))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.process = p
	return nil
}

// InitialCluster is the members and their peer URLs.
func (c *Cluster) InitialCluster() string {
	if c.options.InitialCluster != "" {
		return c.options.InitialCluster
	}
	var parts []string
	for _, m := range c.members {
		parts = append(parts, m.Name+"="+m.PeerURL)
	}
	return strings.Join(parts, ",")
}
