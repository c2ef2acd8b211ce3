package e2e

import (
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

// action is what of a composite action its steps need.
type action struct {
	Inputs map[string]struct {
		Default  string `yaml:"default"`
		Required bool   `yaml:"required"`
	} `yaml:"inputs"`
	Outputs map[string]struct {
		Value string `yaml:"value"`
	} `yaml:"outputs"`
	Runs struct {
		Using string       `yaml:"using"`
		Steps []actionStep `yaml:"steps"`
	} `yaml:"runs"`
}

type actionStep struct {
	Name  string            `yaml:"name"`
	ID    string            `yaml:"id"`
	If    string            `yaml:"if"`
	Uses  string            `yaml:"uses"`
	Shell string            `yaml:"shell"`
	Env   map[string]string `yaml:"env"`
	Run   string            `yaml:"run"`
}

// runner does what a GitHub runner does with an action, as far as this one asks
// for it; what it does not know fails the test.
type runner struct {
	action action
	path   string // of the action's folder
	u      *user
}

// ran is how a job ended.
type ran struct {
	code    int
	log     string
	summary string
	outputs map[string]string
	dir     string // the workspace
}

func newRunner(t *testing.T, u *user) *runner {
	t.Helper()
	path := filepath.Join(storetest.Root(t), "deploy", "ci", "github")
	data, err := os.ReadFile(filepath.Join(path, "action.yml"))
	require.NoError(t, err)
	r := &runner{path: path, u: u}
	require.NoError(t, yaml.Unmarshal(data, &r.action))
	if r.action.Runs.Using != "composite" {
		t.Fatalf("it is a %q action", r.action.Runs.Using)
	}
	return r
}

var expression = regexp.MustCompile(`\$\{\{\s*(.*?)\s*\}\}`)

// expand puts inputs and the few other values into a text.
func (r *runner) expand(t *testing.T, text string, inputs map[string]string) string {
	t.Helper()
	return expression.ReplaceAllStringFunc(text, func(s string) string {
		switch name := expression.FindStringSubmatch(s)[1]; name {
		case "github.action_path":
			return r.path
		case "github.action_ref":
			return "v9.9.9"
		default:
			input, ok := strings.CutPrefix(name, "inputs.")
			if _, known := r.action.Inputs[input]; !ok || !known {
				t.Fatalf("%s: the runner does not know it", s)
			}
			return inputs[input]
		}
	})
}

// run runs the action's steps with inputs, in a new workspace.
func (r *runner) run(t *testing.T, with map[string]string) ran {
	t.Helper()
	inputs := map[string]string{}
	for name, in := range r.action.Inputs {
		inputs[name] = in.Default
		if in.Required && with[name] == "" {
			t.Fatalf("the input %s is required", name)
		}
	}
	for name := range with {
		if _, known := r.action.Inputs[name]; !known {
			t.Fatalf("the action has no input %s", name)
		}
	}
	maps.Copy(inputs, with)
	result := ran{dir: t.TempDir(), outputs: map[string]string{}}
	temp := t.TempDir()
	for _, step := range r.action.Runs.Steps {
		switch step.If {
		case "":
		case "inputs.requorum == ''":
			if inputs["requorum"] != "" {
				continue
			}
		default:
			t.Fatalf("the runner does not know the condition %q", step.If)
		}
		if step.Run == "" {
			continue // another action's: here is Go already
		}
		env := map[string]string{
			"RUNNER_TEMP":         temp,
			"GITHUB_OUTPUT":       filepath.Join(temp, "output-"+step.ID),
			"GITHUB_STEP_SUMMARY": filepath.Join(temp, "summary"),
		}
		for name, value := range step.Env {
			env[name] = r.expand(t, value, inputs)
		}
		log, code := r.u.bash(t, result.dir, step.Run, env)
		result.log += log
		result.code = code
		for line := range strings.Lines(readOrNone(t, env["GITHUB_OUTPUT"])) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			result.outputs[name] = value
		}
		if code != 0 {
			break
		}
	}
	result.summary = readOrNone(t, filepath.Join(temp, "summary"))
	return result
}

// bash runs a script as CI systems do. Nothing of the tester's environment that
// steers requorum is in it.
func (u *user) bash(t *testing.T, dir, script string, env map[string]string) (log string, code int) {
	t.Helper()
	cmd := exec.Command(storetest.Program(t, "bash"), "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = dir, append([]string{}, u.Env...)
	for _, e := range os.Environ() { // the build needs its caches, which HOME does not name here
		if name, _, _ := strings.Cut(e, "="); name == "HOME" {
			cmd.Env = append(cmd.Env, e)
		}
	}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
