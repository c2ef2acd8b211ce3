// Package depguard proves that the linter's rules about imports and paths trip: a rule
// whose pattern matches no file would pass everything.
package depguard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
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
	{"schedule", "schedule", true}, {"schedule/x", "schedule", true}, {"schedule/x", "schedule/web", false},
	{"verify/x", "cmd/x", true}, {"verify/x", "schedule", true}, {"verify/x", "restore", false},
	{"verify", "verify", true}, {"verify/x", "verify", true}, {"verify/x", "verify/report", false}, {"verify/report/x", "snapshot", true},
	{"restore/x", "cmd/x", true}, {"restore/x", "schedule", true}, {"restore/x", "verify", true}, {"restore/x", "walreplay", false},
	{"restore/recovery", "verify/serve", false}, {"restore/recovery/x", "verify/serve", false}, {"restore/x", "verify/serve", true},
	{"restore/recovery", "verify", true}, {"restore/recovery/x", "verify/replaying", true}, {"restore/recovery/x", "schedule/config", true}, {"restore/recovery/x", "cmd/x", true},
	{"restore/recovery/x", "restore/recovery", true}, {"restore/recovery/x", "restore", false}, {"verify/serve", "restore/recovery/x", true},
	{"walreplay/x", "cmd/x", true}, {"walreplay/x", "schedule", true}, {"walreplay/x", "verify", true}, {"walreplay/x", "restore", true},
	{"walreplay", "walreplay", true}, {"walreplay/x", "walreplay", true}, {"walreplay/x", "walreplay/raftlog", false}, {"walreplay/x", "snapshot", false},
	{"walreplay/raftlog/x", "sinks", true}, {"walreplay/raftlog/x", "snapshot", true},
	{"snapshot/x", "cmd/x", true}, {"snapshot/x", "schedule", true}, {"snapshot/x", "verify", true}, {"snapshot/x", "restore", true},
	{"snapshot/x", "walreplay", true}, {"snapshot/x", "walreplay/raftlog", true}, {"snapshot/x", "sinks", false}, {"snapshot/x", "store", false},
	{"sinks/x", "cmd/x", true}, {"sinks/x", "schedule", true}, {"sinks/x", "verify", true}, {"sinks/x", "restore", true},
	{"sinks/x", "walreplay", true}, {"sinks/x", "snapshot", true}, {"sinks/x", "store", true}, {"sinks/x", "store/client", true}, {"sinks/x", "store/safedir", false}, {"sinks/x", "go.etcd.io/bbolt", true},
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

// calls are one file each: a call that touches a path, where it stands, and whether
// the rules forbid it there.
var calls = []struct {
	file, call string
	forbidden  bool
}{
	{"restore/a/x.go", `os.Open("x")`, true}, {"restore/b/x.go", `os.RemoveAll("x")`, true}, {"restore/c/x.go", `os.Chmod("x", 0)`, true},
	{"restore/d/x.go", `filepath.WalkDir("x", nil)`, true}, {"restore/e/x.go", `os.Rename("x", "y")`, true}, {"restore/f/x.go", `os.MkdirAll("x", 0)`, true},
	{"restore/g/x.go", `os.Lstat("x")`, true}, {"restore/h/x.go", `os.WriteFile("x", nil, 0)`, true}, {"restore/i/x.go", `filepath.Join("x")`, false},
	{"restore/j/x.go", `os.Getenv("x")`, false}, {"restore/k/x_test.go", `os.Open("x")`, false}, {"restore/x.go", `os.Lchown("x", 0, 0)`, true},
	{"walreplay/walfile/x.go", `os.Open("x")`, true}, {"walreplay/x.go", `os.Mkdir("x", 0)`, true}, {"snapshot/x.go", `os.Stat("x")`, true}, {"verify/x.go", `os.ReadDir("x")`, true},
	{"restore/recovery/host/x.go", `os.MkdirAll("x", 0)`, true}, {"restore/recovery/sources/x.go", `os.Open("x")`, true},
	{"restore/recovery/host/state.go", `os.Open("x")`, false}, {"restore/recovery/supervisor/x.go", `os.Open("x")`, false}, {"restore/recovery/x.go", `os.Open("x")`, false}, {"schedule/x.go", `os.Open("x")`, false},
	{"cmd/requorum/x.go", `os.Open("x")`, false}, {"sinks/disk/x.go", `os.Open("x")`, false}, {"store/safedir/x.go", `os.Lstat("x")`, false},
}

// TestPathRuleTrips lints a module of files that call what is forbidden where root
// works on a member's directory.
func TestPathRuleTrips(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "go.mod", "module "+module+"\n\ngo 1.26.0\n")
	wanted := map[string]bool{}
	for _, c := range calls {
		wanted[c.file] = c.forbidden
		from := "os"
		if strings.HasPrefix(c.call, "filepath.") {
			from = "path/filepath"
		}
		put(t, dir, c.file, fmt.Sprintf("package x\n\nimport %q\n\nfunc _() { %s }\n", from, c.call))
	}
	check(t, dir, "forbidigo", wanted)
}

// TestRulesTrip lints a module of empty packages with the names of ours, in which
// each import above stands in a file of its own.
func TestRulesTrip(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "go.mod", "module "+module+"\n\ngo 1.26.0\n\nrequire (\n\tgo.etcd.io/bbolt v1.0.0\n\tgopkg.in/yaml.v3 v3.0.0\n)\n\nreplace go.etcd.io/bbolt => ./other/bbolt\n\nreplace gopkg.in/yaml.v3 => ./other/yaml\n")
	for path, name := range map[string]string{"other/bbolt": "go.etcd.io/bbolt", "other/yaml": "gopkg.in/yaml.v3"} {
		put(t, dir, path+"/go.mod", "module "+name+"\n")
		put(t, dir, path+"/x.go", "package x\n")
	}
	wanted := map[string]bool{}
	for i, c := range imports {
		to := c.to
		if !strings.Contains(to, ".") {
			put(t, dir, to+"/x.go", "package x\n")
			to = module + "/" + to
		}
		name := fmt.Sprintf("%s/case%02d/x.go", c.from, i)
		wanted[name] = c.forbidden
		put(t, dir, name, fmt.Sprintf("package x\n\nimport _ %q\n", to))
	}
	check(t, dir, "depguard", wanted)
}

// check lints a module with our rules and one linter, and wants it to find something
// in the files that are wanted, and nothing in the others.
func check(t *testing.T, dir, only string, wanted map[string]bool) {
	t.Helper()
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
	rules, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, ".golangci.yml", string(rules))
	cmd := exec.Command(linter, "run", "--allow-parallel-runners", "--enable-only", only, "--max-issues-per-linter=0", "--max-same-issues=0", "--output.json.path=stdout", "--show-stats=false", "./...")
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
		if issue.FromLinter != only {
			t.Fatalf("%s: %s: the made module is not sound, and proves nothing", issue.FromLinter, issue.Text)
		}
		found[filepath.ToSlash(issue.Pos.Filename)]++
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if (found[name] > 0) != wanted[name] {
			data, _ := os.ReadFile(filepath.Join(dir, name))
			t.Errorf("%s is forbidden: %v, want %v: %s", name, found[name] > 0, wanted[name], data)
		}
	}
	if len(found) == 0 {
		t.Errorf("nothing was found: %s%s", out, stderr.String())
	}
}
