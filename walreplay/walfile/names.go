package walfile

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// name is that of a segment file: <sequence number>-<first index>.wal.
type name struct {
	seq uint64
	// index is the one after the last that had been written when the file was
	// begun. Entries in the file may have lower ones: overwrites.
	index uint64
}

func (n name) String() string { return fmt.Sprintf("%016x-%016x.wal", n.seq, n.index) }

// parseName is false for everything that etcd would not read: what it is still
// preparing (.tmp), what it set aside (.broken), and what others left there.
func parseName(s string) (name, bool) {
	if len(s) != len("0123456789abcdef-0123456789abcdef.wal") {
		return name{}, false
	}
	seq, err1 := strconv.ParseUint(s[:16], 16, 64)
	index, err2 := strconv.ParseUint(s[17:33], 16, 64)
	n := name{seq, index}
	return n, err1 == nil && err2 == nil && n.String() == s
}

// list gives the segments of a directory by sequence number.
func list(dir string) ([]name, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, withRight(err)
	}
	var names []name
	for _, e := range entries {
		if n, ok := parseName(e.Name()); ok && !e.IsDir() {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, bySequence)
	for i := 1; i < len(names); i++ {
		if names[i].seq == names[i-1].seq {
			return nil, &CorruptError{Dir: dir, Segment: names[i].String(), Err: fmt.Errorf("two files have this sequence number, the other one is %s", names[i-1])}
		}
	}
	return names, nil
}

// From are those of a log's files, given by name, that a reader of its entries
// from index on needs, in their order: later records overwrite earlier ones, so
// they are the file that holds the entry, and all behind it. Names of other files
// are left out.
func From(files []string, index uint64) []string {
	var names []name
	for _, file := range files {
		if n, ok := parseName(file); ok {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.SortFunc(names, bySequence)
	names = names[holding(names, index):]
	needed := make([]string, len(names))
	for i, n := range names {
		needed[i] = n.String()
	}
	return needed
}

func bySequence(a, b name) int {
	return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.index, b.index))
}

// holding is the last of the names at whose beginning index had not been
// written, or the first of all: every entry from index on is in it or behind it.
func holding(names []name, index uint64) int {
	for i := len(names) - 1; i > 0; i-- {
		if names[i].index <= index {
			return i
		}
	}
	return 0
}
