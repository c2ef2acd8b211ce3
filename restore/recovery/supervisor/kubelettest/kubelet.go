// Package kubelettest is a kubelet for tests: it watches a folder of manifests and
// runs one process for each, as slowly as the real one can be.
package kubelettest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/store/storetest"
)

// end stands at the end of each manifest: one without it was read half-written.
const end = "# the end\n"

// Manifest is the text of one, long enough that a copy of it takes several writes.
// The command's first argument is the program.
func Manifest(pod string, command ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: kube-system}\nspec:\n  containers:\n  - name: %s\n    command:\n", pod, pod)
	for _, arg := range command {
		fmt.Fprintf(&b, "    - %q\n", arg)
	}
	return b.String() + strings.Repeat("# as long as those of kubeadm\n", 3000) + end
}

// Kubelet is one that runs until its test ends.
type Kubelet struct {
	// Folder is that of the manifests.
	Folder string
	// Delay is how long the folder has to be as it is before the kubelet acts.
	Delay time.Duration
	// Held keeps it from acting while it is true.
	Held atomic.Bool
	// Grace is how long a process may take after SIGTERM before it is killed; 0 is a
	// minute.
	Grace time.Duration
	// Backoff is how long a process that ended is left so; 0 is for good.
	Backoff time.Duration
	// CRI is a folder for what Crictl shows; empty where there is no runtime to ask.
	CRI string

	logs    string // the folder of what its pods print
	mu      sync.Mutex
	pods    map[string]*process
	starts  map[string]int
	changes int
	faults  []string
}

// process is a pod's.
type process struct {
	*storetest.Process
	at   time.Time // when it was seen to have ended
	down bool      // the pod was taken down
}

// Run begins; the test's cleanup ends it and all that it runs.
func (k *Kubelet) Run(t testing.TB) {
	k.logs, k.pods, k.starts = t.TempDir(), map[string]*process{}, map[string]int{}
	if k.Grace == 0 {
		k.Grace = time.Minute
	}
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		last, since := "none yet", time.Now()
		for {
			select {
			case <-stop:
				k.Grace = 0
				k.want(nil)
				return
			case <-time.After(5 * time.Millisecond):
			}
			wanted := k.look()
			if now := strings.Join(slices.Sorted(maps.Keys(wanted)), " "); now != last {
				last, since = now, time.Now()
				k.mu.Lock()
				k.changes++
				k.mu.Unlock()
			}
			if !k.Held.Load() && time.Since(since) >= k.Delay {
				k.want(wanted)
			}
		}
	}()
}

// look reads the folder as the kubelet does, every file that has no dot in front,
// and gives the command of each pod. What is wrong with it is kept.
func (k *Kubelet) look() map[string][]string {
	wanted := map[string][]string{}
	files, err := os.ReadDir(k.Folder)
	if err != nil {
		k.fault(err.Error())
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(k.Folder, f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var m struct {
			Metadata struct{ Name string }
			Spec     struct {
				Containers []struct{ Command []string }
			}
		}
		if err != nil || !strings.HasSuffix(string(text), end) || yaml.Unmarshal(text, &m) != nil || len(m.Spec.Containers) != 1 {
			k.fault(fmt.Sprintf("read half of %s, or what is no manifest: %d bytes, %v", f.Name(), len(text), err))
			continue
		}
		if wanted[m.Metadata.Name] != nil {
			k.fault("two manifests of " + m.Metadata.Name)
		}
		wanted[m.Metadata.Name] = m.Spec.Containers[0].Command
	}
	return wanted
}

// want ends what is not wanted, waiting for it, and starts what is.
func (k *Kubelet) want(wanted map[string][]string) {
	for name, p := range k.pods {
		if wanted[name] == nil && !p.down {
			p.Stop(k.Grace)
			p.down = true
		}
	}
	for name, command := range wanted {
		p := k.pods[name]
		switch {
		case p == nil || p.down:
		case p.Running():
			continue
		case p.at.IsZero():
			p.at = time.Now()
			continue
		case k.Backoff == 0 || time.Since(p.at) < k.Backoff:
			continue
		}
		k.start(name, command)
	}
	k.publish()
}

func (k *Kubelet) start(name string, command []string) {
	k.mu.Lock()
	k.starts[name]++ // before others can see the process, and ask
	k.mu.Unlock()
	p, err := storetest.StartProcess(exec.Command(command[0], command[1:]...), filepath.Join(k.logs, name))
	if err != nil {
		k.fault(err.Error())
		return
	}
	k.pods[name] = &process{Process: p}
}

func (k *Kubelet) fault(s string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.faults) < 10 {
		k.faults = append(k.faults, s)
	}
}

// Seen is how often each pod was started, how often the folder was another than
// before, and what was wrong with it.
func (k *Kubelet) Seen() (starts map[string]int, changes int, faults []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.starts), k.changes, slices.Clone(k.faults)
}
