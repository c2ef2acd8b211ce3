package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/safedir"
)

// Readiness is what a plan finds on this host.
type Readiness struct {
	FileSystems []FileSystem `json:"file_systems"`
	Members     []MemberSite `json:"members"`
	// Completes says that an earlier run of the same request got so far that
	// Execute only has to complete it; its plan and token are the ones that count.
	Completes *Plan `json:"completes,omitempty"`
	// Notes are sentences for the user.
	Notes []string `json:"notes,omitempty"`
}

// MemberSite is what lies where a member is to be built.
type MemberSite struct {
	Name    string `json:"name"`
	DataDir string `json:"data_dir"`
	WALDir  string `json:"wal_dir,omitempty"`
	// SetAside are the paths that will be set aside.
	SetAside []string `json:"set_aside,omitempty"`
	// Replaces says that an unfinished restore lies there and is replaced.
	Replaces bool `json:"replaces_unfinished,omitempty"`
}

// Check looks, without changing anything, whether Execute could do its work on
// this host: directories, their users, permissions and space. All that is in
// the way is in the error, joined. Of the options, Only, SetAside, Owner, Foreseen
// and Later count. A plan that needs Only (NeedsOnly), checked without it, is no error:
// nothing is looked at then, and a note says so.
func (p *Plan) Check(ctx context.Context, opts ExecOptions) (*Readiness, error) {
	if p.Path != "" {
		systems, err := p.checkFile()
		return &Readiness{FileSystems: systems}, err
	}
	members, err := p.local(opts.Only)
	if err != nil {
		return nil, err
	}
	r := &Readiness{}
	if opts.Only == "" && p.NeedsOnly() {
		for _, m := range members {
			if err := checkPaths([]Member{m}); err != nil {
				return r, err
			}
		}
		r.Notes = []string{"this host was not checked: " + p.sharedNote()}
		return r, nil
	}
	p = p.onHost(opts)
	if err := checkPaths(members); err != nil {
		return r, err
	}
	found := make([]*finding, len(members))
	var problems []error
	for i, m := range members {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if found[i], err = look(m); err != nil {
			problems = append(problems, fmt.Errorf("member %s: %w", m.Name, err))
		}
	}
	if len(problems) > 0 {
		return r, errors.Join(problems...)
	}
	if r.Completes = completable(p, opts.Only, found); r.Completes != nil {
		return r, nil
	}
	if opts.Foreseen && inPlace(opts.Only, found) != nil {
		return r, nil
	}
	for i, m := range members {
		ms, faults := found[i].allowed(p, m)
		r.Members = append(r.Members, ms)
		for _, err := range faults {
			switch {
			case err == nil:
			case slices.ContainsFunc(opts.Later, func(later error) bool { return errors.Is(err, later) }):
				r.Notes = append(r.Notes, fmt.Sprintf("before the restore: member %s: %v", m.Name, err))
			default:
				problems = append(problems, fmt.Errorf("member %s: %w", m.Name, err))
			}
		}
	}
	if r.FileSystems, err = fileSystems(p.needs(members)); err != nil {
		problems = append(problems, err)
	}
	for _, f := range r.FileSystems {
		problems = append(problems, f.check())
	}
	return r, errors.Join(problems...)
}

// finding is what was found where a member goes, before anything is locked.
type finding struct {
	dataThere, walThere bool
	state               memberState
	record              *record
	logReady            bool     // of a separate WAL directory
	data, wal           []string // entries that are the user's
}

func look(m Member) (*finding, error) {
	s := &finding{logReady: true}
	err := checkInside(m.DataDir)
	if err == nil && m.WALDir != "" {
		err = checkInside(m.WALDir)
	}
	if err != nil {
		return nil, err
	}
	if s.dataThere, err = directory(m.DataDir); err != nil {
		return nil, err
	}
	if s.state, s.record, err = memberStateOf(filepath.Join(m.DataDir, "member")); err != nil {
		return nil, err
	}
	if s.data, err = foreign(m.DataDir); err != nil {
		return nil, err
	}
	if s.state == stateUnfinished {
		s.data = slices.DeleteFunc(s.data, func(name string) bool { return name == "member" })
	}
	if m.WALDir == "" {
		return s, nil
	}
	if s.walThere, err = directory(m.WALDir); err != nil {
		return nil, err
	}
	if s.logReady, err = logIsReady(m.WALDir); err != nil {
		return nil, err
	}
	s.wal, err = foreign(m.WALDir)
	return s, err
}

