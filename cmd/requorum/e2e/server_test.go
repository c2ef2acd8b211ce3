package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/requorum/requorum/store/storetest"
)

// server is one etcd process that may refuse to start: the clusters of
// storetest must start.
type server struct {
	*storetest.Process
	clientURL string
}

// startOnce starts etcd as an operator's unit file would, whatever lies in its
// data directory.
func startOnce(t testing.TB, version, name, dataDir, initialCluster, state string, more ...string) *server {
	t.Helper()
	peer := ""
	for part := range strings.SplitSeq(initialCluster, ",") {
		if n, url, _ := strings.Cut(part, "="); n == name {
			peer = url
		}
	}
	s := &server{clientURL: "http://" + storetest.FreeAddress(t)}
	cmd := exec.Command(storetest.Binary(t, version, "etcd"), append([]string{"--name", name, "--data-dir", dataDir,
		"--listen-client-urls", s.clientURL, "--advertise-client-urls", s.clientURL,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", initialCluster, "--initial-cluster-state", state,
		"--unsafe-no-fsync", // who is killed loses nothing by it, and a slow disk no request
	}, more...)...)
	var err error
	s.Process, err = storetest.StartProcess(cmd, filepath.Join(t.TempDir(), name+".log"))
	require.NoError(t, err)
	t.Cleanup(s.Kill)
	return s
}

func (s *server) endsWithin(d time.Duration) bool {
	select {
	case <-s.Done():
		return true
	case <-time.After(d):
		return false
	}
}

// log is the end of what it printed.
func (s *server) log() string { return storetest.Tail(s.Log, 20) }

// plainClient is an etcd client without a login.
func plainClient(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

const randomPrefix = "/random/"

// fillRandom writes values that do not compress: what is stored is as large as
// what is read.
func fillRandom(t testing.TB, client *clientv3.Client, keys, valueSize int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, valueSize)
	perTxn := max(1, min(100, (1<<20)/valueSize))
	for n := 0; n < keys; n += perTxn {
		var ops []clientv3.Op
		for i := n; i < min(n+perTxn, keys); i++ {
			for j := range value {
				value[j] = byte(random.Uint32())
			}
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%07d", randomPrefix, i), string(value)))
		}
		_, err := client.Txn(t.Context()).Then(ops...).Commit()
		require.NoError(t, err)
	}
}

// countRandom counts them.
func countRandom(ctx context.Context, client *clientv3.Client) (int64, error) {
	resp, err := client.Get(ctx, randomPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Count, nil
}
