package flagfile

import (
	"bytes"
	"slices"
)

// edit puts text in the place of what stands from start to end.
type edit struct {
	start, end int
	text       string
}

// apply gives data with all edits, which don't overlap. Those at the same place
// come out in their order.
func apply(data []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(data[at:e.start])
		out.WriteString(e.text)
		at = e.end
	}
	out.Write(data[at:])
	return out.Bytes()
}

// lineAt gives the line around an offset: where it starts, where its text ends, and
// where the next one starts, which is the end of the data behind the last one.
func lineAt(data []byte, offset int) (start, end, next int) {
	start = bytes.LastIndexByte(data[:offset], '\n') + 1
	end = len(data)
	next = end
	if i := bytes.IndexByte(data[offset:], '\n'); i >= 0 {
		end, next = offset+i, offset+i+1
	}
	if end > start && data[end-1] == '\r' && end < next {
		end--
	}
	return start, end, next
}

// below is an edit that adds a line below the one around an offset.
func below(data []byte, offset int, line string) edit {
	_, end, next := lineAt(data, offset)
	if end == next { // the last line, without an end of its own
		return edit{end, end, "\n" + line}
	}
	return edit{next, next, line + string(data[end:next])}
}
