package sinktest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startDeadline bounds how long a server may take until it answers; the slow
// one is minio on a busy machine.
const startDeadline = 60 * time.Second

// process is a server's process, which can be killed and started again.
type process struct {
	command func() *exec.Cmd
	// ready is a URL that is answered with less than 500 once the server serves.
	ready  string
	client *http.Client
	log    string

	mu  sync.Mutex
	cmd *exec.Cmd
}

// start starts the server and waits until it serves.
func (p *process) start(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	p.cmd = cmd
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.Now().Add(startDeadline)
	for {
		resp, err := p.client.Get(p.ready)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode < 500 {
				return
			}
			err = fmt.Errorf("it answers %s", resp.Status)
		}
		select {
		case end := <-ended:
			t.Fatalf("%s ended at once: %v\n%s", cmd.Path, end, p.output())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not serve after %s: %v\n%s", cmd.Path, startDeadline, err, p.output())
		}
	}
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(fmt.Sprintf("kill %s: %v", p.cmd.Path, err))
	}
	for p.cmd.Process.Signal(syscall.Signal(0)) == nil {
		time.Sleep(time.Millisecond)
	}
	p.cmd = nil
}

func (p *process) output() string {
	out, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// freePort is a TCP port of the loopback that was free a moment ago.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// tool is the path of a test server that .tools/build makes. Versitygw is built
// on demand; what takes minutes (slow) is built only with REQUORUM_CI=1 and
// skips the test otherwise.
func tool(t testing.TB, name string, slow bool) string {
	t.Helper()
	root := repositoryRoot(t)
	path := filepath.Join(root, ".cache", "bin", name)
	must := os.Getenv("REQUORUM_CI") == "1"
	if _, err := os.Stat(path); err == nil && !must {
		return path
	} else if slow && !must {
		t.Skipf("SKIPPED: the test server %s is not built: run .tools/build %s (it takes minutes), or set REQUORUM_CI=1", name, name)
	}
	if out, err := exec.Command(filepath.Join(root, ".tools", "build"), name).CombinedOutput(); err != nil {
		t.Fatalf("build the test server %s: %v\n%s", name, err, out)
	}
	return path
}

// repositoryRoot is the folder that holds go.mod, upwards of the test.
func repositoryRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, ".tools", "build")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no .tools/build upwards of the test's folder")
		}
		dir = parent
	}
}

// environ is the environment without what would steer a server or the SDK.
func environ(more ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "AWS_") && !strings.HasPrefix(e, "VGW_") && !strings.HasPrefix(e, "MINIO_") && !strings.HasPrefix(e, "RCLONE_") {
			env = append(env, e)
		}
	}
	return append(env, more...)
}
