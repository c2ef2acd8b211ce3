package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// startWait is how long a server may take to answer: a large database on a
// slow disk needs some seconds.
const startWait = 2 * time.Minute

// server is a running etcd or S3 server.
type server struct {
	name string
	cmd  *exec.Cmd
	log  string
	gone chan error
}

// startServer starts a program that runs until stop, its output in a log file,
// and waits until healthURL answers.
func startServer(ctx context.Context, name, logDir, healthURL string, env []string, program string, args ...string) (*server, error) {
	return startUntil(ctx, name, logDir, healthURL, healthy, env, program, args...)
}

// startUntil is startServer for one that shows in another way that it answers at
// a place.
func startUntil(ctx context.Context, name, logDir, at string, answers func(context.Context, string) bool, env []string, program string, args ...string) (*server, error) {
	s := &server{name: name, log: filepath.Join(logDir, name+".log"), gone: make(chan error, 1)}
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s.cmd = exec.Command(program, args...) //nolint:noctx // ended by stop, gracefully
	s.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { s.gone <- s.cmd.Wait() }()
	if err := s.await(ctx, at, answers); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *server) await(ctx context.Context, at string, answers func(context.Context, string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for !answers(ctx, at) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer at %s: %w; its log ends: %s", s.name, at, ctx.Err(), s.logTail())
		case err := <-s.gone:
			s.gone <- err
			return fmt.Errorf("%s ended at once: %w; its log ends: %s", s.name, err, s.logTail())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

func healthy(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func (s *server) logTail() string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(data), 5)
}

// stop ends the server and waits for it.
func (s *server) stop() error {
	if s == nil {
		return nil
	}
	s.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended already
	select {
	case <-s.gone: // etcd ends with the signal: no failure
		return nil
	case <-time.After(30 * time.Second):
		s.cmd.Process.Kill() //nolint:errcheck // as above
		<-s.gone
		return fmt.Errorf("%s did not end within 30 s and was killed", s.name)
	}
}

// quota is far above any database that is made here.
const quota = 32 << 30

// member is where one etcd listens and keeps its data.
type member struct {
	name, dataDir, clientURL, peerURL string
}

func newMember(name, dataDir string) (member, error) {
	ports, err := freePorts(2)
	if err != nil {
		return member{}, err
	}
	return member{name: name, dataDir: dataDir,
		clientURL: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), peerURL: fmt.Sprintf("http://127.0.0.1:%d", ports[1])}, nil
}

// initialCluster is etcd's flag of that name.
func initialCluster(members ...member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.name+"="+m.peerURL)
	}
	return strings.Join(all, ",")
}

// startMember starts etcd without waiting for it to answer: it does so only
// with a quorum.
func (b *bench) startMember(ctx context.Context, m member, cluster string, extra ...string) (*server, error) {
	return startServer(ctx, "etcd-"+m.name, b.dir, m.clientURL+"/health", nil, b.etcd("etcd"), append(m.args(cluster), extra...)...)
}

// args are etcd's.
func (m member) args(cluster string) []string {
	return []string{"--name", m.name, "--data-dir", m.dataDir, "--initial-cluster", cluster,
		"--listen-client-urls", m.clientURL, "--advertise-client-urls", m.clientURL,
		"--listen-peer-urls", m.peerURL, "--initial-advertise-peer-urls", m.peerURL,
		"--quota-backend-bytes", fmt.Sprint(int64(quota)), "--log-level", "error"}
}

// freePorts finds ports that nobody listens on just now.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
