package segment

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"filippo.io/age"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// OpenNames is OpenLog from the listing, where the names show the log's shape:
// segments that follow each other, of one chain. Of each part without a hole only
// the last headers are read, and others when they are asked for, so that requests
// do not grow with what is stored. A header in the middle that is damaged shows
// when it is read.
//
// Where names do not show enough, or reading shows something else than they did,
// the log becomes what OpenLog opens.
func OpenNames(ctx context.Context, repo *repository.Repository, t repository.TimelineID, encrypted *snapshot.Manifest, identities ...age.Identity) (*Log, error) {
	return (&Log{repo: repo, timeline: t, since: encrypted, identities: identities, byNames: true}).open(ctx)
}

// ErrNotAsNamed says that a segment is not what its name and its neighbours' said.
var ErrNotAsNamed = errors.New("the log is not what its names say")

// HidesReplaced says that a log which OpenNames opened leaves merged segments out that
// larger ones replaced: OpenLog has them, to be compared with those.
func (l *Log) HidesReplaced() bool {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	return l.byNames && l.replaced
}

// isRead distinguishes a header that was read from one of which only the name and the size
// are known.
func (h Header) isRead() bool { return h.Format != 0 }

// fromName is what a listing shows of a segment that ends at last.
func fromName(s repository.Segment, last uint64) Header {
	h := Header{Timeline: s.Timeline, Level: s.Level, FirstIndex: s.First, LastIndex: last, Previous: s.Previous, ChainStart: s.Start}
	h.Object.StoredSize = s.Object.Size - HeaderSize
	return h
}

// relistNames makes a view from names; nil where they do not show enough. Under
// refreshing.
func (l *Log) relistNames(ctx context.Context, merged []repository.Segment) (*view, error) {
	all := merged
	merged = largest(merged)
	l.replaced = len(merged) != len(all)
	var covered []Range
	for _, s := range merged {
		covered = append(covered, Range{s.First, s.Last})
	}
	small, err := listSmall(ctx, l.repo, l.timeline, united(covered))
	if err != nil {
		return nil, err
	}
	small, headers, err := l.endsOf(ctx, small)
	if err != nil {
		return nil, err
	}
	v := &view{byNames: true}
	objects := map[string]repository.Segment{}
	for i, s := range slices.Concat(merged, small) {
		if s.Object.Size <= HeaderSize {
			return nil, nil // cut short: that is damage, which the headers' reading shows
		}
		objects[s.String()] = s
		last := s.Last
		if at := i - len(merged); at >= 0 {
			found, isEnd := headers[s.String()]
			switch {
			case isEnd && found.err == nil:
				v.segments = append(v.segments, found.header)
				continue
			case isEnd, at+1 == len(small) || !follows(s, small[at+1]):
				return nil, nil // damaged, or gone meanwhile
			}
			last = small[at+1].First - 1
		}
		h := fromName(s, last)
		if known, ok := l.headers[s.String()]; ok {
			if known.header.LastIndex != last || known.header.Size() != s.Object.Size {
				return nil, nil // cut short, or stored anew
			}
			h = known.header
		}
		v.segments = append(v.segments, h)
	}
	slices.SortFunc(v.segments, func(a, b Header) int { return cmp.Compare(a.FirstIndex, b.FirstIndex) })
	for i := range v.segments[min(1, len(v.segments)):] {
		if v.segments[i].LastIndex >= v.segments[i+1].FirstIndex {
			return nil, nil // they overlap: only the headers show which belong together
		}
	}
	if usable, err := l.readEnds(ctx, v, objects); err != nil || !usable {
		return nil, err
	}
	for i := range v.segments[min(1, len(v.segments)):] {
		if a, b := v.segments[i], v.segments[i+1]; a.LastIndex+1 == b.FirstIndex && !a.GoesOn(b) {
			return nil, nil // what joins the two chains is not among those that names call needed
		}
	}
	if slices.ContainsFunc(v.segments, l.isPlain) {
		return nil, nil // only the headers show what is left of the log without them
	}
	l.headers = map[string]listed{}
	for _, h := range v.segments {
		if h.isRead() {
			l.headers[h.Name()] = listed{header: h}
		}
	}
	v.arrange()
	return v, nil
}

