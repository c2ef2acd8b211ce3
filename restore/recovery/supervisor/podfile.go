package supervisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/store/safedir"
)

// manifestFile is one that the kubelet runs a pod for, while it lies in the manifest
// folder. It is moved by a second name and the removal of the first: whoever reads
// the folder sees all of it or nothing, and a name that is taken is never
// overwritten.
type manifestFile struct {
	Path     string
	AsideDir string // where it lies meanwhile: outside the folder, on its file system
	// Container is the name that the container has in it.
	Container string
}

// Aside is where the manifest lies while it is away.
func (m manifestFile) Aside() string { return filepath.Join(m.AsideDir, filepath.Base(m.Path)) }

// Where says at which of its two places the manifest lies; both, where an attempt
// to move it was ended in between. It fails with fs.ErrNotExist where it lies at
// neither.
func (m manifestFile) Where() (inPlace, aside bool, err error) {
	a, errA := os.Lstat(m.Path)
	b, errB := os.Lstat(m.Aside())
	for _, err := range []error{errA, errB} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, false, err
		}
	}
	inPlace, aside = errA == nil, errB == nil
	switch {
	case inPlace && aside && !os.SameFile(a, b):
		return false, false, fmt.Errorf("there is a manifest %s, and another one that was set aside, %s: something wrote a new one: move one of them away", m.Path, m.Aside())
	case inPlace && !a.Mode().IsRegular():
		return false, false, fmt.Errorf("manifest %s is no ordinary file", m.Path)
	case !inPlace && !aside:
		return false, false, fmt.Errorf("there is neither a manifest %s nor one that was set aside, %s: %w", m.Path, m.Aside(), fs.ErrNotExist)
	}
	return inPlace, aside, nil
}

// Check looks, without changing anything, whether the manifest could be taken away
// and come back whole, and whether the kubelet would have nothing left to run.
func (m manifestFile) Check() error {
	if _, _, err := m.Where(); err != nil {
		return err
	}
	if err := m.sameFileSystem(); err != nil {
		return err
	}
	return m.Alone()
}

// TakeAway moves the manifest outside the folder, where it is in place.
func (m manifestFile) TakeAway() error {
	inPlace, aside, err := m.Where()
	if err != nil || !inPlace {
		return err
	}
	if err := errors.Join(m.sameFileSystem(), m.Alone()); err != nil {
		return err
	}
	if err := os.MkdirAll(m.AsideDir, 0o700); err != nil {
		return err
	}
	if err := relocate(m.Path, m.Aside(), aside); err != nil {
		return fmt.Errorf("take the manifest away: %w", err)
	}
	return nil
}

// Return moves the manifest back, where it is away.
func (m manifestFile) Return() error {
	inPlace, aside, err := m.Where()
	if err != nil || !aside {
		return err
	}
	if err := relocate(m.Aside(), m.Path, inPlace); err != nil {
		return fmt.Errorf("return the manifest: %w", err)
	}
	return nil
}

// sameFileSystem makes sure that the manifest can come back whole.
func (m manifestFile) sameFileSystem() error {
	folder, err := os.Stat(filepath.Dir(m.Path))
	if err != nil {
		return err
	}
	_, beside, err := safedir.Nearest(m.AsideDir)
	if err != nil {
		return err
	}
	if !safedir.SameDevice(folder, beside) {
		return fmt.Errorf("static-pod.aside-dir %s lies on another file system than the manifest folder: name a folder from which the manifest can be returned in one step", m.AsideDir)
	}
	return nil
}

// relocate gives a file another name in one step. both says that an earlier
// attempt was ended when it had both.
func relocate(from, to string, both bool) error {
	if !both {
		if err := os.Link(from, to); err != nil {
			return err
		}
		if err := safedir.Sync(filepath.Dir(to)); err != nil {
			return err
		}
	}
	if err := os.Remove(from); err != nil {
		return err
	}
	return safedir.Sync(filepath.Dir(from))
}

// manifestLimit is more than a pod's manifest can hold: it has to fit into etcd.
const manifestLimit = 4 << 20

// pod is as much of a manifest as names what it runs.
type pod struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name      string `yaml:"name"`
		Namespace string `yaml:"namespace"`
	} `yaml:"metadata"`
	Spec struct {
		Containers []struct {
			Name string `yaml:"name"`
		} `yaml:"containers"`
	} `yaml:"spec"`
}

// Alone fails where the manifest folder holds another manifest that runs the same:
// the kubelet reads every file whose name has no dot in front, a backup copy such
// as etcd.yaml.bak too, and would run that one once the manifest is away.
func (m manifestFile) Alone() error {
	ours := &pod{}
	inPlace, _, err := m.Where()
	switch {
	case errors.Is(err, fs.ErrNotExist): // it is known by the container alone
	case err != nil:
		return err
	case inPlace:
		ours, err = readPod(m.Path)
	default:
		ours, err = readPod(m.Aside())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	folder := filepath.Dir(m.Path)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var copies []string
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if path == filepath.Clean(m.Path) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := os.Stat(path) // as the kubelet does: it follows links
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		other, err := readPod(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if other.runsLike(ours, m.Container) {
			copies = append(copies, path)
		}
	}
	if len(copies) > 0 {
		return fmt.Errorf("%s would run the same as %s once that is away (the kubelet reads every file of the folder): move it outside %s", strings.Join(copies, " and "), m.Path, folder)
	}
	return nil
}

// readPod gives an empty pod where a file holds none: the kubelet runs nothing of it.
func readPod(path string) (*pod, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, manifestLimit))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", path, err)
	}
	p := &pod{}
	if yaml.Unmarshal(data, p) != nil || p.Kind != "Pod" {
		return &pod{}, nil //nolint:nilerr // see above
	}
	return p, nil
}

// runsLike reports whether a pod is another one's copy, or runs a container of the
// same name beside it.
func (p *pod) runsLike(other *pod, container string) bool {
	if p.Kind == "" || other.Kind != "" && p.Metadata.Namespace != other.Metadata.Namespace {
		return false
	}
	if other.Kind != "" && p.Metadata.Name == other.Metadata.Name {
		return true
	}
	for _, c := range p.Spec.Containers {
		if c.Name == container {
			return true
		}
	}
	return false
}
