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
	here  bool // this host has it, and nothing is to be copied
	place sources.Directories
	held  *held
	files []File // that are needed
	bytes int64  // of these
	log   bool   // some of the log is needed
}

// String names a way for messages.
func (w *route) String() string {
	var from []string
	for _, o := range w.owners {
		if o.here {
			from = append(from, "this host's data of "+o.name)
		} else {
			from = append(from, "the data of "+o.name+" on "+o.name)
		}
	}
	if w.repository != nil {
		from = append(from, "the repository "+w.repository.String())
	}
	return strings.Join(from, ", and ")
}

// near reports whether all that the way needs lies on this host.
func (w *route) near() bool {
	return w.repository == nil && !slices.ContainsFunc(w.owners, func(o *owned) bool { return !o.here })
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
	if archiveOf(source) != "" {
		var err error
		if w.repository, err = s.stored(ctx, source); err != nil {
			return nil, err
		}
		w.base = max(w.base, w.repository.base)
	}
	return w, nil
}

// archiveOf is the first archive that a way reads of; empty where it reads of none.
func archiveOf(source sources.Source) string {
	for _, owner := range source.Owners() {
		if strings.HasPrefix(owner, sources.ArchivePrefix) {
			return owner
		}
	}
	return ""
}

// find looks where an owner's data lies.
func (s *rebuilding) find(ctx context.Context, name string) (o *owned, err error) {
	o = &owned{name: name, here: name == s.Config.Member.Name}
	o.place.DataDir = ownerFolder(s.folder, name)
	if o.here {
		var aside *restore.Aside
		if aside, err = s.asideOf(s.run); err == nil {
			_, o.place.WALDir, err = aside.View(o.place.DataDir)
		}
		if err != nil {
			return nil, fmt.Errorf("this host has no data of %s: %w", name, err)
		}
	} else if !slices.Contains(s.owners, name) {
		return nil, fmt.Errorf("the request does not say where the data of %s lies", name)
	}
	if o.held, err = s.heldBy(ctx, name); err != nil {
		return nil, fmt.Errorf("the data of %s: %w", name, err)
	}
	if o.held.separateLog && !o.here {
		o.place.WALDir = filepath.Join(o.place.DataDir, "wal")
	}
	return o, nil
}

// add adds what is needed to an owner's files, and to the sums.
func (s *rebuilding) add(w *route, o *owned, need sources.Need) error {
	o.log = o.log || need.File == ""
	logs := "member/wal/"
	if o.held.separateLog {
		logs = "wal/"
	}
	var names []string
	for _, f := range o.held.files {
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
	for _, f := range o.held.files {
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
	slices.SortStableFunc(ways, func(a, b *route) int { return sources.First(besides(a), besides(b)) })
	ways[0].why = "to compare with the hosts that begin from the database of " + strings.Join(s.plan.CompareWith, ", ")
}

// far is how many bytes the way needs from elsewhere.
func (w *route) far() (bytes int64) {
	for _, o := range w.owners {
		if !o.here {
			bytes += o.bytes
		}
	}
	if w.repository != nil {
		bytes += w.repository.bytes
	}
	return bytes
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
