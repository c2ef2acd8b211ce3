package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

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

// update tells where a phase stands, in bytes; total is 0 where it is not known.
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
