package e2e

import (
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/store/storetest"
)

// ciRepos are repositories in the states that a gate has to distinguish.
type ciRepos struct {
	u                                   *user
	healthy, damaged, encrypted, nobody string
	identity                            string
}

// startCI makes them.
func startCI(t *testing.T) *ciRepos {
	t.Helper()
	d := startDamaged(t)
	c := &ciRepos{u: d.u, identity: d.identity, nobody: d.u.Path("nobody")}
	c.healthy, _, _ = d.repo(t, "healthy")
	c.encrypted, _, _ = d.repo(t, "encrypted", d.age...)
	path, _, newer := d.repo(t, "damaged")
	c.damaged = path
	object := filepath.Join(path, newer.Object.Name)
	require.NoError(t, os.Chmod(object, 0o600))
	require.NoError(t, flip(object, newer.Object.StoredSize/2, 1))
	return c
}

func readOrNone(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// junitCounts are the numbers at the top of a JUnit report, which has to be
// valid.
func junitCounts(t *testing.T, path string) (tests, failures, errors int) {
	t.Helper()
	schema := filepath.Join(storetest.Root(t), "verify", "report", "testdata", "junit.xsd")
	if out, err := exec.Command(storetest.Program(t, "xmllint"), "--noout", "--nonet", "--schema", schema, path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var top struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
	}
	require.NoError(t, xml.Unmarshal(data, &top))
	return top.Tests, top.Failures, top.Errors
}

// TestGitHubAction is point 4 of issue 4: the action's own steps fail the job on
// a damaged backup and pass it on a healthy one; what could not be checked fails
// it unless that is allowed.
func TestGitHubAction(t *testing.T) {
	t.Parallel()
	c := startCI(t)
	r := newRunner(t, c.u)
	for _, test := range []struct {
		name             string
		with             map[string]string
		code             int
		status           string
		failures, errors bool
	}{
		{"healthy", map[string]string{"repo": c.healthy}, exitOK, "passed", false, false},
		{"healthy, all of it, nothing written", map[string]string{"repo": c.healthy, "backup": "all", "verdict": "false", "level": "checksum"}, exitOK, "passed", false, false},
		// Damage on one level is why the next cannot be tried: an error beside the failure.
		{"damaged", map[string]string{"repo": c.damaged}, exitDamaged, "damaged", true, true},
		{"damaged, unchecked allowed", map[string]string{"repo": c.damaged, "allow-unchecked": "true"}, exitDamaged, "damaged", true, true},
		{"encrypted", map[string]string{"repo": c.encrypted, "identity": c.identity}, exitOK, "passed", false, false},
		{"encrypted, without the identity", map[string]string{"repo": c.encrypted}, exitIncomplete, "unchecked", false, true},
		{"encrypted, without the identity, allowed", map[string]string{"repo": c.encrypted, "allow-unchecked": "true"}, exitOK, "unchecked", false, true},
		{"no repository", map[string]string{"repo": c.nobody}, exitFailed, "failed", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.with["requorum"] = c.u.Binary
			before := len(tree(t, filepath.Join(test.with["repo"], "verdicts")))
			j := r.run(t, test.with)
			if j.code != test.code || j.outputs["status"] != test.status {
				t.Fatalf("exit code %d, want %d; status %q, want %q\n%s", j.code, test.code, j.outputs["status"], test.status, j.log)
			}
			if !strings.Contains(j.summary, "requorum verify: "+test.status+"\n") {
				t.Errorf("the summary is %q", j.summary)
			}
			if test.status == "failed" {
				return
			}
			tests, failures, errors := junitCounts(t, filepath.Join(j.dir, "requorum-junit.xml"))
			if tests == 0 || (failures > 0) != test.failures || (errors > 0) != test.errors {
				t.Errorf("%d test cases, %d failures, %d errors", tests, failures, errors)
			}
			if n := len(tree(t, filepath.Join(test.with["repo"], "verdicts"))) - before; (n == 0) != (test.with["verdict"] == "false") {
				t.Errorf("%d verdicts were written", n)
			}
			expectCommandsStopped(t, j.log)
		})
	}
}

// expectCommandsStopped wants the report in the log to stand where the runner
// takes no line for a command.
func expectCommandsStopped(t *testing.T, log string) {
	t.Helper()
	_, rest, ok := strings.Cut(log, "::stop-commands::")
	token, rest, _ := strings.Cut(rest, "\n")
	report, _, again := strings.Cut(rest, "\n::"+token+"::\n")
	if !ok || !again || !strings.Contains(report, "checksum") {
		t.Errorf("the report does not stand where commands are stopped:\n%s", log)
	}
}

// An input is data, and never a part of the script: that no expression stands in
// one is what makes it so.
func TestGitHubActionInjection(t *testing.T) {
	u := newUser(t)
	r := newRunner(t, u)
	for _, step := range r.action.Runs.Steps {
		if expression.MatchString(step.Run) {
			t.Errorf("the step %q has an expression in its script", step.Name)
		}
		if step.Run != "" && step.Shell != "bash" {
			t.Errorf("the step %q runs in %q", step.Name, step.Shell)
		}
	}
	for name, out := range r.action.Outputs {
		if out.Value == "" {
			t.Errorf("the output %s has no value", name)
		}
	}
	mark := u.Path("injected")
	hostile := fmt.Sprintf(`$(touch %s)"; touch %s; echo "`, mark, mark)
	with := map[string]string{"requorum": u.Binary}
	for name := range r.action.Inputs {
		if name != "requorum" {
			with[name] = hostile
		}
	}
	if j := r.run(t, with); j.code == 0 {
		t.Errorf("it passed:\n%s", j.log)
	}
	_, err := os.Stat(mark)
	require.Error(t, err, "an input was run as a command")
}

