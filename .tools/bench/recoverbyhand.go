package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// What one would do by hand with etcd's own tools, as scripts: they are to be read
// beside the figures.
var (
	//go:embed byhand/restore.sh
	restoreScript string
	//go:embed byhand/force.sh
	forceScript string
)

// ways are requorum's and those by hand.
func (b *bench) ways() []way {
	return []way{
		b.rescue("`requorum recover`, three survivors", false),
		b.rescue("`requorum recover`, one host's disk lost", true),
		b.byHand("manually: a survivor's `member/snap/db` to all hosts, `etcdutl snapshot restore --skip-hash-check` on each", restoreScript),
		b.byHand("manually: `etcd --force-new-cluster` on a survivor, the others as learners, promoted", forceScript),
	}
}

// byHand is a script. It goes on with the first member: whether another one has
// more is not looked at.
func (b *bench) byHand(name, script string) way {
	return way{name: name, loss: true, ready: writeSettings, command: func(ctx context.Context, c *crash) *exec.Cmd {
		return b.operator(ctx, []string{"DIR=" + b.path(restoreFolder), "SURVIVOR=" + c.members[0].name,
			"CLUSTER=" + initialCluster(c.members...), "ENDPOINTS=" + strings.Join(c.endpoints(), ",")}, "sh", "-c", script)
	}}
}

// writeSettings writes etcd's of each host, as a unit has them.
func writeSettings(c *crash) error {
	for _, m := range c.members {
		text := fmt.Sprintf("ETCD_NAME=%s\nETCD_LISTEN_CLIENT_URLS=%s\nETCD_ADVERTISE_CLIENT_URLS=%s\nETCD_LISTEN_PEER_URLS=%s\nETCD_INITIAL_ADVERTISE_PEER_URLS=%s\nETCD_QUOTA_BACKEND_BYTES=%d\nETCD_LOG_LEVEL=error\n",
			m.name, m.clientURL, m.clientURL, m.peerURL, m.peerURL, int64(quota))
		if err := os.WriteFile(m.dataDir+".env", []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