// allowed says what becomes of what was found, or why it is in the way.
func (s *finding) allowed(p *Plan, m Member) (MemberSite, []error) {
	out := MemberSite{Name: m.Name, DataDir: m.DataDir, WALDir: m.WALDir, Replaces: s.state == stateUnfinished}
	member := filepath.Join(m.DataDir, "member")
	var problems []error
	refuse := func(dir string, names []string) {
		err := fmt.Errorf("%s %w (%s): set that aside with --set-aside, or name another directory", dir, ErrExists, strings.Join(names, ", "))
		if dir == m.DataDir && (s.state == stateDone || s.state == stateSealed) {
			err = fmt.Errorf("%w; plan %s, made at %s from %s, was restored there", err,
				s.record.Plan.ID, s.record.Plan.CreatedAt.UTC().Format("2006-01-02T15:04:05Z"), s.record.Plan.Source.Name)
		}
		problems = append(problems, err)
	}
	if len(s.data) > 0 && !p.SetAside {
		refuse(m.DataDir, s.data)
	}
	if len(s.wal) > 0 && !p.SetAside {
		refuse(m.WALDir, s.wal)
	}
	if s.state >= stateForeign && s.state != stateUnfinished {
		out.SetAside = append(out.SetAside, member)
	}
	if len(s.wal) > 0 {
		out.SetAside = append(out.SetAside, m.WALDir)
	}
	if s.state != stateAbsent {
		err := checkSwappable(m.DataDir, member)
		if err == nil && s.state != stateUnfinished {
			err = checkOwnLog(m, member)
		}
		problems = append(problems, err)
		problems = append(problems, checkStopped(member, filepath.Join(member, "wal")))
	}
	if m.WALDir != "" {
		problems = append(problems, checkStopped(member, m.WALDir))
		problems = append(problems, writable(m.WALDir, s.walThere))
	}
	return out, append(problems, writable(m.DataDir, s.dataThere))
}

// sharedNote says what to do about directories that members share.
func (p *Plan) sharedNote() string {
	return fmt.Sprintf("the members share the directory %s, so each host builds one: give --name with that member, or put {name} into the path to build all of them on one host", p.sharedDir())
}

// checkOwnLog refuses to set a member aside whose log lies elsewhere, when the
// new one is to have it inside: started with its usual --wal-dir, etcd would
// find the old log beside the new database, and panic.
func checkOwnLog(m Member, member string) error {
	if m.WALDir != "" {
		return nil
	}
	snap, err := exists(filepath.Join(member, "snap"))
	if err != nil || !snap {
		return err
	}
	if log, err := exists(filepath.Join(member, "wal")); err != nil || log {
		return err
	}
	return fmt.Errorf("%s has no wal folder, so its log lies in a directory of its own (etcd's --wal-dir): give that directory with --wal-dir, and it is set aside as well", member)
}

// checkPaths refuses directories that would end up in one another.
func checkPaths(members []Member) error {
	owner := map[string]string{}
	var paths []string
	add := func(path, what string) error {
		if other, ok := owner[path]; ok {
			return badRequest("restore: %s and %s are the same directory %s: put {name} into the path, or restore one member only on this host (--name)", other, what, path)
		}
		owner[path] = what
		paths = append(paths, path)
		return nil
	}
	for _, m := range members {
		if err := add(m.DataDir, "the data directory of "+m.Name); err != nil {
			return err
		}
		if m.WALDir != "" {
			if err := add(m.WALDir, "the WAL directory of "+m.Name); err != nil {
				return err
			}
		}
	}
	for _, a := range paths {
		for _, b := range paths {
			if a != b && strings.HasPrefix(b, strings.TrimSuffix(a, "/")+"/") {
				return badRequest("restore: %s (%s) lies inside %s (%s): name a directory outside", owner[b], b, owner[a], a)
			}
		}
	}
	return nil
}

// directory reports whether there is a folder of that name; what is no folder is
// an error.
func directory(path string) (bool, error) {
	info, err := safedir.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if there, err := exists(path); err != nil || there {
			return false, fmt.Errorf("%s is a symbolic link to nowhere: %w", path, errors.Join(ErrExists, err))
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return false, fmt.Errorf("%s %w and is no directory", path, ErrExists)
	}
	return true, nil
}

