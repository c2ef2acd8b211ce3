package walfile

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// TestScenarios plays the scripts in testdata/scenarios. Commands:
//
//	segment seq=N name=I    begins a file; "broken" gives it a wrong first CRC
//	append                  more records for it
//	  entries A-B term=T, entry I term=T, commit C term=T, snapshot S term=T,
//	  flip (a bit of the record before), lose N (bytes at the end), zeros N
//	remove seq=N            deletes a file
//	log [from=N]            reads all as a stopped member's log
//	summary
//	tail [from=N]           opens it as a running member's
//	poll                    what is pending after a Poll
//	release N
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "scenarios"), func(t *testing.T, path string) {
		s := &scenario{dir: t.TempDir()}
		defer func() {
			if s.tail != nil {
				check(t, s.tail.Close())
			}
		}()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

type scenario struct {
	dir     string
	path    string
	builder *segmentBytes
	tail    *Tail
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "segment":
		var n name
		d.ScanArgs(t, "seq", &n.seq)
		d.ScanArgs(t, "name", &n.index)
		var sum uint32
		if s.builder != nil {
			sum = s.builder.sum
		}
		if d.HasArg("broken") {
			sum++
		}
		s.builder, s.path = newSegment(sum).crc().metadata(testIdentity), filepath.Join(s.dir, n.String())
		return s.add(t, d.Input)
	case "append":
		return s.add(t, d.Input)
	case "remove":
		var seq uint64
		d.ScanArgs(t, "seq", &seq)
		for _, path := range segments(t, s.dir) {
			if n, _ := parseName(filepath.Base(path)); n.seq == seq {
				check(t, os.Remove(path))
			}
		}
		return ""
	case "log":
		var from uint64
		d.MaybeScanArgs(t, "from", &from)
		got, err := entriesIn(t, s.dir, from)
		return s.describe(got, err)
	case "summary":
		l, err := Open(s.dir)
		check(t, err)
		sum, err := l.Summary(t.Context())
		out := fmt.Sprintf("entries %d to %d of term %d, commit %d, term %d, snapshot %d", sum.FirstIndex, sum.LastIndex, sum.LastTerm, sum.Commit, sum.Term, sum.Snapshot.Index)
		for _, g := range sum.Gaps {
			out += fmt.Sprintf(", gap between %d and %d", g.After, g.Next)
		}
		if sum.Torn != nil {
			out += fmt.Sprintf(", torn at %d", sum.Torn.Offset)
		}
		return out + "\n" + s.describe(nil, err)
	case "tail":
		var o TailOptions
		d.MaybeScanArgs(t, "from", &o.From)
		tail, err := OpenTail(s.dir, o)
		check(t, err)
		s.tail = tail
		return ""
	case "poll":
		err := s.tail.Poll(t.Context())
		return fmt.Sprintf("recorded %d\n", s.tail.Recorded()) + s.describe(s.tail.pending, err)
	case "release":
		var through uint64
		_, err := fmt.Sscan(d.CmdArgs[0].Key, &through)
		require.NoError(t, err)
		out := s.describe(s.tail.Release(through), nil)
		if o := s.tail.Overwritten(); o > 0 {
			out += fmt.Sprintf("overwritten from %d on\n", o)
		}
		return out
	}
	t.Fatalf("no command %s", d.Cmd)
	return ""
}

func (s *scenario) add(t *testing.T, input string) string {
	lines := bufio.NewScanner(strings.NewReader(input))
	for lines.Scan() {
		var a, b, term uint64
		line := lines.Text()
		last := func() int { return s.builder.before[len(s.builder.before)-1] }
		switch {
		case scan(line, "entries %d-%d term=%d", &a, &b, &term):
			for i := a; i <= b; i++ {
				s.builder.entry(i, term, fmt.Sprintf("entry %d of term %d", i, term))
			}
		case scan(line, "entry %d term=%d", &a, &term):
			s.builder.entry(a, term, "an entry")
		case scan(line, "commit %d term=%d", &a, &term):
			s.builder.state(term, a)
		case scan(line, "snapshot %d term=%d", &a, &term):
			s.builder.snapshot(a, term)
		case line == "flip":
			s.builder.bytes[last()+frameHead+12] ^= 4
		case scan(line, "lose %d", &a):
			s.builder.bytes = s.builder.bytes[:len(s.builder.bytes)-int(a)]
		case scan(line, "zeros %d", &a):
			s.builder.zeros(int(a))
		default:
			t.Fatalf("no record %q", line)
		}
	}
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY, 0o600) // in place: a Tail has it open
	check(t, err)
	_, err = f.WriteAt(s.builder.bytes, 0)
	check(t, err)
	check(t, f.Close())
	return ""
}

func scan(line, format string, args ...any) bool {
	n, err := fmt.Sscanf(line, format, args...)
	return n == len(args) && err == nil
}

// describe gives entries as ranges of equal terms.
func (s *scenario) describe(entries []raftlog.Entry, err error) string {
	var out strings.Builder
	for i := 0; i < len(entries); {
		j := i
		for j+1 < len(entries) && entries[j+1].Term == entries[i].Term && entries[j+1].Index == entries[j].Index+1 {
			j++
		}
		fmt.Fprintf(&out, "entries %d to %d, term %d\n", entries[i].Index, entries[j].Index, entries[i].Term)
		i = j + 1
	}
	var gap *GapError
	var purged *PurgedError
	var corrupt *CorruptError
	switch {
	case errors.As(err, &gap):
		fmt.Fprintf(&out, "gap between %d and %d\n", gap.After, gap.Next)
	case errors.As(err, &purged):
		fmt.Fprintf(&out, "purged: %d, first is %d\n", purged.Want, purged.First)
	case errors.As(err, &corrupt):
		fmt.Fprintf(&out, "corrupt: %s at %d: %v\n", corrupt.Segment[15:], corrupt.Offset, corrupt.Err)
	case err != nil:
		fmt.Fprintf(&out, "error: %v\n", err)
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}
