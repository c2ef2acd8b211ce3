package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What may be in memory of a cold file, and what has to be of a warm one. Not
// nothing and not all: the kernel reads ahead, and gives up pages, as it likes.
const (
	coldMost  = 0.005
	warmLeast = 0.995
)

// makeCold puts the files at or below a path out of the page cache, and looks
// that they are. What the disk itself, or a host below, keeps is out of reach.
func makeCold(root string) error {
	return eachFile(root, func(f *os.File, size int64) error {
		// Only what is on the disk can be dropped.
		if err := f.Sync(); err != nil {
			return err
		}
		var resident float64
		for range 20 {
			if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
				return fmt.Errorf("drop %s from the page cache: %w", f.Name(), err)
			}
			var err error
			if resident, err = inMemory(f, size); err != nil || resident <= coldMost {
				return err
			}
			time.Sleep(100 * time.Millisecond) // somebody else still holds pages
		}
		return fmt.Errorf("%.1f %% of %s stay in memory, so a cold start cannot be measured: run where the folder is on a disk, with -dir", 100*resident, f.Name())
	})
}

// makeWarm reads the files at or below a path, and looks that memory has them.
func makeWarm(root string) error {
	return eachFile(root, func(f *os.File, size int64) error {
		if _, err := io.Copy(io.Discard, f); err != nil {
			return err
		}
		resident, err := inMemory(f, size)
		if err == nil && resident < warmLeast {
			err = fmt.Errorf("only %.1f %% of %s stay in memory: it is too small for this size", 100*resident, f.Name())
		}
		return err
	})
}

// eachFile calls do for every file that is not empty.
func eachFile(root string, do func(f *os.File, size int64) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || info.Size() == 0 {
			return err
		}
		return do(f, info.Size())
	})
}

// inMemory is the part of a file's pages that the page cache holds.
func inMemory(f *os.File, size int64) (part float64, err error) {
	mapped, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(mapped)) }()
	page := os.Getpagesize()
	pages := make([]byte, (int(size)+page-1)/page)
	if _, _, failed := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[0])), uintptr(size), uintptr(unsafe.Pointer(&pages[0]))); failed != 0 {
		return 0, fmt.Errorf("ask which pages of %s are in memory: %w", f.Name(), failed)
	}
	resident := 0
	for _, p := range pages {
		resident += int(p & 1)
	}
	return float64(resident) / float64(len(pages)), nil
}
