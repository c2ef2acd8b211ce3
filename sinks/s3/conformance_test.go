package s3_test

import (
	"testing"

	"github.com/requorum/requorum/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	server := versity(t, sinktest.S3Bucket{Name: "plain"}, sinktest.S3Bucket{Name: "versioned", Versioned: true}, sinktest.S3Bucket{Name: "lockable", ObjectLock: true})
	small := sinktest.Options{Many: 20, Rounds: 2, Big: big}
	plain := sinktest.Options{}
	if testing.Short() {
		plain = small
	}
	t.Run("Plain", func(t *testing.T) { t.Parallel(); sinktest.Conformance(t, fresh(server, "plain"), plain) })
	t.Run("Versioned", func(t *testing.T) { t.Parallel(); sinktest.Conformance(t, fresh(server, "versioned"), small) })
	t.Run("ObjectLock", func(t *testing.T) {
		t.Parallel()
		sinktest.Conformance(t, fresh(server, "lockable", "object-lock=GOVERNANCE", "retention=1h"), small)
	})
	t.Run("TLS", func(t *testing.T) {
		if testing.Short() {
			t.Skip("TestAuthorities stores through TLS")
		}
		t.Parallel()
		server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{TLS: true, Buckets: []sinktest.S3Bucket{{Name: "plain"}}})
		sinktest.Conformance(t, fresh(server, "plain"), small)
	})
}

func TestConformanceOnMinioWithSSE(t *testing.T) {
	t.Parallel()
	server := sinktest.StartMinio(t)
	server.MakeBucket(t, sinktest.S3Bucket{Name: "plain"})
	sinktest.Conformance(t, fresh(server, "plain", "sse=AES256"), sinktest.Options{Many: 20, Rounds: 2})
}

func TestConformanceOnRcloneWithASingleWriter(t *testing.T) {
	t.Parallel()
	server := sinktest.StartRclone(t)
	server.MakeBucket(t, sinktest.S3Bucket{Name: "plain"})
	sinktest.Conformance(t, fresh(server, "plain"), sinktest.Options{Many: 20, Rounds: 2})
}
