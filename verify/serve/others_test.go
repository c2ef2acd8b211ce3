package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// TestOtherUsersReadNothing: who finds the ports of a running drill, as every user
// of the machine can, reads nothing over any of them, in plain text or with TLS, and
// not the certificates either.
func TestOtherUsersReadNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	command, pid := noting(t)
	tried := 0
	_, err := Drill(t.Context(), plain(t), DrillOptions{ScratchDir: dir, Command: command, Progress: func(phase string, _, _ int64) {
		if phase != PhaseServe || tried > 0 {
			return
		}
		for _, port := range listening(t, pid()) {
			tried++
			for name, config := range map[string]*tls.Config{"http": nil, "https": {InsecureSkipVerify: true}} {
				attack(t, name, "127.0.0.1:"+port, config)
			}
		}
		keys, err := filepath.Glob(filepath.Join(dir, "*", "tls", "*"))
		if err != nil || len(keys) != 3 {
			t.Errorf("%q %v, want three files", keys, err)
		}
		for _, path := range keys {
			for _, p := range []string{path, filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
				if info, err := os.Stat(p); err != nil || info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s: %v, %v: others may look", p, info.Mode(), err)
				}
			}
		}
	}})
	require.NoError(t, err)
	if tried < 2 {
		t.Errorf("%d ports were found, want one for clients and one for peers at least", tried)
	}
}

// attack tries to read what a port serves.
func attack(t *testing.T, scheme, address string, config *tls.Config) {
	t.Helper()
	within := func() context.Context { // etcd's client tries until it ends
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{scheme + "://" + address}, TLS: config, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer c.Close()
	if got, err := c.Get(within(), "", clientv3.WithPrefix(), clientv3.WithLimit(1)); err == nil {
		t.Errorf("%s %s: %d keys were read", scheme, address, got.Count)
	}
	if stream, err := c.Snapshot(within()); err == nil {
		if n, err := stream.Read(make([]byte, 1)); n > 0 || err == io.EOF {
			t.Errorf("%s %s: a snapshot was streamed", scheme, address)
		}
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	for _, path := range []string{"/version", "/metrics", "/members", "/raft", "/debug/pprof/", "/v3/kv/range"} {
		r, err := http.NewRequestWithContext(within(), http.MethodGet, scheme+"://"+address+path, nil)
		require.NoError(t, err)
		if a, err := client.Do(r); err == nil {
			body, _ := io.ReadAll(a.Body)
			a.Body.Close()
			// To a request in plain text a TLS server says that it is one.
			if a.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "HTTP request to an HTTPS server") {
				t.Errorf("%s %s%s was answered: %s %.80q", scheme, address, path, a.Status, body)
			}
		}
	}
}

// listening are the TCP ports that a process listens on.
func listening(t *testing.T, pid int) (ports []string) {
	t.Helper()
	owned := map[string]bool{}
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, f := range open {
		name, _ := os.Readlink(filepath.Join(folder, f.Name())) // closed meanwhile: none
		owned[name] = true
	}
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line) // number, address, peer, state, queues, timer, …, user, timeout, inode
			if len(f) < 10 || f[3] != "0A" || !owned["socket:["+f[9]+"]"] {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			port, err := strconv.ParseUint(hex, 16, 16)
			require.NoError(t, err)
			ports = append(ports, fmt.Sprint(port))
		}
	}
	return ports
}