// foreignTried is how often foreign segments at the end are passed over before all
// headers are read.
const foreignTried = 16

// endsOf are segments of level 0 without the foreign ones at their ends, and the headers
// of those whose names do not show where they end, or whether the chain begins anew there.
func (l *Log) endsOf(ctx context.Context, small []repository.Segment) ([]repository.Segment, map[string]listed, error) {
	for tried := 0; ; tried++ {
		var ends []repository.Segment
		for i, s := range small {
			if i+1 == len(small) || !follows(s, small[i+1]) || s.Previous == 0 {
				ends = append(ends, s)
			}
		}
		headers, err := l.readHeaders(ctx, ends)
		if err != nil {
			return nil, nil, err
		}
		own := slices.DeleteFunc(slices.Clone(small), func(s repository.Segment) bool {
			return errors.Is(headers[s.String()].err, repository.ErrUnsigned)
		})
		if len(own) == len(small) || tried == foreignTried {
			return small, headers, nil
		}
		small = own
	}
}

// largest are merged segments without those that a larger one holds.
func largest(merged []repository.Segment) []repository.Segment {
	merged = slices.Clone(merged)
	slices.SortFunc(merged, func(a, b repository.Segment) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last), cmp.Compare(b.Level, a.Level))
	})
	var all []repository.Segment
	for _, s := range merged {
		if n := len(all); n == 0 || s.Last > all[n-1].Last {
			all = append(all, s)
		}
	}
	return all
}

// endsRead is how many headers are read at the end of each part, at once: the last
// one need not know a time and a revision, and damage there shows at once.
const endsRead = 8

// readEnds reads the last headers of each part without a hole, back to one that
// knows a time and to one that knows a revision. Of the others it is estimated how
// large they are. usable is false where one of them is damaged or gone.
func (l *Log) readEnds(ctx context.Context, v *view, objects map[string]repository.Segment) (usable bool, err error) {
	begin := 0
	for i := range v.segments {
		if i+1 < len(v.segments) && v.segments[i].GoesOn(v.segments[i+1]) {
			continue
		}
		var last Header // the part's
		var timed, revised bool
		for next, n := i, endsRead; next >= begin && (!timed || !revised); n *= 2 {
			from := max(begin, next+1-n)
			var unread []repository.Segment
			for _, h := range v.segments[from : next+1] {
				if !h.isRead() {
					unread = append(unread, objects[h.Name()])
				}
			}
			headers, err := l.readHeaders(ctx, unread)
			if err != nil {
				return false, err
			}
			for at := next; at >= from; at-- {
				h := &v.segments[at]
				if !h.isRead() {
					found, ok := headers[h.Name()]
					if !ok || found.err != nil || found.header.LastIndex != h.LastIndex {
						return false, nil //nolint:nilerr // the header's own error: all headers are read then
					}
					*h = found.header
				}
				timed, revised = timed || h.Marks > 0, revised || h.Revision > 0
			}
			next = from - 1
		}
		last = v.segments[i]
		for at := begin; at < i; at++ {
			if h := &v.segments[at]; !h.isRead() {
				stored := h.Object.StoredSize
				h.Object.Codecs = last.Object.Codecs
				h.Object.RawSize = int64(float64(stored) * float64(last.Object.RawSize) / float64(max(1, last.Object.StoredSize)))
			}
		}
		begin = i + 1
	}
	return true, nil
}

// GoesOn says that b goes on from where a ends, as far as their headers are known.
func (a Header) GoesOn(b Header) bool {
	switch {
	case b.FirstIndex-1 != a.LastIndex, b.ChainStart:
		return false
	case a.isRead() && b.isRead():
		return b.Before == a.After
	}
	return !b.Unjoined
}

// readAll makes the log what OpenLog opens, unless that was done since the caller
// got old.
func (l *Log) readAll(ctx context.Context, old *view) (*view, error) {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	if v := l.current(); v != old && !v.byNames {
		return v, nil
	}
	l.byNames = false
	return l.relist(ctx)
}

