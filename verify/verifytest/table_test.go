package verifytest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

const (
	docsPath   = "../../docs/verify.md"
	tableBegin = "<!-- measured by TestFaults in verify/verifytest; -update writes it -->\n"
	tableEnd   = "<!-- end of what was measured -->\n"
)

// table is what was measured.
type table struct {
	mu      sync.Mutex
	faults  map[string]bool
	etcdutl map[string][2]bool
}

func (t *table) ran(fault string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.faults == nil {
		t.faults = map[string]bool{}
	}
	t.faults[fault] = true
}

func (t *table) add(fault string, status, hash bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.etcdutl == nil {
		t.etcdutl = map[string][2]bool{}
	}
	t.etcdutl[fault] = [2]bool{status, hash}
}

// markdown is the table as docs/verify.md has it. Rungs and kinds are those that
// the test held against what was found.
func (t *table) markdown(faults []Fault) string {
	var s strings.Builder
	s.WriteString("| fault | rung | kind | `snapshot status` | `hashkv` |\n| --- | --- | --- | --- | --- |\n")
	answers := map[bool]string{true: "found", false: "not found"}
	for _, f := range faults {
		var kinds []string
		for _, k := range f.Kinds {
			kinds = append(kinds, "`"+string(k)+"`")
		}
		status, hash := "", ""
		if a, ok := t.etcdutl[f.Name]; ok {
			status, hash = answers[a[0]], answers[a[1]]
			if f.Varies {
				status, hash = "depends", "depends"
			}
		}
		fmt.Fprintf(&s, "| %s | %s | %s | %s | %s |\n", f.Name, f.Rung, strings.Join(kinds, ", "), status, hash)
	}
	return s.String()
}

// check holds the documented table against the measured one, or writes it.
func (t *table) check(tb testing.TB, faults []Fault) {
	tb.Helper()
	if len(t.faults) < len(faults) {
		tb.Logf("%d of %d faults were measured: the table is not looked at", len(t.faults), len(faults))
		return
	}
	docs, err := os.ReadFile(docsPath)
	must(tb, err)
	head, rest, ok := strings.Cut(string(docs), tableBegin)
	documented, tail, ends := strings.Cut(rest, tableEnd)
	if !ok || !ends {
		tb.Fatalf("%s has no place for the table of faults", docsPath)
	}
	measured := t.markdown(faults)
	if *update {
		must(tb, os.WriteFile(docsPath, []byte(head+tableBegin+measured+tableEnd+tail), 0o644))
		return
	}
	if documented != measured {
		tb.Errorf("%s has another table of faults; -update writes what was measured:\n%s", docsPath, measured)
	}
}
