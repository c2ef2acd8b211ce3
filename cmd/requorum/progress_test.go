package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Plain lines come now and then, never more often, and say how far it is.
func TestPlainProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		g := &globals{environment: environment{stderr: &out}, progress: "plain"}
		m := g.newMeter()
		const total = 100 << 20
		for i := range 100 {
			m.update("stream", int64(i)<<20, total)
			time.Sleep(200 * time.Millisecond)
		}
		m.finish()
		lines := strings.Count(out.String(), "\n")
		if lines != 3 {
			t.Errorf("%d lines in 20 seconds, want one every 5:\n%s", lines, out.String())
		}
		if !strings.Contains(out.String(), "stream: 25 MiB of 100 MiB (25%) after 5s") {
			t.Errorf("got:\n%s", out.String())
		}
	})
}

func TestProgressIsQuiet(t *testing.T) {
	for _, g := range []globals{{progress: "none"}, {progress: "auto", output: "json"}} {
		var out bytes.Buffer
		g.stderr = &out
		m := g.newMeter()
		m.update("stream", 1, 2)
		m.finish()
		if out.Len() > 0 {
			t.Errorf("--progress %s --output %s wrote %q", g.progress, g.output, out.String())
		}
	}
}

// On a terminal one line shows how far it is, and is gone at the end.
func TestProgressOnTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := &meter{out: &out, terminal: true}
		m.update("stream", 1<<20, 10<<20)
		time.Sleep(time.Second)
		m.update("stream", 5<<20, 10<<20)
		m.finish()
		if got := out.String(); got != clearLine+"stream: 5.0 MiB of 10 MiB (50%) after 1s"+clearLine {
			t.Errorf("got %q", got)
		}
	})
}