// describe reads the headers that are not known yet of some segments of a view.
// It is ErrNotAsNamed where one is damaged, gone, or another one than was listed.
func (l *Log) describe(ctx context.Context, listed []Header) ([]Header, error) {
	all := slices.Clone(listed)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSmall)
	for i, h := range all {
		if h.isRead() {
			continue
		}
		l.mu.Lock()
		known, ok := l.known[h.Name()]
		l.mu.Unlock()
		if ok && known.Size() == h.Size() {
			all[i] = known
			continue
		}
		group.Go(func() error {
			found, err := ReadHeader(groupCtx, l.repo, h.Name())
			switch {
			case err == nil && found.LastIndex == h.LastIndex && found.Size() == h.Size() && !l.isPlain(found):
				l.mu.Lock()
				l.known[h.Name()], all[i] = found, found
				l.mu.Unlock()
				return nil
			case err == nil, unusable(err), errors.Is(err, sinks.ErrNotFound):
				return ErrNotAsNamed
			}
			return err
		})
	}
	return all, group.Wait()
}

// look lets see look at a view, once more with all headers where names said
// something else than what is there.
func (l *Log) look(ctx context.Context, see func(*view) error) error {
	v := l.current()
	err := see(v)
	if errors.Is(err, ErrNotAsNamed) {
		if v, err = l.readAll(ctx, v); err == nil {
			err = see(v)
		}
	}
	return err
}

// Holding is the header of a segment with the entry at an index, where there is
// one: the one that ends there, or else the smallest.
func (l *Log) Holding(ctx context.Context, index uint64) (holding Header, is bool, err error) {
	err = l.look(ctx, func(v *view) error {
		is = false
		for _, h := range v.segments {
			if h.Holds(index) && (!is || h.LastIndex == index || holding.LastIndex != index && h.FirstIndex > holding.FirstIndex) {
				holding, is = h, true
			}
		}
		if !is {
			return nil
		}
		described, err := l.describe(ctx, []Header{holding})
		holding = described[0]
		return err
	})
	return holding, is, err
}

const (
	// sampled is how many headers of merged segments, and of others, a search for a
	// time begins with: each pass of a clock that was set back is looked for by itself.
	sampled = 16
	// nearby is how many segments are looked at on both sides of what was searched for.
	nearby = 8
)

// nearTime are the headers of the segments around a time: all where all were read.
func (l *Log) nearTime(ctx context.Context, v *view, t time.Time) ([]Header, error) {
	if !v.byNames || len(v.segments) == 0 {
		return v.segments, nil
	}
	var at []int // positions, in their order
	small := slices.IndexFunc(v.segments, func(h Header) bool { return h.Level == 0 })
	if small < 0 {
		small = len(v.segments)
	}
	for _, part := range [][2]int{{0, small}, {small, len(v.segments)}} {
		n := part[1] - part[0]
		for i := range min(sampled, n) {
			at = append(at, part[0]+i*n/min(sampled, n))
		}
	}
	if last := len(v.segments) - 1; at[len(at)-1] != last {
		at = append(at, last)
	}
	var picked []Header
	for _, i := range at {
		picked = append(picked, v.segments[i])
	}
	picked, err := l.describe(ctx, picked)
	if err != nil {
		return nil, err
	}
	var around []int
	for i := range at {
		if i == 0 && !picked[i].before(t) || i == len(at)-1 && picked[i].before(t) {
			around = append(around, at[i])
		}
		if i == 0 || picked[i-1].before(t) == picked[i].before(t) {
			continue
		}
		low, high, was := at[i-1], at[i], picked[i-1].before(t)
		for high-low > 1 {
			middle := (low + high) / 2
			h, err := l.describe(ctx, v.segments[middle:middle+1])
			if err != nil {
				return nil, err
			}
			if h[0].before(t) == was {
				low = middle
			} else {
				high = middle
			}
		}
		around = append(around, high)
	}
	return l.near(ctx, v, around...)
}

// before says that a segment was archived before a time, by its writer's clock.
func (h Header) before(t time.Time) bool {
	if h.Marks > 0 {
		return h.LastMark.Before(t)
	}
	return h.Cut.Before(t)
}

// nearIndex are the headers of the segments around an index: all where all were
// read.
func (l *Log) nearIndex(ctx context.Context, v *view, index uint64) ([]Header, error) {
	if !v.byNames || len(v.segments) == 0 {
		return v.segments, nil
	}
	i, found := slices.BinarySearchFunc(v.segments, index, func(h Header, index uint64) int { return cmp.Compare(h.FirstIndex, index) })
	if !found {
		i--
	}
	return l.near(ctx, v, max(0, i))
}

