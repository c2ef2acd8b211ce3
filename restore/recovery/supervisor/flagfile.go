package supervisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/requorum/requorum/restore"
)

// FlagsFound is what a host's member is started with.
type FlagsFound struct {
	// Flags are those that were read; Known says that they are what etcd gets.
	Flags Flags `json:"flags"`
	Known bool  `json:"known"`
	// In is where they stand: a file, or what has them.
	In string `json:"in"`
	// ByHand says why they cannot be brought in line from here; empty where they can.
	ByHand string `json:"by_hand,omitempty"`
}

// FlagFile is where a host keeps the flags of its member.
type FlagFile struct {
	member   MemberConfig
	stateDir string
}

// NewFlagFile gives the place of the member that a configuration names. stateDir is where an
// environment file's old text is kept.
func NewFlagFile(m MemberConfig, stateDir string) *FlagFile { return &FlagFile{m, stateDir} }

// flagEdit is one that is planned.
type flagEdit struct {
	// Path is the file, and Kept where its old text goes.
	Path, Kept    string
	Before, After []byte
	Changes       []FlagChange // none where nothing is stale
}

// Read looks; what it cannot read, or could not edit, is said in ByHand.
func (p *FlagFile) Read(ctx context.Context) FlagsFound {
	in, flags, _, err := p.read(ctx)
	f := FlagsFound{Flags: flags, Known: flags != Flags{}, In: in}
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
func (p *FlagFile) Plan(ctx context.Context, wanted Flags, run string) (*flagEdit, error) {
	if err := wanted.Check(); err != nil {
		return nil, err
	}
	in, flags, text, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	e := &flagEdit{Path: in, Kept: p.kept(run), Before: text.before(), Changes: flags.Changes(wanted)}
	if e.After, err = text.changed(e.Changes); err != nil {
		return nil, byHand(in, "%v", err)
	}
	return e, nil
}

// Path is the file, for as long as the member is stopped; empty where there is none.
func (p *FlagFile) Path() string {
	switch p.member.Kind {
	case StaticPod:
		return p.manifest().Aside()
	case Systemd:
		return p.member.Systemd.EnvironmentFile
	default:
		return ""
	}
}

func (p *FlagFile) manifest() manifestFile {
	c := p.member.StaticPod
	return manifestFile{Path: c.Manifest, AsideDir: c.AsideDir, Container: c.Container}
}

func (p *FlagFile) kept(run string) string {
	folder := p.stateDir
	if p.member.Kind == StaticPod {
		folder = p.member.StaticPod.AsideDir
	}
	return filepath.Join(folder, filepath.Base(p.Path())+".before-"+run)
}

// flagText is a file's, with flags in it.
type flagText interface {
	before() []byte
	changed([]FlagChange) ([]byte, error)
}

func (m *flagManifest) before() []byte    { return m.text }
func (e *flagEnvironment) before() []byte { return e.text }

// read gives the flags that etcd gets, and the text that can be edited; with a
// *ByHandError the flags as far as they are known.
func (p *FlagFile) read(ctx context.Context) (in string, f Flags, t flagText, err error) {
	switch p.member.Kind {
	case StaticPod:
		return p.readManifest()
	case Systemd:
		return p.readUnit(ctx)
	case Store:
		in = "member.store.command of the cluster file"
		f, err = fromArguments(p.member.Store.Command)
		if err != nil {
			return in, Flags{}, nil, byHand(in, "%v", err)
		}
		return in, f, nil, byHand(in, "no request changes that file")
	case Command:
		in = "what member.command.start runs"
	default:
		in = fmt.Sprintf("the configuration of %s", p.member.Kind)
	}
	return in, f, nil, byHand(in, "it is not known from here what etcd is started with")
}

func (p *FlagFile) readManifest() (string, Flags, flagText, error) {
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
	m, err := readFlagManifest(data, where.Container)
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
func (p *FlagFile) readUnit(ctx context.Context) (string, Flags, flagText, error) {
	s := p.member.Systemd
	in := "unit " + s.Unit
	started, err := systemdUnit{Name: s.Unit, Systemctl: s.Systemctl}.Started(ctx)
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
	e, err := readFlagEnvironment(data)
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

// Sum is how a journal knows a file's text.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Apply keeps the old text and puts the new one in its place. It may be done again
// after anything; a text that is kept already is not overwritten.
func (e *flagEdit) Apply() error {
	if err := e.keep(); err != nil {
		return fmt.Errorf("keep the old text of %s: %w", e.Path, err)
	}
	if err := replace(e.Path, e.Path, e.After); err != nil {
		return fmt.Errorf("bring %s in line: %w", e.Path, err)
	}
	return nil
}

func (e *flagEdit) keep() error {
	if _, err := os.Lstat(e.Kept); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(e.Kept), 0o700); err != nil {
		return err
	}
	return replace(e.Kept, e.Path, e.Before)
}

// PutBack gives a file the text back that was kept, where it has the text that
// Apply gave it: sums of both tell. What somebody changed or moved since is left as it
// is, and said by back.
func PutBack(path, kept, before, after string) (back bool, err error) {
	now, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("put the flags in %s back: %w", path, err)
	}
	switch Sum(now) {
	case before:
		return true, nil
	case after:
	default:
		return false, nil
	}
	old, err := os.ReadFile(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("put the flags in %s back: %w", path, err)
	}
	if Sum(old) != before {
		return false, nil // an undo of the data does not fail for it
	}
	return true, replace(path, path, old)
}

// replace writes a file whole, or not at all, with the owner, mode and label of
// another one.
func replace(path, like string, data []byte) (err error) {
	folder := filepath.Dir(path)
	// A dot in front: no kubelet reads it, wherever it is.
	f, err := os.CreateTemp(folder, ".requorum-flags-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := restore.Alike(f.Name(), like); err != nil {
		return err
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, data) {
		return errors.Join(err, errors.New("what was written is read otherwise"))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
