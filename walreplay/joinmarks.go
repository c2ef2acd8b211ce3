package walreplay

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/requorum/requorum/walreplay/segment"
)

// marks yields those of all archives among the parts, each up to the end of its
// last part, by index, then time.
func (j *joined) marks(ctx context.Context, first, last uint64, newest int) iter.Seq2[segment.Alive, error] {
	until := map[*History]uint64{}
	var order []*History
	for _, p := range j.parts {
		if !slices.Contains(order, p.History) {
			order = append(order, p.History)
		}
		until[p.History] = p.Last
	}
	var all []iter.Seq2[segment.Alive, error]
	for _, h := range order {
		if m, ok := h.log.(marked); ok && until[h] >= first {
			all = append(all, m.marks(ctx, first, min(last, until[h]), newest))
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return func(yield func(segment.Alive, error) bool) { mergeMarks(all, yield) }
}

// markHead is the next mark of one archive.
type markHead struct {
	next func() (segment.Alive, error, bool)
	mark segment.Alive
	err  error
}

// advance is false at the end.
func (h *markHead) advance() (ok bool) {
	h.mark, h.err, ok = h.next()
	return ok
}

// mergeMarks yields errors as soon as they come: a damaged mark has no place.
func mergeMarks(all []iter.Seq2[segment.Alive, error], yield func(segment.Alive, error) bool) {
	var heads []*markHead
	for _, marks := range all {
		next, stop := iter.Pull2(marks)
		defer stop()
		if h := (&markHead{next: next}); h.advance() {
			heads = append(heads, h)
		}
	}
	for len(heads) > 0 {
		h := slices.MinFunc(heads, func(a, b *markHead) int {
			switch {
			case a.err != nil || b.err != nil:
				return cmp.Compare(bit(b.err != nil), bit(a.err != nil))
			case a.mark.Index != b.mark.Index:
				return cmp.Compare(a.mark.Index, b.mark.Index)
			}
			return a.mark.Time.Compare(b.mark.Time)
		})
		if !yield(h.mark, h.err) {
			return
		}
		if !h.advance() {
			heads = slices.DeleteFunc(heads, func(o *markHead) bool { return o == h })
		}
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
