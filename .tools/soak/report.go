package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

const head = `# Soak

The long forms of the tests. Made by
` + "`make soak` and `make fuzz`, or in parts: `make soak RUN=TestLog PKG=./cmd/requorum/e2e`" + `.
A test has a row when it states figures or fails.

| test | figures | took | when (UTC), commit, cores |
| --- | --- | --- | --- |
`

// write is the report: a table of all rows.
func write(rows []row) string {
	var b strings.Builder
	b.WriteString(head)
	for _, r := range rows {
		figures := escape(r.Figures)
		if r.Result != "pass" {
			figures = strings.TrimSpace("**" + r.Result + "** " + figures)
		}
		name := strings.TrimSpace(r.Package + " " + r.Test)
		fmt.Fprintf(&b, "| %s |\n", strings.Join([]string{escape(name), figures, r.Took, escape(r.On)}, " | "))
	}
	return b.String()
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
	for n, l := range strings.Split(text, "\n") {
		if !strings.HasPrefix(l, "| ") || strings.HasPrefix(l, "| test ") || strings.HasPrefix(l, "| --- ") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(l, "| "), " |"), " | ")
		if len(cells) != 4 {
			return nil, fmt.Errorf("line %d has %d cells, not 4", n+1, len(cells))
		}
		pkg, test, _ := strings.Cut(unescape(cells[0]), " ")
		result, figures := "pass", cells[1]
		if failed, isFailed := strings.CutPrefix(figures, "**"); isFailed {
			result, figures, _ = strings.Cut(failed, "**")
		}
		rows = append(rows, row{pkg, test, result, unescape(strings.TrimSpace(figures)), cells[2], unescape(cells[3])})
	}
	return rows, nil
}

// A cell may hold anything but the end of one.
func escape(s string) string   { return strings.ReplaceAll(s, "|", "&#124;") }
func unescape(s string) string { return strings.ReplaceAll(s, "&#124;", "|") }
