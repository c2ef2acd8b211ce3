package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/store/safedir"
)

// route is one source of the state, as seen from this host.
type route struct {
	source sources.Source
	owners []*owned // survivors' data, in the order of its use
	// repository is what is read of repositories; nil where nothing is.
	repository *stored
	base       int64 // bytes of the database that is begun from, as far as known
	why        string
}

// owned is the data of one survivor that a route reads.
type owned struct {
	name  string
	place sources.Directories
	peer  *peer
	files []File // to be copied; none of this host's own
	bytes int64
	log   bool // some of the log is needed
}

// String names a way for messages.
func (w *route) String() string {
	var from []string
	for _, o := range w.owners {
		if o.peer == nil {
			from = append(from, "this host's data of "+o.name)
		} else {
			from = append(from, "the data of "+o.name+" on "+o.name)
		}
	}
	if w.repository != nil {
		from = append(from, "the repository "+w.repository.name)
	}
	return strings.Join(from, ", and ")
}

// near reports whether all that the way needs lies on this host.
func (w *route) near() bool {
	return w.repository == nil && !slices.ContainsFunc(w.owners, func(o *owned) bool { return o.peer != nil })
}

// routeOf finds out what a source means here. An error says why it is no way.
func (s *rebuilding) routeOf(ctx context.Context, source sources.Source) (*route, error) {
	w := &route{source: source}
	for _, need := range sources.Needed(source) {
		i := slices.IndexFunc(w.owners, func(o *owned) bool { return o.name == need.Owner })
		if i < 0 {
			o, err := s.find(ctx, need.Owner)
			if err != nil {
				return nil, err
			}
			w.owners, i = append(w.owners, o), len(w.owners)
		}
		if err := s.add(w, w.owners[i], need); err != nil {
			return nil, err
		}
	}
	if source.Base.Backup != "" || slices.ContainsFunc(source.Log, func(p sources.Piece) bool { return strings.HasPrefix(p.Owner, sources.ArchivePrefix) }) {
		var err error
		if w.repository, err = s.stored(ctx, source); err != nil {
			return nil, err
		}
		w.base = max(w.base, w.repository.base.Size)
	}
	return w, nil
}

// find looks where an owner's data lies.
func (s *rebuilding) find(ctx context.Context, name string) (*owned, error) {
	o := &owned{name: name}
	folder := ownerFolder(s.folder, name)
	if name == s.Config.Member.Name {
		aside, err := s.asideOf(s.run)
		if err != nil {
			return nil, fmt.Errorf("this host has no data of %s: %w", name, err)
		}
		o.place.DataDir, o.place.WALDir, err = aside.View(folder)
		return o, err
	}
	if !slices.Contains(s.owners, name) {
		return nil, fmt.Errorf("the request does not say where the data of %s lies", name)
	}
	o.place.DataDir = folder
	var err error
	if o.peer, err = s.peer(ctx, name); err != nil {
		return nil, fmt.Errorf("the data of %s: %w", name, err)
	}
	if o.peer.separateLog {
		o.place.WALDir = filepath.Join(folder, "wal")
	}
	return o, nil
}

// add adds what is needed to what is to be copied, and to the sums.
func (s *rebuilding) add(w *route, o *owned, need sources.Need) error {
	o.log = o.log || need.File == ""
	if o.peer == nil {
		return s.addOwn(w, o, need)
	}
	logs := "member/wal/"
	if o.peer.separateLog {
		logs = "wal/"
	}
	var names []string
	for _, f := range o.peer.files {
		if name, is := strings.CutPrefix(f.Name, logs); is {
			names = append(names, name)
		}
	}
	wanted := map[string]bool{}
	for _, name := range need.Files(names) {
		wanted[logs+name] = true
	}
	if need.File != "" {
		wanted["member/snap/"+need.File] = true
	}
	for _, f := range o.peer.files {
		if !wanted[f.Name] {
			continue
		}
		delete(wanted, f.Name)
		if need.File != "" {
			w.base = f.Size
		}
		if !slices.ContainsFunc(o.files, func(g File) bool { return g.Name == f.Name }) {
			o.files, o.bytes = append(o.files, f), o.bytes+f.Size
		}
	}
	if len(wanted) > 0 || need.File == "" && len(need.Files(names)) == 0 {
		return fmt.Errorf("the data of %s on %s has not what the plan needs of it: is it the data that was surveyed?", o.name, o.name)
	}
	return nil
}

func (s *rebuilding) addOwn(w *route, o *owned, need sources.Need) error {
	var paths []string
	if need.File != "" {
		paths = append(paths, filepath.Join(o.place.DataDir, "member", "snap", need.File))
	} else {
		dir := restore.LogDir(o.place.DataDir, o.place.WALDir)
		names, err := safedir.Names(dir)
		if err != nil {
			return fmt.Errorf("this host's data of %s: %w", o.name, err)
		}
		for _, name := range need.Files(names) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	for _, path := range paths {
		info, err := safedir.Stat(path)
		if err != nil {
			return fmt.Errorf("this host's data of %s: %w", o.name, err)
		}
		if o.bytes += info.Size(); need.File != "" {
			w.base = info.Size()
		}
	}
	return nil
}

// order gives the ways that there are, the best first. Where there is none, the
// error says why.
func (s *rebuilding) order(ctx context.Context) ([]*route, error) {
	var near, far []*route
	var why []error
	for _, source := range s.plan.Source.Ways() {
		w, err := s.routeOf(ctx, source)
		switch {
		case err != nil:
			why = append(why, err)
		case w.near():
			w.why = "all of it lies on this host"
			near = append(near, w)
		default:
			far = append(far, w)
		}
	}
	if len(near)+len(far) == 0 {
		return nil, fmt.Errorf("there is no way to what the plan rebuilds: %w", errors.Join(why...))
	}
	slices.SortStableFunc(far, func(a, b *route) int { return cmp.Compare(a.far(), b.far()) })
	if len(near) == 0 && len(far) > 1 {
		far[0].why = fmt.Sprintf("it needs the least from elsewhere, %d bytes", far[0].far())
	}
	all := slices.Concat(near, far)
	s.otherFirst(all)
	if len(all) == 1 && len(why) > 0 {
		all[0].why = "there is no other way: " + oneLine(errors.Join(why...))
	}
	return all, nil
}

// otherFirst prefers a database that no other host begins from, where the plan asks for
// that.
func (s *rebuilding) otherFirst(ways []*route) {
	besides := func(w *route) bool { return !slices.Contains(s.plan.CompareWith, w.source.Base.Owner) }
	if len(s.plan.CompareWith) == 0 || !slices.ContainsFunc(ways, besides) {
		return
	}
	slices.SortStableFunc(ways, func(a, b *route) int {
		switch first := besides(a); {
		case first == besides(b):
			return 0
		case first:
			return -1
		}
		return 1
	})
	ways[0].why = "to compare with the hosts that begin from the database of " + strings.Join(s.plan.CompareWith, ", ")
}

// far is how many bytes the way needs from elsewhere.
func (w *route) far() (bytes int64) {
	for _, o := range w.owners {
		if o.peer != nil {
			bytes += o.bytes
		}
	}
	if w.repository != nil {
		bytes += w.repository.bytes
	}
	return bytes
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