// near are the headers of the segments around some positions in a view, on both
// sides as far as to one that has marks.
func (l *Log) near(ctx context.Context, v *view, around ...int) ([]Header, error) {
	picked := map[int]Header{}
	add := func(from, to int) (marked bool, err error) {
		from, to = max(0, from), min(to, len(v.segments))
		if from >= to {
			return true, nil
		}
		headers, err := l.describe(ctx, v.segments[from:to])
		if err != nil {
			return false, err
		}
		for i, h := range headers {
			picked[from+i] = h
			marked = marked || h.Marks > 0
		}
		return marked, nil
	}
	for _, i := range around {
		if _, err := add(i, i+1); err != nil {
			return nil, err
		}
		for n, from := nearby, i; ; n *= 2 {
			marked, err := add(from-n, from)
			if err != nil {
				return nil, err
			}
			if from -= n; marked {
				break
			}
		}
		for n, to := nearby, i+1; ; n *= 2 {
			marked, err := add(to, to+n)
			if err != nil {
				return nil, err
			}
			if to += n; marked {
				break
			}
		}
	}
	var all []Header
	for _, i := range slices.Sorted(maps.Keys(picked)) {
		all = append(all, picked[i])
	}
	return all, nil
}

// Range is the entries from index First to Last.
type Range struct{ First, Last uint64 }

// Missing are the entries that the log lacks although it goes on behind them, in
// their order, and the last entry that it has; 0 where it has none. Where it
// begins behind index from, what is between is missing as well; 0: it may begin
// anywhere. It goes by the headers' indexes alone: whether what is there joins,
// Spans shows. Damaged segments hold nothing. One that a newer version wrote is
// snapshot.ErrNewerFormat.
func (l *Log) Missing(from uint64) (missing []Range, last uint64, err error) {
	for _, d := range l.Damaged() {
		if errors.Is(d.Err, snapshot.ErrNewerFormat) {
			return nil, 0, d.Err
		}
	}
	var all []Range
	for _, h := range l.current().segments {
		if !l.spoiled(h.name()) {
			all = append(all, Range{h.FirstIndex, h.LastIndex})
		}
	}
	all = united(all)
	for i, r := range all {
		if i > 0 {
			missing = append(missing, Range{all[i-1].Last + 1, r.First - 1})
		} else if from > 0 && from < r.First {
			missing = append(missing, Range{from, r.First - 1})
		}
		last = r.Last
	}
	return missing, last, nil
}

// listSmall lists the segments of level 0, without those that hold nothing but
// what is covered by merged ones.
func listSmall(ctx context.Context, repo *repository.Repository, t repository.TimelineID, covered []Range) ([]repository.Segment, error) {
	if len(covered) == 1 {
		// The rule: level 0 goes on where what is merged ends, and a listing from
		// there on is enough.
		first, is, err := repo.FirstSmall(ctx, t)
		if err != nil || !is {
			return nil, err
		}
		if first.First >= covered[0].First {
			small, err := repo.SmallSegments(ctx, t, covered[0].Last+1)
			if err != nil || continues(covered[0].Last, small) {
				return small, err
			}
		}
	}
	all, err := repo.SmallSegments(ctx, t, 0)
	if err != nil {
		return nil, err
	}
	var needed []repository.Segment
	for i, s := range all {
		if !holds(covered, Range{s.First, lastByName(all, i)}) {
			needed = append(needed, s)
		}
	}
	return needed, nil
}

// lastByName is the last entry that a segment of level 0 may hold. Its name does not
// show it, but where the one that is listed behind it goes on from it, it ends before that.
func lastByName(all []repository.Segment, i int) uint64 {
	s := all[i]
	twice := i > 0 && all[i-1].First == s.First || i+1 < len(all) && all[i+1].First == s.First
	if !twice && i+1 < len(all) && follows(s, all[i+1]) {
		return all[i+1].First - 1
	}
	return math.MaxUint64
}

// continues says that segments of level 0 go on right behind an index, without
// a break. Behind a break, one that begins before that index could be needed.
func continues(index uint64, small []repository.Segment) bool {
	if len(small) == 0 || small[0].First != index+1 {
		return false
	}
	for i := range small[1:] {
		if !follows(small[i], small[i+1]) {
			return false
		}
	}
	return true
}

