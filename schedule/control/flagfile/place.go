package flagfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/supervisor"
)

// Found is what a host's member is started with.
type Found struct {
	// Flags are those that were read; Known says that they are what etcd gets.
	Flags Flags `json:"flags"`
	Known bool  `json:"known"`
	// In is where they stand: a file, or what has them.
	In string `json:"in"`
	// ByHand says why they cannot be brought in line from here; empty where they can.
	ByHand string `json:"by_hand,omitempty"`
}

// Place is where a host keeps the flags of its member.
type Place struct {
	member   config.Member
	stateDir string
}

// New gives the place of the member that a configuration names. stateDir is where an
// environment file's old text is kept.
func New(m config.Member, stateDir string) *Place { return &Place{m, stateDir} }

// Edit is one that is planned.
type Edit struct {
	// Path is the file, and Kept where its old text goes.
	Path, Kept    string
	Before, After []byte
	Changes       []Change // none where nothing is stale
}

// Read looks; what it cannot read, or could not edit, is said in ByHand.
func (p *Place) Read(ctx context.Context) Found {
	in, flags, _, err := p.read(ctx)
	f := Found{Flags: flags, Known: flags != Flags{}, In: in}
	var hand *ByHandError
	switch {
	case errors.As(err, &hand):
		f.ByHand = hand.Why
	case err != nil:
		f.Flags, f.Known, f.ByHand = Flags{}, false, err.Error()
	default:
		f.Known = true
	}
	return f
}

// Plan says how a file would be changed, and changes nothing; run names what is
// kept. A *ByHandError says why nobody but a person can.
func (p *Place) Plan(ctx context.Context, wanted Flags, run string) (*Edit, error) {
	if err := wanted.Check(); err != nil {
		return nil, err
	}
	in, flags, text, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	e := &Edit{Path: in, Kept: p.kept(run), Before: text.before(), Changes: flags.Changes(wanted)}
	if e.After, err = text.changed(e.Changes); err != nil {
		return nil, byHand(in, "%v", err)
	}
	return e, nil
}

// Path is the file, for as long as the member is stopped; empty where there is none.
func (p *Place) Path() string {
	switch p.member.Kind {
	case config.StaticPod:
		return p.manifest().Aside()
	case config.Systemd:
		return p.member.Systemd.EnvironmentFile
	default:
		return ""
	}
}

func (p *Place) manifest() supervisor.Manifest {
	c := p.member.StaticPod
	return supervisor.Manifest{Path: c.Manifest, AsideDir: c.AsideDir, Container: c.Container}
}

func (p *Place) kept(run string) string {
	folder := p.stateDir
	if p.member.Kind == config.StaticPod {
		folder = p.member.StaticPod.AsideDir
	}
	return filepath.Join(folder, filepath.Base(p.Path())+".before-"+run)
}

// text is a file's, with flags in it.
type text interface {
	before() []byte
	changed([]Change) ([]byte, error)
}

func (m *manifest) before() []byte    { return m.text }
func (e *environment) before() []byte { return e.text }

// read gives the flags that etcd gets, and the text that can be edited; with a
// *ByHandError the flags as far as they are known.
func (p *Place) read(ctx context.Context) (in string, f Flags, t text, err error) {
	switch p.member.Kind {
	case config.StaticPod:
		return p.readManifest()
	case config.Systemd:
		return p.readUnit(ctx)
	case config.Store:
		in = "member.store.command of the control process's configuration"
		f, err = fromArguments(p.member.Store.Command)
		if err != nil {
			return in, Flags{}, nil, byHand(in, "%v", err)
		}
		return in, f, nil, byHand(in, "no request changes that file")
	case config.Command:
		in = "what member.command.start runs"
	default:
		in = fmt.Sprintf("the configuration of %s", p.member.Kind)
	}
	return in, f, nil, byHand(in, "the control process does not know what etcd is started with")
}

func (p *Place) readManifest() (string, Flags, text, error) {
	where := p.manifest()
	inPlace, _, err := where.Where()
	if err != nil {
		return where.Path, Flags{}, nil, err
	}
	path := where.Aside()
	if inPlace {
		path = where.Path
	}
	data, err := regular(path)
	if err != nil {
		return path, Flags{}, nil, err
	}
	m, err := readManifest(data, where.Container)
	if err != nil {
		return path, Flags{}, nil, byHand(path, "%v", err)
	}
	f, err := m.flags()
	if err != nil {
		return path, Flags{}, nil, byHand(path, "%v", err)
	}
	return path, f, m, nil
}

// readUnit: what a unit's command line gives wins over its environment.
func (p *Place) readUnit(ctx context.Context) (string, Flags, text, error) {
	s := p.member.Systemd
	in := "unit " + s.Unit
	started, err := supervisor.Unit{Name: s.Unit, Systemctl: s.Systemctl}.Started(ctx)
	if err != nil {
		return in, Flags{}, nil, err
	}
	f, err := fromArguments(started.Argv)
	switch {
	case err != nil:
		return in, Flags{}, nil, byHand(in, "%v", err)
	case s.EnvironmentFile == "":
		return in, f, nil, byHand(in, "member.systemd.environment-file is not configured")
	case f != Flags{}:
		return in, f, nil, byHand(in, "its command line has them, which wins over the environment file")
	case started.Environment != nil && !has(started.Environment, s.EnvironmentFile):
		return in, f, nil, byHand(in, "it does not read the environment file %s", s.EnvironmentFile)
	}
	data, err := regular(s.EnvironmentFile)
	if err != nil {
		return s.EnvironmentFile, Flags{}, nil, err
	}
	e, err := readEnvironment(data)
	if err != nil {
		return s.EnvironmentFile, Flags{}, nil, byHand(s.EnvironmentFile, "%v", err)
	}
	return s.EnvironmentFile, e.flags(), e, nil
}

// has: a unit may name a file with a pattern.
func has(patterns []string, path string) bool {
	for _, pattern := range patterns {
		if ok, err := filepath.Match(strings.TrimPrefix(pattern, "-"), path); ok && err == nil {
			return true
		}
	}
	return false
}

// regular reads a file that is no link: the link itself would be replaced.
func regular(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, byHand(path, "it is no ordinary file")
	}
	if info.Size() > limit {
		return nil, byHand(path, "it is too large")
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it was moved meanwhile", err)
	}
	return data, err
}

// limit is more than a manifest or an environment can hold.
const limit = 4 << 20
