package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// machine is where the numbers were measured, in general terms.
type machine struct {
	cores  int
	memory int64
	disk   float64 // bytes a second, written and synced
}

// look measures the disk under a folder by writing and syncing one file.
func look(dir string) (machine, error) {
	m := machine{cores: runtime.NumCPU()}
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m, err
	}
	var kib int64
	if _, err := fmt.Sscanf(string(info), "MemTotal: %d kB", &kib); err != nil {
		return m, fmt.Errorf("/proc/meminfo: %w", err)
	}
	m.memory = kib * 1024
	const size, chunk = 512 << 20, 4 << 20
	buf := make([]byte, chunk)
	rand.Read(buf) //nolint:errcheck // never fails
	path := filepath.Join(dir, "disk-speed")
	f, err := os.Create(path)
	if err != nil {
		return m, err
	}
	defer os.Remove(path)
	defer f.Close()
	syscall.Sync()
	start := time.Now()
	for range size / chunk {
		if _, err := f.Write(buf); err != nil {
			return m, err
		}
	}
	if err := f.Sync(); err != nil {
		return m, err
	}
	m.disk = size / time.Since(start).Seconds()
	return m, nil
}

func (m machine) String() string {
	return fmt.Sprintf("%d cores, %d GiB of memory, %s/%s; the disk writes and syncs 512 MiB at %.0f MB/s",
		m.cores, (m.memory+1<<29)>>30, runtime.GOOS, runtime.GOARCH, m.disk/1e6)
}

// free is the space in bytes that is left where dir is.
func free(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("free space in %s: %w", dir, err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// versions asks every program which it is.
func (b *bench) versions(ctx context.Context) (string, error) {
	out, err := output(ctx, b.requorum(), "version", "--output", "json")
	if err != nil {
		return "", err
	}
	var ours struct{ Version, Go string }
	if err := json.Unmarshal(out, &ours); err != nil {
		return "", fmt.Errorf("requorum version: %w", err)
	}
	out, err = output(ctx, b.etcd("etcdctl"), "version")
	if err != nil {
		return "", err
	}
	rival, _, _ := strings.Cut(strings.TrimPrefix(string(out), "etcdctl version: "), "\n")
	return fmt.Sprintf("requorum %s (%s); etcd, etcdctl and etcdutl %s", ours.Version, ours.Go, rival), nil
}
