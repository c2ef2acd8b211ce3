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
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

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

// plainInterval is how often a line of progress is written where there is no
// terminal: often enough to see that work goes on, rare enough for a log.
const plainInterval = 5 * time.Second

// meter shows the progress of long work on standard error: a bar on a
// terminal, a plain line now and then elsewhere, nothing with JSON.
type meter struct {
	out   io.Writer
	bar   bool
	quiet bool
	plain bool // what is counted are no bytes

	phase  string
	began  time.Time
	last   time.Time
	done   int64
	total  int64
	drawer *progressbar.ProgressBar
}

func (g *globals) newMeter() *meter {
	m := &meter{out: g.stderr}
	file, isFile := g.stderr.(*os.File)
	terminal := isFile && term.IsTerminal(int(file.Fd()))
	switch g.progress {
	case "bar":
		m.bar = true
	case "plain":
	case "none":
		m.quiet = true
	default:
		m.bar = terminal
		m.quiet = g.output == "json"
	}
	return m
}

// update says where a phase stands, in bytes; total is 0 where it is not known.
func (m *meter) update(phase string, done, total int64) { m.tell(phase, done, total, false) }

// count is update for what is counted in pieces, such as entries.
func (m *meter) count(phase string, done, total int64) { m.tell(phase, done, total, true) }

func (m *meter) tell(phase string, done, total int64, plain bool) {
	m.plain = plain
	if m.quiet {
		return
	}
	now := time.Now()
	if phase != m.phase {
		m.finish()
		m.phase, m.began, m.last = phase, now, now
		if m.bar {
			m.drawer = m.newBar(phase)
		}
	}
	m.done, m.total = done, total
	if m.drawer != nil {
		if total > 0 && m.drawer.GetMax64() != total {
			m.drawer.ChangeMax64(total)
		}
		m.drawer.Set64(done) //nolint:errcheck // drawing is best effort
		return
	}
	if now.Sub(m.last) >= plainInterval {
		m.last = now
		m.line(now)
	}
}

func (m *meter) newBar(phase string) *progressbar.ProgressBar {
	return progressbar.NewOptions64(-1,
		progressbar.OptionSetWriter(m.out),
		progressbar.OptionSetDescription(phase),
		progressbar.OptionShowBytes(!m.plain),
		progressbar.OptionShowCount(),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionSetWidth(24),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish())
}

func (m *meter) line(now time.Time) {
	amount := size
	if m.plain {
		amount = func(n int64) string { return strconv.FormatInt(n, 10) }
	}
	fmt.Fprintf(m.out, "%s: %s", m.phase, amount(m.done))
	if m.total > 0 {
		fmt.Fprintf(m.out, " of %s (%d%%)", amount(m.total), 100*m.done/m.total)
	}
	fmt.Fprintf(m.out, " after %s\n", took(now.Sub(m.began)))
}

// finish ends the phase that is shown.
func (m *meter) finish() {
	if m.drawer != nil {
		m.drawer.Finish() //nolint:errcheck // drawing is best effort
		m.drawer = nil
	}
	m.phase = ""
}
