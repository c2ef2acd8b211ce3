package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/verify/serve"
	"github.com/requorum/requorum/walreplay"
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
func (g *globals) printf(format string, args ...any) { printf(g.stdout, format, args...) }

func printf(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, format, printable(args)...)
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

// printableLines keeps the line breaks, which part errors that were joined. What others
// wrote could have some too: no line but the first begins at the margin, as ours do.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = report.Printable(line)
	}
	return strings.Join(lines, "\n  ")
}

// oneLine shows the parts of errors that were joined in one line.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

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

// when writes a time as --at takes it.
func when(t time.Time) string { return t.UTC().Format(time.RFC3339) }

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

// How often progress is written: on a terminal, where a line takes the place of the one
// before, and elsewhere, often enough to see that work goes on and rare enough for a log.
const (
	terminalInterval = 200 * time.Millisecond
	plainInterval    = 5 * time.Second
)

// meter shows the progress of long work on standard error, with nothing where
// results are JSON.
type meter struct {
	out      io.Writer
	terminal bool
	quiet    bool

	phase string
	began time.Time
	last  time.Time
}

func (g *globals) newMeter() *meter {
	file, isFile := g.stderr.(*os.File)
	terminal := isFile && term.IsTerminal(int(file.Fd()))
	return &meter{
		out:      g.stderr,
		terminal: terminal && g.progress != "plain",
		quiet:    g.progress == "none" || g.progress == "auto" && g.output == "json",
	}
}

// update says where a phase stands, in bytes; total is 0 where it is not known.
func (m *meter) update(phase string, done, total int64) { m.print(phase, done, total, size) }

// count is update for what is counted in pieces, such as entries.
func (m *meter) count(phase string, done, total int64) {
	m.print(phase, done, total, func(n int64) string { return strconv.FormatInt(n, 10) })
}

// countedPhases are those of a replay, a verification and a recovery whose progress is no
// bytes: entries, or checks.
var countedPhases = []string{string(walreplay.PhaseReplay), string(walreplay.PhaseSearch), string(walreplay.PhaseProve), serve.PhaseServe, sources.PhaseCompare}

// show is one of both, as the phase is counted.
func (m *meter) show(phase string, done, total int64) { m.showAs(phase, phase, done, total) }

// showAs is show under another name than the phase's.
func (m *meter) showAs(label, phase string, done, total int64) {
	if slices.Contains(countedPhases, phase) {
		m.count(label, done, total)
	} else {
		m.update(label, done, total)
	}
}

func (m *meter) print(phase string, done, total int64, amount func(int64) string) {
	if m.quiet {
		return
	}
	now := time.Now()
	if phase != m.phase {
		m.finish()
		m.phase, m.began, m.last = phase, now, now
	}
	every, before, after := plainInterval, "", "\n"
	if m.terminal {
		every, before, after = terminalInterval, clearLine, ""
	}
	if now.Sub(m.last) < every {
		return
	}
	m.last = now
	text := amount(done)
	if total > 0 {
		text += fmt.Sprintf(" of %s (%d%%)", amount(total), 100*done/total)
	}
	fmt.Fprintf(m.out, "%s%s: %s after %s%s", before, phase, text, took(now.Sub(m.began)), after)
}

// clearLine clears a terminal's line, and begins it anew.
const clearLine = "\r\x1b[K"

// finish ends the phase that is shown.
func (m *meter) finish() {
	if m.terminal && m.phase != "" {
		fmt.Fprint(m.out, clearLine)
	}
	m.phase = ""
}
