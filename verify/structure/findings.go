package structure

import (
	"fmt"

	"github.com/requorum/requorum/verify/report"
)

// findings are collected up to a number; further ones are counted.
type findings struct {
	most int
	list []report.Finding
	more int64
}

// add adds a fault. Its text is made only while there is room for it.
func (f *findings) add(kind report.Kind, where, format string, args ...any) {
	if len(f.list) >= f.most {
		f.more++
		return
	}
	f.list = append(f.list, report.Finding{Kind: kind, Where: where, Text: fmt.Sprintf(format, args...)})
}

// room tells whether another one would be kept.
func (f *findings) room() bool { return len(f.list) < f.most }

// join takes over the findings of another collection.
func (f *findings) join(other *findings) {
	n := min(len(other.list), f.most-len(f.list))
	f.list = append(f.list, other.list[:n]...)
	f.more += other.more + int64(len(other.list)-n)
}

func (f *findings) any() bool { return len(f.list) > 0 || f.more > 0 }
