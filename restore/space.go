package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

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
	for _, path := range sortedKeys(needs) {
		at, dev, err := ancestor(path)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(out, func(f FileSystem) bool { return f.Device == dev })
		if i < 0 {
			free, err := freeBytes(at)
			if err != nil {
				return nil, err
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
	return fmt.Errorf("file system of %s: %w: %d bytes needed, %d free, %d short", f.Path, ErrNoSpace, f.Need, f.Free, f.Need-f.Free)
}

// ancestor is the nearest folder on the way up that exists, and its device.
func ancestor(path string) (string, uint64, error) {
	for {
		info, err := os.Stat(path)
		if err == nil {
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				return path, 0, nil
			}
			return path, uint64(st.Dev), nil //nolint:unconvert // its type differs between systems
		}
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return "", 0, err
		}
		path = filepath.Dir(path)
	}
}

func sortedKeys(m map[string]int64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
