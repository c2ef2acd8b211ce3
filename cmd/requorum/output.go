package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/verify/report"
)

// printJSON writes one result as indented JSON, as docs/json.md describes it.
func (g *globals) printJSON(v any) error {
	enc := json.NewEncoder(g.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printf prints text about what is in a backup or a repository. Whoever could
// write there chose the words: nothing in args is obeyed by the terminal, or
// begins a line of its own.
func (g *globals) printf(format string, args ...any) {
	fmt.Fprintf(g.stdout, format, printable(args)...)
}

// note is printf for a line on standard error.
func (g *globals) note(format string, args ...any) {
	fmt.Fprintf(g.stderr, "note: "+format+"\n", printable(args)...)
}

// printable are arguments of a format with their texts made printable.
func printable(args []any) []any {
	all := slices.Clone(args)
	for i, arg := range all {
		switch v := arg.(type) {
		case error:
			all[i] = report.Printable(v.Error())
		case fmt.Stringer:
			all[i] = report.Printable(v.String())
		default:
			if v := reflect.ValueOf(arg); v.Kind() == reflect.String {
				all[i] = report.Printable(v.String())
			}
		}
	}
	return all
}

// printableLines keeps the line breaks, which part errors that were joined.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = report.Printable(line)
	}
	return strings.Join(lines, "\n")
}

// table writes aligned columns.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, header ...string) *table {
	t := &table{tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
	if len(header) > 0 {
		t.row(header...)
	}
	return t
}

// row adds a line; no cell can pretend to be two, or is obeyed by the terminal.
func (t *table) row(cells ...string) {
	shown := make([]string, len(cells))
	for i, c := range cells {
		shown[i] = report.Printable(c)
	}
	fmt.Fprintln(t.w, strings.Join(shown, "\t"))
}

// flush writes what was held back for alignment.
func (t *table) flush() error { return t.w.Flush() }

// size writes bytes as people read them.
func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// when writes a time as people and scripts both read it.
func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// took writes a duration without needless digits.
func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
