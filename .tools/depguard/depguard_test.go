// Package depguard proves that the linter's rules about imports trip: a rule
// whose pattern matches no file would pass everything.
package depguard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/requorum/requorum"

// imports are one file each, in a package of its own: what it imports, and
// whether the rules forbid that.
var imports = []struct {
	from, to  string
	forbidden bool
}{
	{"cmd/x", "restore", false},
	{"schedule/x", "cmd/x", true}, {"schedule/x", "verify", false},
	{"schedule", "schedule", true}, {"schedule/x", "schedule", true}, {"schedule/x", "schedule/status", false},
	{"verify/x", "cmd/x", true}, {"verify/x", "schedule", true}, {"verify/x", "restore", false},
	{"verify", "verify", true}, {"verify/x", "verify", true}, {"verify/x", "verify/report", false}, {"verify/report/x", "snapshot", true},
	{"restore/x", "cmd/x", true}, {"restore/x", "schedule", true}, {"restore/x", "verify", true}, {"restore/x", "walreplay", false},
	{"walreplay/x", "cmd/x", true}, {"walreplay/x", "schedule", true}, {"walreplay/x", "verify", true}, {"walreplay/x", "restore", true},
	{"walreplay", "walreplay", true}, {"walreplay/x", "walreplay", true}, {"walreplay/x", "walreplay/raftlog", false}, {"walreplay/x", "snapshot", false},
	{"walreplay/raftlog/x", "sinks", true}, {"walreplay/raftlog/x", "snapshot", true},
	{"snapshot/x", "cmd/x", true}, {"snapshot/x", "schedule", true}, {"snapshot/x", "verify", true}, {"snapshot/x", "restore", true},
	{"snapshot/x", "walreplay", true}, {"snapshot/x", "walreplay/raftlog", true}, {"snapshot/x", "sinks", false}, {"snapshot/x", "store", false},
	{"sinks/x", "cmd/x", true}, {"sinks/x", "schedule", true}, {"sinks/x", "verify", true}, {"sinks/x", "restore", true},
	{"sinks/x", "walreplay", true}, {"sinks/x", "snapshot", true}, {"sinks/x", "store", true}, {"sinks/x", "go.etcd.io/bbolt", true},
	{"store/x", "cmd/x", true}, {"store/x", "schedule", true}, {"store/x", "verify", true}, {"store/x", "restore", true},
	{"store/x", "walreplay", true}, {"store/x", "snapshot", true}, {"store/x", "sinks", true}, {"store/x", "go.etcd.io/bbolt", false},
	{"cmd/x", "gopkg.in/yaml.v3", true},
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRulesTrip lints a module of empty packages with the names of ours, in which
// each import above stands in a file of its own.
func TestRulesTrip(t *testing.T) {
	config, err := filepath.Abs("../../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	linter, err := filepath.Abs("../../.cache/bin/golangci-lint")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(linter); err != nil {
		t.Fatalf("%v: run .tools/build lint first", err)
	}
	dir := t.TempDir()
	rules, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, ".golangci.yml", string(rules))
	put(t, dir, "go.mod", "module "+module+"\n\ngo 1.26.0\n\nrequire (\n\tgo.etcd.io/bbolt v1.0.0\n\tgopkg.in/yaml.v3 v3.0.0\n)\n\nreplace go.etcd.io/bbolt => ./other/bbolt\n\nreplace gopkg.in/yaml.v3 => ./other/yaml\n")
	for path, name := range map[string]string{"other/bbolt": "go.etcd.io/bbolt", "other/yaml": "gopkg.in/yaml.v3"} {
		put(t, dir, path+"/go.mod", "module "+name+"\n")
		put(t, dir, path+"/x.go", "package x\n")
	}
	var names []string
	wanted := map[string]bool{}
	for i, c := range imports {
		to := c.to
		if !strings.Contains(to, ".") {
			put(t, dir, to+"/x.go", "package x\n")
			to = module + "/" + to
		}
		name := fmt.Sprintf("%s/case%02d/x.go", c.from, i)
		names = append(names, name)
		wanted[name] = c.forbidden
		put(t, dir, name, fmt.Sprintf("package x\n\nimport _ %q\n", to))
	}

	cmd := exec.Command(linter, "run", "--allow-parallel-runners", "--enable-only", "depguard", "--max-issues-per-linter=0", "--max-same-issues=0", "--output.json.path=stdout", "--show-stats=false", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	var report struct {
		Issues []struct {
			FromLinter, Text string
			Pos              struct{ Filename string }
		}
	}
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&report); err != nil {
		t.Fatalf("%v, %v: %s%s", err, runErr, out, stderr.String())
	}
	found := map[string]int{}
	for _, issue := range report.Issues {
		if issue.FromLinter != "depguard" {
			t.Fatalf("%s: %s: the made module is not sound, and proves nothing", issue.FromLinter, issue.Text)
		}
		found[filepath.ToSlash(issue.Pos.Filename)]++
	}
	slices.Sort(names)
	for _, name := range names {
		if (found[name] > 0) != wanted[name] {
			data, _ := os.ReadFile(filepath.Join(dir, name))
			t.Errorf("%s is forbidden: %v, want %v: %s", name, found[name] > 0, wanted[name], data)
		}
	}
	if len(found) == 0 {
		t.Errorf("nothing was found: %s%s", out, stderr.String())
	}
}