// follows says that by its name next goes on from s, which so ends right before
// it.
func follows(s, next repository.Segment) bool { return next.Previous == s.First }

// united are the same entries in as few ranges as there can be, in their order.
func united(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	var all []Range
	for _, r := range ranges {
		if n := len(all); n > 0 && r.First <= all[n-1].Last+1 {
			all[n-1].Last = max(all[n-1].Last, r.Last)
			continue
		}
		all = append(all, r)
	}
	return all
}

// Cover reports whether segments hold all entries from first to last.
func Cover(segments []Header, first, last uint64) bool {
	var held []Range
	for _, h := range segments {
		held = append(held, Range{h.FirstIndex, h.LastIndex})
	}
	return holds(united(held), Range{first, last})
}

// holds says that united ranges hold all of r.
func holds(ranges []Range, r Range) bool {
	i, found := slices.BinarySearchFunc(ranges, r.First, func(held Range, first uint64) int { return cmp.Compare(held.First, first) })
	if !found {
		i--
	}
	return i >= 0 && ranges[i].First <= r.First && r.Last <= ranges[i].Last
}

// newestTried is how many segments Newest looks at in one go: more than one,
// since the one with the highest first index need not be the one that ends
// last, and since it may be damaged.
const newestTried = 16

// Newest is the header of the segment of timeline t that ends last, of those
// that are not damaged, and false where there is none. It lists what is merged
// and, of level 0, what comes behind that. A segment that a newer version wrote
// is snapshot.ErrNewerFormat: who does not understand it must not go on from
// another.
func Newest(ctx context.Context, repo *repository.Repository, t repository.TimelineID) (Header, bool, error) {
	merged, err := repo.MergedSegments(ctx, t)
	if err == nil && repo.Checks() {
		merged, err = lastOwn(ctx, repo, merged)
	}
	if err != nil {
		return Header{}, false, err
	}
	var covered []Range
	for _, s := range merged {
		first := s.First
		if repo.Checks() {
			first = 0 // what ends before it is not the newest
		}
		covered = append(covered, Range{first, s.Last})
	}
	small, err := listSmall(ctx, repo, t, united(covered))
	if err != nil {
		return Header{}, false, err
	}
	h, ok, err := newestIn(ctx, repo, append(merged, small...))
	if ok || err != nil {
		return h, ok, err
	}
	// Damaged, all of them: what they would replace may be there still.
	all, err := repo.Segments(ctx, t)
	if err != nil {
		return Header{}, false, err
	}
	return newestIn(ctx, repo, all)
}

// lastOwn is the merged segment that ends last, if any, of those that are neither foreign
// nor damaged. Others that end later are passed over one by one: by its name alone one
// could replace everything.
func lastOwn(ctx context.Context, repo *repository.Repository, merged []repository.Segment) ([]repository.Segment, error) {
	slices.SortFunc(merged, func(a, b repository.Segment) int { return cmp.Compare(b.Last, a.Last) })
	for _, s := range merged {
		_, err := readListed(ctx, repo, s)
		if snapshot.IsDamaged(err) || errors.Is(err, sinks.ErrNotFound) {
			continue
		}
		return []repository.Segment{s}, err
	}
	return nil, nil
}

func newestIn(ctx context.Context, repo *repository.Repository, segments []repository.Segment) (newest Header, ok bool, err error) {
	slices.SortStableFunc(segments, func(a, b repository.Segment) int {
		return cmp.Compare(max(b.First, b.Last), max(a.First, a.Last))
	})
	for some := range slices.Chunk(segments, newestTried) {
		headers, err := (&Log{repo: repo}).readHeaders(ctx, some)
		if err != nil {
			return Header{}, false, err
		}
		for _, h := range headers {
			switch {
			case h.err == nil && (h.header.LastIndex > newest.LastIndex || h.header.LastIndex == newest.LastIndex && newest.ChainStart):
				newest, ok = h.header, true
			case h.err != nil && !snapshot.IsDamaged(h.err):
				return Header{}, false, h.err
			}
		}
		if ok {
			break
		}
	}
	return newest, ok, nil
}
