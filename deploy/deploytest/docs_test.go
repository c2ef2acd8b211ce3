package deploytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/store/storetest"
)

var (
	linked     = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInSlug  = regexp.MustCompile(`[^a-z0-9 -]`)
	commanded  = regexp.MustCompile(`\brequorum ([a-z]+)((?: +[^\s|;&#` + "`" + `)]+)*)`)
	optionName = regexp.MustCompile(`--[a-z][a-z-]*`)
	inRepo     = regexp.MustCompile(`\bdeploy/[a-z0-9/.-]+[a-z0-9]`)
)

// pages are all that people write.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "SECURITY.md", "CONTRIBUTING.md", "deploy/kubernetes/README.md"}
	docs, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	if err != nil || len(docs) < 10 {
		t.Fatalf("%d pages in docs, %v", len(docs), err)
	}
	for _, d := range docs {
		if name := filepath.Base(d); name != "commands.md" { // made of the commands themselves
			all = append(all, "docs/"+name)
		}
	}
	return all
}

func page(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(top, path))
	require.NoError(t, err)
	return string(data)
}

// Links lead somewhere, files that are named exist, commands and their options
// are the binary's.
func TestDocs(t *testing.T) {
	for _, p := range pages(t) {
		text := page(t, p)
		for _, l := range linked.FindAllStringSubmatch(text, -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			to := filepath.Join(filepath.Dir(p), l[1])
			if _, err := os.Stat(filepath.Join(top, to)); err != nil {
				t.Errorf("%s: %s leads nowhere", p, l[0])
			} else if l[2] != "" && !headings(page(t, to))[l[2][1:]] {
				t.Errorf("%s: %s has no such heading", p, l[0])
			}
		}
		for _, name := range inRepo.FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join(top, name)); err != nil && name != "deploy/deploytest" {
				t.Errorf("%s: there is no %s", p, name)
			}
		}
		flat := strings.ReplaceAll(text, "\\\n", " ")
		for _, at := range commanded.FindAllStringSubmatchIndex(flat, -1) {
			if strings.HasSuffix(flat[:at[0]], "-n ") { // kubectl's namespace
				continue
			}
			options := optionName.FindAllString(flat[at[4]:at[5]], -1)
			if len(options) == 0 {
				continue
			}
			command := flat[at[2]:at[3]]
			help := must(t, nil, storetest.Requorum(t), command, "--help")
			if below := strings.Fields(flat[at[4]:at[5]])[0]; strings.Contains(help, "\n  "+below+" ") {
				help = must(t, nil, storetest.Requorum(t), command, below, "--help")
			}
			for _, o := range options {
				if !strings.Contains(help, o) {
					t.Errorf("%s: requorum %s has no %s", p, flat[at[2]:at[3]], o)
				}
			}
		}
	}
}

func headings(text string) map[string]bool {
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		slug := notInSlug.ReplaceAllString(strings.ToLower(h[1]), "")
		all[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return all
}

// CONTRIBUTING.md has each folder at the top, and no folder or file that is gone.
func TestHouse(t *testing.T) {
	_, table, _ := strings.Cut(page(t, "CONTRIBUTING.md"), "\n| a new … | begins in |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	paths := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(table, -1)
	if len(paths) < 12 {
		t.Errorf("CONTRIBUTING.md says of %d places only where a new one goes", len(paths))
	}
	for _, path := range paths {
		_, err := os.Stat(filepath.Join(top, path[1]))
		require.NoError(t, err, "CONTRIBUTING.md: there is no %s", path[1])
	}
	_, rest, _ := strings.Cut(page(t, "CONTRIBUTING.md"), "\n## The house\n\n```\n")
	block, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("CONTRIBUTING.md has no block below \"The house\"")
	}
	named := map[string]bool{}
	for line := range strings.Lines(block) {
		folder := strings.Fields(line)[0]
		if info, err := os.Stat(filepath.Join(top, folder)); err != nil || !info.IsDir() {
			t.Errorf("CONTRIBUTING.md: there is no folder %s", folder)
		}
		named[strings.Split(folder, "/")[0]] = true
	}
	entries, err := os.ReadDir(top)
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !named[e.Name()] {
			t.Errorf("CONTRIBUTING.md does not say what is in %s", e.Name())
		}
	}
}

// Every alert is in the operator's list.
func TestOperationsNamesEachAlert(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(top, "docs", "runbooks"))
	require.NoError(t, err)
	text := page(t, "docs/operations.md")
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".md"); name != "README" && !strings.Contains(text, "| "+name+" |") {
			t.Errorf("%s is not in it", name)
		}
	}
}

// The numbers that docs/agent.md repeats are those of the configuration.
func TestGuideNamesDefaults(t *testing.T) {
	text := page(t, "docs/agent.md")
	d := config.Default()
	for what, want := range map[string][2]string{
		"jobs.full":         {d.Jobs.Full.Schedule, "0 1 * * *"},
		"jobs.full.jitter":  {d.Jobs.Full.Jitter.String(), "1h"},
		"jobs.checksum":     {d.Jobs.Checksum.Schedule, "30 3 * * *"},
		"jobs.prune":        {d.Jobs.Prune.Schedule, "0 6 * * *"},
		"jobs.divergence":   {d.Jobs.Divergence.Schedule, "0 3 * * 6"},
		"retention.any":     {d.Retention.AnyPoint.String(), "1w"},
		"archive.spool":     {d.Archive.SpoolLimit.String(), "2GiB"},
		"objectives.notice": {d.Objectives.CertificateNotice.String(), "2w"},
	} {
		if want[0] != want[1] {
			t.Errorf("%s is %s, and docs/agent.md says what %s means: correct both", what, want[0], want[1])
		}
	}
	if d.Retention.Daily != 35 || d.Retention.Weekly != 8 || d.Retention.Monthly != 12 || !strings.Contains(text, "35 daily, 8 weekly, 12 monthly") {
		t.Error("retention is another")
	}
	if d.Jobs.Replay.Runs() || d.Jobs.Drill.Runs() || !d.Jobs.Structure.AfterFull {
		t.Error("other jobs are on")
	}
}
