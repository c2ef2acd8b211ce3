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
)

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
func (m Manifest) Alone() error {
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

// runsLike tells whether a pod is another one's copy, or runs a container of the
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
