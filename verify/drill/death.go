package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/requorum/requorum/verify/report"
)

var errPortTaken = errors.New("a port was taken before the members could listen")

// environmental are the operating system's words for what is no fault of an
// image. They arrive as text: etcd ends its process with them in its log.
var environmental = []string{
	syscall.ENOSPC.Error(), syscall.EDQUOT.Error(), syscall.EMFILE.Error(), syscall.ENFILE.Error(), syscall.ENOMEM.Error(),
	syscall.EIO.Error(), syscall.EROFS.Error(), syscall.EACCES.Error(), syscall.EPERM.Error(), syscall.EADDRNOTAVAIL.Error(),
	"out of memory", "failed to create new OS thread", "requorum: ",
}

// verdict is what an error that the members gave, or their last words, mean.
func verdict(words string, kind report.Kind, what string) error {
	if strings.Contains(words, syscall.EADDRINUSE.Error()) {
		return unable("%s: %w: %s", what, errPortTaken, words)
	}
	for _, e := range environmental {
		if strings.Contains(words, e) {
			return unable("%s: %s", what, words)
		}
	}
	return fault(kind, "", "%s: %s", what, words)
}

// burial is longer than a system takes to end a process of many gigabytes.
const burial = 10 * time.Second

// endsWithin waits for the process to end, but not longer than that.
func (p *process) endsWithin(ctx context.Context, most time.Duration) bool {
	select {
	case <-p.gone:
		return true
	default:
	}
	select {
	case <-p.gone:
		return true
	case <-ctx.Done():
	case <-time.After(most):
	}
	return false
}

// death is what it means that the process has ended.
func (p *process) death(kind report.Kind, when string) error {
	if p.failed != "" {
		return verdict(p.failed, kind, "a member ended "+when)
	}
	words := lastWords(p.stderr.bytes())
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return unable("the process of the members was killed %s, as systems do where memory runs out: free memory, or drill on another machine", when)
		}
	}
	if words == "" {
		return unable("the process of the members ended %s without a word (%v): is %s a program that runs them?", when, p.err, p.cmd.Path)
	}
	return verdict(words, kind, "etcd ended its process "+when)
}

// lastWords finds why etcd ended its process: the last line of its log at the
// level of a panic, or what the Go runtime said.
func lastWords(stderr []byte) string {
	var last, runtime string
	for line := range bytes.Lines(stderr) {
		line = bytes.TrimSpace(line)
		var entry struct{ Level, Msg, Error string }
		switch {
		case json.Unmarshal(line, &entry) == nil:
			if entry.Level == "fatal" || entry.Level == "panic" || entry.Level == "dpanic" {
				last = entry.Msg
				if entry.Error != "" {
					last += ": " + entry.Error
				}
			}
		case runtime == "" && (bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))):
			runtime = string(line)
		case bytes.HasPrefix(line, []byte("requorum: ")):
			runtime = string(line)
		}
	}
	if last == "" {
		last = runtime
	}
	if most := 500; len(last) > most {
		last = fmt.Sprintf("%s…", last[:most])
	}
	return last
}
