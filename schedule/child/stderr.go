package child

import (
	"bytes"
	"strings"
	"sync"
	"unicode"
)

// kept is how many bytes of the child's standard error are kept, and longestKept
// how many of one line.
const (
	kept        = 8 << 10
	longestKept = 1 << 10
)

// keeper keeps the last lines of what a child writes; and, from the first one of a
// crash on, the first lines: what Go writes after these are long traces.
type keeper struct {
	mu      sync.Mutex
	lines   []string
	size    int
	rest    []byte // of a line that has no end yet
	crashed bool
	memory  bool // what it says is that memory could not be had
	suspect bool // it ended as one does, among others, whose memory could not be had
}

// Write takes a part. It never fails.
func (k *keeper) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for left := p; len(left) > 0; {
		line, rest, whole := bytes.Cut(left, []byte("\n"))
		left = rest
		if room := longestKept - len(k.rest); room > 0 {
			k.rest = append(k.rest, line[:min(len(line), room)]...)
		}
		if whole {
			k.take(string(k.rest))
			k.rest = k.rest[:0]
		}
	}
	return len(p), nil
}

// crashes begin lines of Go's runtime before a process ends.
var crashes = []string{"fatal error: ", "panic: ", "runtime: ", "runtime/cgo: ", "SIG"}

// shortages are in lines about memory that could not be had.
var shortages = []string{"out of memory", "cannot allocate", "pthread_create failed"}

// suspects begin lines of a crash that a want of memory can cause: Go's runtime and
// C's library do not always look whether they got what they asked for. A fault in
// our own code begins with "panic: ", also where a signal stands behind it.
var suspects = []string{"SIGSEGV", "SIGABRT", "SIGBUS", "fatal error: "}

func (k *keeper) take(line string) {
	if !k.crashed {
		for _, c := range crashes {
			if strings.HasPrefix(line, c) {
				k.crashed, k.lines, k.size = true, nil, 0
			}
		}
	}
	if k.crashed {
		for _, s := range shortages {
			k.memory = k.memory || len(k.lines) < 3 && strings.Contains(line, s)
		}
		for _, s := range suspects {
			k.suspect = k.suspect || len(k.lines) == 0 && strings.HasPrefix(line, s)
		}
		if k.size+len(line)+1 > kept { // or the first line would go
			return
		}
	}
	k.lines, k.size = append(k.lines, line), k.size+len(line)+1
	for k.size > kept {
		k.size -= len(k.lines[0]) + 1
		k.lines = k.lines[1:]
	}
}

// outOfMemory tells whether the child crashed for want of memory.
func (k *keeper) outOfMemory() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.memory
}

// looksLikeMemory tells whether the child crashed as one may for want of memory.
func (k *keeper) looksLikeMemory() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.suspect
}

// Line is the one line that tells most: the first of a crash, the last of anything
// else; bounded, and without what a terminal or a page would take for its own.
func (k *keeper) Line() string {
	all := k.String()
	k.mu.Lock()
	crashed := k.crashed
	k.mu.Unlock()
	line := all[strings.LastIndexByte(all, '\n')+1:]
	if crashed {
		line, _, _ = strings.Cut(all, "\n")
	}
	return oneLine(line)
}

// longestLineOf is how much of a line an error has.
const longestLineOf = 200

func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(strings.ToValidUTF8(s, "?")))
	if len(s) > longestLineOf {
		s = strings.ToValidUTF8(s[:longestLineOf], "") + "…"
	}
	return s
}

// String is what is kept, without the end of the last line.
func (k *keeper) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := strings.Join(k.lines, "\n")
	if len(k.rest) > 0 && !k.crashed {
		all += "\n" + string(k.rest)
	}
	return strings.TrimSpace(all)
}
