package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

const (
	s3User     = "bench"
	s3Password = "bench-password" // of a server that lives as long as this run
)

// startS3 starts versitygw on a folder of its own.
func (b *bench) startS3(ctx context.Context) (*server, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	accounts := b.path("accounts")
	for _, dir := range []string{accounts, b.path(s3Objects, s3Bucket)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	b.s3Endpoint = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	return startServer(ctx, "versitygw", b.dir, b.s3Endpoint+"/healthz",
		[]string{"ROOT_ACCESS_KEY=" + s3User, "ROOT_SECRET_KEY=" + s3Password},
		filepath.Join(b.bin, "versitygw"), "--port", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--quiet", "--health", "/healthz",
		"--iam-dir", accounts, "posix", b.path(s3Objects))
}

func (b *bench) s3URL() string {
	return "s3://" + s3Bucket + "/etcd?region=us-east-1&path-style=true&endpoint=" + b.s3Endpoint
}

func (b *bench) s3Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s3User, "AWS_SECRET_ACCESS_KEY=" + s3Password}
}