// Without a binary the action builds one from its own source, in its own version.
func TestGitHubActionBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds requorum anew; TestGitHubAction has the other steps")
	}
	t.Parallel()
	u := newUser(t)
	r := newRunner(t, u)
	steps := r.action.Runs.Steps
	for i, step := range steps {
		if step.ID == "verify" {
			steps[i].Run = `"$RUNNER_TEMP/requorum-bin/requorum" version`
		}
	}
	if j := r.run(t, map[string]string{"repo": "none"}); j.code != 0 || !strings.Contains(j.log, "v9.9.9") {
		t.Errorf("exit code %d\n%s", j.code, j.log)
	}
}

// The script of the GitLab job ends as the action does.
func TestGitLabJob(t *testing.T) {
	c := startCI(t)
	data, err := os.ReadFile(filepath.Join(storetest.Root(t), "deploy", "ci", "gitlab.yml"))
	require.NoError(t, err)
	var file map[string]struct {
		Variables map[string]string `yaml:"variables"`
		Script    []string          `yaml:"script"`
		Artifacts struct {
			Reports map[string]string `yaml:"reports"`
		} `yaml:"artifacts"`
	}
	require.NoError(t, yaml.Unmarshal(data, &file))
	job, ok := file[".requorum-verify"]
	if !ok || len(job.Script) == 0 || job.Artifacts.Reports["junit"] != "$REQUORUM_JUNIT" {
		t.Fatalf("%+v", file)
	}
	// As GitLab lays down a variable of type "file": everybody may write to it.
	identity := filepath.Join(t.TempDir(), "file")
	bytes, err := os.ReadFile(c.identity)
	if err == nil {
		err = errors.Join(os.WriteFile(identity, bytes, 0o666), os.Chmod(identity, 0o666), os.Chmod(filepath.Dir(identity), 0o777))
	}
	require.NoError(t, err)
	for _, test := range []struct {
		repo, identity string
		code           int
	}{{c.healthy, "", exitOK}, {c.damaged, "", exitDamaged}, {c.encrypted, "", exitIncomplete}, {c.encrypted, identity, exitOK}} {
		env := maps.Clone(job.Variables)
		env["REQUORUM_REPO"], env["REQUORUM_IDENTITY"] = test.repo, test.identity
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, ".requorum"), 0o755))
		if err := os.Symlink(c.u.Binary, filepath.Join(dir, ".requorum", "requorum")); err != nil { // what the job before built
			t.Fatal(err)
		}
		log, code := c.u.bash(t, dir, strings.Join(job.Script, "\n"), env)
		if code != test.code {
			t.Errorf("exit code %d, want %d\n%s", code, test.code, log)
		}
		if _, failures, _ := junitCounts(t, filepath.Join(dir, "requorum-junit.xml")); (failures > 0) != (test.code == exitDamaged) {
			t.Errorf("%d failures\n%s", failures, log)
		}
	}
}

// The GitLab job that builds takes a release and nothing that moves, and the job that
// holds the identity downloads nothing.
func TestGitLabBuild(t *testing.T) {
	u := newUser(t)
	data, err := os.ReadFile(filepath.Join(storetest.Root(t), "deploy", "ci", "gitlab.yml"))
	require.NoError(t, err)
	var file map[string]struct {
		Image     string            `yaml:"image"`
		Variables map[string]string `yaml:"variables"`
		Script    []string          `yaml:"script"`
	}
	require.NoError(t, yaml.Unmarshal(data, &file))
	build := file[".requorum-build"]
	for _, image := range []string{build.Image, file[".requorum-verify"].Image} {
		if image != "$REQUORUM_GO_IMAGE" {
			t.Errorf("the image is %q, and not the one that the user names by digest", image)
		}
	}
	script := strings.Join(file[".requorum-verify"].Script, "\n")
	if fetches := regexp.MustCompile(`\b(go|curl|wget|apt|apk|git|https?)\b`).FindString(script); fetches != "" || !strings.HasSuffix(script, `.requorum/requorum verify -- "$REQUORUM_BACKUP"`) {
		t.Errorf("beside the identity runs %q: %q", script, fetches)
	}
	if build.Variables["GOSUMDB"] != "sum.golang.org" {
		t.Errorf("the checksum database is %q", build.Variables["GOSUMDB"])
	}
	fake := t.TempDir()
	require.NoError(t, storetest.WriteProgram(filepath.Join(fake, "go"), []byte("#!/bin/sh\necho \"$GOBIN $*\"\n"), 0o755))
	for version, code := range map[string]int{
		"": 2, "latest": 2, "main": 2, "v1": 2, "v1.0": 2, "upgrade": 2,
		"v1.0.0 ":     2, //nolint:gocritic // the space is the test
		"v1.0.0;true": 2, "v1.0.0": 0,
	} {
		env := maps.Clone(build.Variables)
		env["REQUORUM_VERSION"], env["PATH"] = version, fake+string(os.PathListSeparator)+os.Getenv("PATH")
		dir := t.TempDir()
		log, got := u.bash(t, dir, "set -e\n"+strings.Join(build.Script, "\n"), env)
		installs := strings.Contains(log, dir+"/.requorum install github.com/requorum/requorum/cmd/requorum@"+version+"\n")
		if got != code || installs != (code == 0) {
			t.Errorf("version %q: exit code %d, want %d\n%s", version, got, code, log)
		}
	}
}
