package web

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/walreplay/archive"
)

var runbooks = filepath.Join(top, "docs", "runbooks")

// The parts of each page, in this order.
var parts = []string{"## Meaning", "## Impact", "## Diagnosis", "## Mitigation", "## What you would lose now", "## What not to do"}

// Each alert has a page, each page an alert, and all pages the same parts.
func TestRunbooks(t *testing.T) {
	for name := range wantAlerts {
		text := string(readFile(t, filepath.Join(runbooks, name+".md")))
		rest := text
		for _, part := range parts {
			_, after, found := strings.Cut(rest, "\n"+part+"\n")
			if !found {
				t.Errorf("%s: no %q, or not in its place", name, part)
				break
			}
			body, _, _ := strings.Cut(after, "\n## ")
			if strings.TrimSpace(body) == "" {
				t.Errorf("%s: nothing below %q", name, part)
			}
			rest = after
		}
		if !strings.Contains(string(readFile(t, filepath.Join(runbooks, "README.md"))), "]("+name+".md)") {
			t.Errorf("%s is not in the list", name)
		}
	}
	pages, err := os.ReadDir(runbooks)
	require.NoError(t, err)
	for _, p := range pages {
		name := strings.TrimSuffix(p.Name(), ".md")
		if name != "README" && wantAlerts[name] == nil {
			t.Errorf("%s is of no alert", p.Name())
		}
	}
}

var (
	runbookLink = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	fenced      = regexp.MustCompile("(?s)\n```[a-z]*\n(.*?)\n```")
	inline      = regexp.MustCompile("`([^`]+)`")
	command     = regexp.MustCompile(`\brequorum ([a-z]+)([^|;&#]*)`)
	flagName    = regexp.MustCompile(`--[a-z-]+`)
	configKey   = regexp.MustCompile("`((?:objectives|archive|repository|resources|verdicts|member|listen|jobs)\\.[a-z.-]+)")
	jq          = regexp.MustCompile(`jq '([^']*)'`)
	jqField     = regexp.MustCompile(`\.([a-z_]+)`)
	inText      = regexp.MustCompile("`((?:rpo|archive|cluster)\\.[a-z_]+)`")
)

// What the pages name is there: links, commands with their flags, keys of the
// configuration, fields of the status.
func TestRunbooksAreTrue(t *testing.T) {
	commands := string(readFile(t, filepath.Join(top, "docs", "commands.md")))
	keys := string(readFile(t, filepath.Join(top, "docs", "agent-configuration.md")))
	fields := statusFields(t)
	pages, err := filepath.Glob(filepath.Join(runbooks, "*.md"))
	require.NoError(t, err)
	checked := 0
	for _, page := range pages {
		text, name := string(readFile(t, page)), filepath.Base(page)
		for _, m := range runbookLink.FindAllStringSubmatch(text, -1) {
			_, err = os.Stat(filepath.Join(runbooks, m[1]))
			require.NoError(t, err, "%s: a link leads nowhere", name)
		}
		for _, m := range commandsIn(text) {
			checked++
			_, help, found := strings.Cut(commands, "\n## requorum "+m[1]+"\n")
			if !found {
				t.Errorf("%s: there is no command requorum %s", name, m[1])
				continue
			}
			help, _, _ = strings.Cut(help, "\n## ")
			for _, f := range flagName.FindAllString(m[2], -1) {
				if !regexp.MustCompile(regexp.QuoteMeta(f) + `\b`).MatchString(help) {
					t.Errorf("%s: requorum %s has no %s", name, m[1], f)
				}
			}
		}
		for _, m := range configKey.FindAllStringSubmatch(text, -1) {
			if fields[m[1]] {
				continue
			}
			section, key, _ := strings.Cut(m[1], ".")
			if !strings.Contains(keys, "### `"+section) || !strings.Contains(keys, key[strings.LastIndex(key, ".")+1:]+"`") {
				t.Errorf("%s: the configuration has no key %s", name, m[1])
			}
		}
		for _, m := range jq.FindAllStringSubmatch(text, -1) {
			for _, f := range jqField.FindAllStringSubmatch(m[1], -1) {
				if !fields[f[1]] {
					t.Errorf("%s: the status has no field %s", name, f[1])
				}
			}
		}
		for _, m := range inText.FindAllStringSubmatch(text, -1) {
			if !fields[m[1]] && !strings.Contains(m[1], "-") && !strings.Contains(keys, strings.SplitN(m[1], ".", 2)[1]+"`") {
				t.Errorf("%s: the status has no %s", name, m[1])
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d commands were found on the pages", checked)
	}
}

// commandsIn are the commands of a page, each with its arguments: those of its
// blocks of code, a line each, and those within its text.
func commandsIn(text string) (found [][]string) {
	for _, block := range fenced.FindAllStringSubmatch(text, -1) {
		for _, line := range strings.Split(block[1], "\n") {
			found = append(found, command.FindAllStringSubmatch(line, -1)...)
		}
	}
	for _, code := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		found = append(found, command.FindAllStringSubmatch(strings.Join(strings.Fields(code[1]), " "), -1)...)
	}
	return found
}

// statusFields are the names of all fields of a Status as JSON, alone and behind
// the one that they are in.
func statusFields(t *testing.T) map[string]bool {
	t.Helper()
	s := full()
	s.Archive.SnapshotDue, s.Archive.LastError = "x", "x"
	s.Archive.Gaps = []archive.Gap{{Found: now}}
	s.Repository.Backups[0].Damaged = "x"
	data, err := json.Marshal(s)
	require.NoError(t, err)
	var document any
	require.NoError(t, json.Unmarshal(data, &document))
	fields := map[string]bool{}
	var walk func(parent string, v any)
	walk = func(parent string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				fields[name], fields[parent+"."+name] = true, true
				walk(name, inner)
			}
		case []any:
			for _, inner := range v {
				walk(parent, inner)
			}
		}
	}
	walk("", document)
	return fields
}
