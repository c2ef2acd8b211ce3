package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

const head = `# Soak

The long forms of the tests: more kills, bigger loads, all versions. Made by
` + "`make soak`" + `, and by ` + "`make soak RUN=TestLog PKG=./cmd/requorum`" + ` in parts: each row
tells when it ran last, on which commit, with which Go, on how many cores. A test
has a row when it states figures, when it takes a minute, and when it does not
pass; the others are counted. A whole run begins the report anew, but for what
` + "`make fuzz`" + ` has put into it.
`

const columns = `
| test | result | figures | took | when (UTC) | commit, Go, machine |
| --- | --- | --- | --- | --- | --- |
`

// write is the report: a table for each test, and one of the packages.
func write(rows []row) string {
	var b strings.Builder
	b.WriteString(head)
	section := ""
	for _, r := range rows {
		if r.Test == "" {
			continue
		}
		name, _, _ := strings.Cut(r.Test, "/")
		if title := "\n## " + name + ", " + r.Package + "\n"; title != section {
			section = title
			b.WriteString(title + columns)
		}
		line(&b, r.Test, r)
	}
	b.WriteString("\n## Packages\n" + columns)
	for _, r := range rows {
		if r.Test == "" {
			line(&b, r.Package, r)
		}
	}
	return b.String()
}

func line(b *strings.Builder, name string, r row) {
	result := r.Result
	if result != "pass" {
		result = "**" + result + "**"
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join([]string{escape(name), result, escape(r.Figures), r.Took, r.When, escape(r.On)}, " | "))
}

// readReport reads a report's rows back; a report that is not there has none.
func readReport(path string) ([]row, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rows, err := parse(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: mend it by hand, or begin it anew with a whole run after removing it", path, err)
	}
	return rows, nil
}

func parse(text string) ([]row, error) {
	var rows []row
	pkg, section := "", ""
	for n, l := range strings.Split(text, "\n") {
		if title, ok := strings.CutPrefix(l, "## "); ok {
			section = title
			_, pkg, _ = strings.Cut(title, ", ")
		}
		if !strings.HasPrefix(l, "| ") || strings.HasPrefix(l, "| test ") || strings.HasPrefix(l, "| --- ") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(l, "| "), " |"), " | ")
		if len(cells) != 6 {
			return nil, fmt.Errorf("line %d has %d cells, not 6", n+1, len(cells))
		}
		r := row{pkg, unescape(cells[0]), strings.Trim(cells[1], "*"), unescape(cells[2]), cells[3], cells[4], unescape(cells[5])}
		if section == "Packages" {
			r.Package, r.Test = r.Test, ""
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// A cell may hold anything but the end of one.
func escape(s string) string   { return strings.ReplaceAll(s, "|", "&#124;") }
func unescape(s string) string { return strings.ReplaceAll(s, "&#124;", "|") }