// checkSwappable refuses a member folder that cannot be renamed within its data
// directory, or whose content lies elsewhere.
func checkSwappable(dataDir, member string) error {
	parent, err := safedir.Stat(dataDir)
	if err != nil {
		return err
	}
	info, err := safedir.Lstat(member)
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link: give the directory that it leads to as the data directory, or replace it by that directory", member)
	case !info.IsDir():
		return fmt.Errorf("%s %w and is no directory", member, ErrExists)
	case !safedir.SameDevice(parent, info):
		return fmt.Errorf("%s is a mount of its own and cannot be renamed: mount it at %s instead", member, dataDir)
	}
	return nil
}

// writable reports whether a directory can be made, or built in.
func writable(path string, there bool) error {
	if !there {
		var err error
		if path, _, err = safedir.Nearest(filepath.Dir(path)); err != nil {
			return err
		}
	}
	if err := unix.Access(path, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s cannot be written to: %w: run as root, or as the user that etcd runs as", path, err)
	}
	return nil
}

// FileSystem is what a restore needs on one file system, with the old
// directories kept.
type FileSystem struct {
	Path   string `json:"path"` // one of the directories on it
	Device uint64 `json:"device"`
	Need   int64  `json:"need_bytes"`
	Free   int64  `json:"free_bytes"`
}

// needs are the bytes that go to each directory of the members.
func (p *Plan) needs(members []Member) map[string]int64 {
	out := map[string]int64{}
	for i, m := range members {
		out[m.DataDir] += p.BytesDB
		if m.WALDir != "" {
			out[m.WALDir] += p.BytesWAL
		} else {
			out[m.DataDir] += p.BytesWAL
		}
		if p.Engine == EngineEtcdutl && i == 0 {
			out[m.DataDir] += p.Source.Size // the plain file that etcdutl reads
		}
	}
	return out
}

// fileSystems adds up what goes to each file system.
func fileSystems(needs map[string]int64) ([]FileSystem, error) {
	var out []FileSystem
	for _, path := range slices.Sorted(maps.Keys(needs)) {
		at, info, err := safedir.Nearest(path)
		if err != nil {
			return nil, err
		}
		var dev uint64
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			dev = uint64(st.Dev) //nolint:unconvert // its type differs between systems
		}
		i := slices.IndexFunc(out, func(f FileSystem) bool { return f.Device == dev })
		if i < 0 {
			free, known, err := safedir.Free(at)
			if err != nil {
				return nil, err
			}
			if !known {
				free = math.MaxInt64
			}
			out = append(out, FileSystem{Path: path, Device: dev, Free: free})
			i = len(out) - 1
		}
		out[i].Need += needs[path]
	}
	return out, nil
}

func (f FileSystem) check() error {
	if f.Need <= f.Free {
		return nil
	}
	return fmt.Errorf("file system of %s: %w: %s needed, %s free, %s short: free some, or name a place with more", f.Path, ErrNoSpace, humanize.IBytes(uint64(f.Need)), humanize.IBytes(uint64(max(f.Free, 0))), humanize.IBytes(uint64(f.Need-f.Free)))
}

// checkInside refuses to build in a repository, and inside a member's data directory:
// what a running etcd has there would be taken for something to be set aside, or filled
// around. A folder that is there already below a repository may be a member's, whose data
// a recovery has set aside by now: it is not refused.
func checkInside(path string) error {
	var real string
	var isFolder bool
	for at := path; ; at = filepath.Dir(at) { // what is to be made has no links yet
		dir, err := safedir.OpenDir(at)
		if err == nil {
			rest, err := filepath.Rel(at, path)
			real, isFolder = filepath.Join(dir.Name(), rest), at == path
			if err := errors.Join(err, dir.Close()); err != nil {
				return err
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) || at == filepath.Dir(at) {
			return err
		}
	}
	there := func(elem ...string) bool {
		is, err := exists(filepath.Join(elem...))
		return is && err == nil
	}
	for dir := real; ; dir = filepath.Dir(dir) {
		if there(dir, repository.MarkerName) && (dir == real || !isFolder) {
			return badRequest("restore: %s is in the repository %s: name a place outside of it", path, dir)
		}
		if there(dir, "snap", "db") || there(dir, "wal") && filepath.Base(dir) == "member" {
			return badRequest("restore: %s is inside the data directory %s of a member: name the data directory itself, or another place", path, filepath.Dir(dir))
		}
		if dir != real && (there(dir, "member", "snap") || there(dir, "member", "wal")) {
			return badRequest("restore: %s is inside %s, which is the data directory of a member: name another place", path, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
