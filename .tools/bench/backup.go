package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// folders that backups are written to, all under the folder of the run.
const (
	plainFile    = "etcdctl.db"
	scriptFile   = "script.db"
	plainRepo    = "repo-plain"
	fileRepo     = "repo-file"
	sealedRepo   = "repo-sealed"
	s3Objects    = "s3-objects"
	s3Bucket     = "bench"
	identityFile = "identity.txt"
	signedRepo   = "repo-signed"
	secretRepo   = "repo-secret"
	signingKey   = "signing.key"
)

// save is the rival: etcdctl snapshot save.
func (b *bench) save(endpoint string) contestant {
	file := b.path(plainFile)
	return contestant{
		name:    "`etcdctl snapshot save`",
		prepare: func() error { return os.RemoveAll(file) },
		run: func(ctx context.Context) (usage, error) {
			return measure(ctx, nil, b.etcd("etcdctl"), "--endpoints", endpoint, "snapshot", "save", file)
		},
		stored: func() (int64, error) { return bytesUnder(file) },
	}
}

// script is what a user would write around etcdctl for a compressed file with
// a checksum. It reports false when the compressor is not installed.
func (b *bench) script(endpoint string, rounds int, compress ...string) (contestant, bool) {
	program, err := exec.LookPath(compress[0])
	if err != nil {
		b.log.Warn("not measured: not installed", "program", compress[0])
		return contestant{}, false
	}
	file, packed := b.path(scriptFile), b.path(scriptFile)+map[string]string{"zstd": ".zst", "gzip": ".gz"}[compress[0]]
	name := "`etcdctl snapshot save`, then `"
	for i, word := range compress {
		if i > 0 {
			name += " "
		}
		name += word
	}
	steps := [][]string{
		{b.etcd("etcdctl"), "--endpoints", endpoint, "snapshot", "save", file},
		append(append([]string{program}, compress[1:]...), file),
		{"sha256sum", packed},
		{"sync", packed},
	}
	return contestant{
		name:    name + "`, `sha256sum`, `sync`",
		rounds:  rounds,
		prepare: func() error { return errors.Join(os.RemoveAll(file), os.RemoveAll(packed)) },
		run: func(ctx context.Context) (usage, error) {
			var sum usage
			for _, step := range steps {
				u, err := measure(ctx, nil, step[0], step[1:]...)
				if err != nil {
					return sum, err
				}
				sum = sum.then(u)
			}
			return sum, nil
		},
		stored: func() (int64, error) { return bytesUnder(packed) },
	}, true
}

// backup is requorum to a folder, each time a new repository.
func (b *bench) backup(endpoint, repo, name string, flags ...string) contestant {
	folder := b.path(repo)
	return contestant{
		name:    name,
		prepare: func() error { return os.RemoveAll(folder) },
		run: func(ctx context.Context) (usage, error) {
			args := append([]string{"backup", "--endpoints", endpoint, "--repo", "file://" + folder}, flags...)
			return measure(ctx, nil, b.requorum(), args...)
		},
		stored: func() (int64, error) { return bytesUnder(folder) },
	}
}

// backups are requorum's to disk, by stream and out of the member's file.
func (b *bench) backups(endpoint, dataDir string) []contestant {
	key := b.path(signingKey)
	return []contestant{
		b.backup(endpoint, plainRepo, "`requorum backup`"),
		b.backup(endpoint, sealedRepo, "`requorum backup`, encrypted", "--recipient", b.recipient),
		b.backup(endpoint, signedRepo, "`requorum backup`, signed", "--signing-key", key),
		b.backup(endpoint, fileRepo, "`requorum backup --data-dir`, signed", "--data-dir", dataDir, "--signing-key", key),
		b.backup(endpoint, secretRepo, "`requorum backup --data-dir`, encrypted and signed", "--data-dir", dataDir, "--recipient", b.recipient, "--signing-key", key),
	}
}

// backupS3 is requorum to an S3 server on the same machine.
func (b *bench) backupS3(endpoint string) contestant {
	bucket := b.path(s3Objects, s3Bucket)
	return contestant{
		name: "`requorum backup` to S3",
		prepare: func() error {
			return errors.Join(os.RemoveAll(filepath.Join(bucket, "etcd")), os.MkdirAll(bucket, 0o700))
		},
		run: func(ctx context.Context) (usage, error) {
			return measure(ctx, b.s3Env(), b.requorum(), "backup", "--endpoints", endpoint, "--repo", b.s3URL())
		},
		stored: func() (int64, error) { return bytesUnder(bucket) },
	}
}

// bytesUnder adds up the sizes of the files at or below a path.
func bytesUnder(root string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(root, func(_ string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err == nil && sum == 0 {
		err = errors.New(root + " holds nothing")
	}
	return sum, err
}
