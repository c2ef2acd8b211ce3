package s3_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

func TestPromise4LockedObjectsStay(t *testing.T) {
	t.Parallel()
	t.Run("versitygw", func(t *testing.T) {
		lockedObjectsStay(t, versity(t, sinktest.S3Bucket{Name: "lockable", ObjectLock: true}))
	})
	t.Run("minio", func(t *testing.T) {
		server := sinktest.StartMinio(t)
		server.MakeBucket(t, sinktest.S3Bucket{Name: "lockable", ObjectLock: true})
		lockedObjectsStay(t, server)
	})
}

// lockedObjectsStay: small and large objects that asked for it are locked,
// those that did not are not, a delete is refused and leaves no marker.
func lockedObjectsStay(t *testing.T, server *sinktest.S3Server) {
	ctx := context.Background()
	for _, mode := range []string{"GOVERNANCE", "COMPLIANCE"} {
		s := open(t, server, server.URL("lockable", mode, "object-lock="+mode, "retention=2h"))
		for name, size := range map[string]int64{"small": 10, "large": 17 << 20} {
			before := time.Now()
			o, err := sinks.Put(ctx, s, name, sinktest.Random(1, size), sinks.CreateOptions{Lock: true})
			require.NoError(t, err)
			stat, err := s.Stat(ctx, name)
			require.NoError(t, err)
			for what, got := range map[string]time.Time{"Commit": o.LockedUntil, "Stat": stat.LockedUntil} {
				if d := got.Sub(before); d < 2*time.Hour-2*time.Second || d > 2*time.Hour+time.Minute {
					t.Errorf("%s %s: %s says locked for %s, want 2h", mode, name, what, d)
				}
			}
			versions := server.Versions(t, "lockable", mode+"/"+name)
			if err := s.Delete(ctx, name); !errors.Is(err, sinks.ErrLocked) || !strings.Contains(err.Error(), mode) {
				t.Errorf("%s %s: delete: %v, want ErrLocked", mode, name, err)
			}
			if now := server.Versions(t, "lockable", mode+"/"+name); strings.Join(now, ",") != strings.Join(versions, ",") {
				t.Errorf("%s %s: versions before %q and after %q", mode, name, versions, now)
			}
		}
		o, err := sinks.Put(ctx, s, "unlocked", nil, sinks.CreateOptions{})
		if err != nil || !o.LockedUntil.IsZero() {
			t.Errorf("unlocked: %+v, %v", o, err)
		}
		require.NoError(t, s.Delete(ctx, "unlocked"))
	}
}

func TestLegalHoldIsALock(t *testing.T) {
	t.Parallel()
	server := versity(t, sinktest.S3Bucket{Name: "lockable", ObjectLock: true})
	s := open(t, server, server.URL("lockable", "p"))
	_, err := store(s, "held", []byte("x"))
	require.NoError(t, err)
	if _, err := server.Client().PutObjectLegalHold(context.Background(), &awss3.PutObjectLegalHoldInput{
		Bucket: aws.String("lockable"), Key: aws.String("p/held"), LegalHold: &types.ObjectLockLegalHold{Status: types.ObjectLockLegalHoldStatusOn},
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(context.Background(), "held"); !errors.Is(err, sinks.ErrLocked) || !strings.Contains(err.Error(), "legal hold") {
		t.Errorf("delete: %v, want ErrLocked", err)
	}
}

// TestDeleteInAVersionedBucket frees the space and leaves no marker.
func TestDeleteInAVersionedBucket(t *testing.T) {
	t.Parallel()
	server := versity(t, sinktest.S3Bucket{Name: "versioned", Versioned: true})
	s := open(t, server, server.URL("versioned", "p"))
	for range 2 { // a name that was freed can be used again
		_, err := store(s, "object", []byte("x"))
		require.NoError(t, err)
		require.NoError(t, s.Delete(context.Background(), "object"))
		if left := server.Versions(t, "versioned", "p/object"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// TestHiddenObject: somebody's plain delete is distinguished from absence.
func TestHiddenObject(t *testing.T) {
	t.Parallel()
	server := sinktest.StartMinio(t) // versitygw's 404 does not name the marker
	server.MakeBucket(t, sinktest.S3Bucket{Name: "versioned", Versioned: true})
	s := open(t, server, server.URL("versioned", "p"))
	_, err := store(s, "object", []byte("x"))
	require.NoError(t, err)
	_, err = server.Client().DeleteObject(context.Background(), &awss3.DeleteObjectInput{Bucket: aws.String("versioned"), Key: aws.String("p/object")})
	require.NoError(t, err)
	_, err = s.Stat(context.Background(), "object")
	if !errors.Is(err, sinks.ErrNotFound) || !strings.Contains(err.Error(), "delete marker hides it") {
		t.Errorf("stat: %v", err)
	}
}

// TestPromise4NoLockInTheBucket: a lock that the bucket cannot give is an error
// at the first use.
func TestPromise4NoLockInTheBucket(t *testing.T) {
	t.Parallel()
	server := versity(t)
	s := open(t, server, server.URL("plain", "p", "object-lock=GOVERNANCE", "retention=1h"))
	_, err := store(s, "object", []byte("x"))
	require.ErrorContains(t, err, "has no object lock", "put")
	nothing(t, server, "p", s, "object")
}

// TestPromise4LockThatIsIgnored: a server that takes the request and does not
// lock is noticed.
func TestPromise4LockThatIsIgnored(t *testing.T) {
	t.Parallel()
	server := versity(t, sinktest.S3Bucket{Name: "lockable", ObjectLock: true})
	proxy := sinktest.NewFaultProxy(t, server.Endpoint, sinktest.ProxyFault{
		Name: "not said", Match: sinktest.IsHead("object"), Times: -1, Do: sinktest.Answer(func(resp *http.Response) {
			resp.Header.Del("X-Amz-Object-Lock-Mode")
			resp.Header.Del("X-Amz-Object-Lock-Retain-Until-Date")
		}),
	})
	s := open(t, server, server.URLThrough(proxy.Endpoint, "lockable", "p", "object-lock=GOVERNANCE", "retention=1h"))
	_, err := sinks.Put(context.Background(), s, "object", []byte("x"), sinks.CreateOptions{Lock: true})
	require.ErrorContains(t, err, "s3:GetObjectRetention", "put")
	proxy.AllFired(t)
}

// TestDefaultRetentionIsNoted: it locks scratch objects too.
func TestDefaultRetentionIsNoted(t *testing.T) {
	t.Parallel()
	server := versity(t, sinktest.S3Bucket{Name: "lockable", ObjectLock: true})
	if _, err := server.Client().PutObjectLockConfiguration(context.Background(), &awss3.PutObjectLockConfigurationInput{
		Bucket: aws.String("lockable"),
		ObjectLockConfiguration: &types.ObjectLockConfiguration{
			ObjectLockEnabled: types.ObjectLockEnabledEnabled,
			Rule:              &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{Mode: types.ObjectLockRetentionModeGovernance, Days: aws.Int32(3)}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the probe's objects are locked by the first round
		a, err := open(t, server, server.URL("lockable", "p")).Abilities(context.Background())
		require.NoError(t, err)
		if !a.ExclusiveCreate || len(a.Notes) != 1 || !strings.Contains(a.Notes[0], "GOVERNANCE, 3 days") {
			t.Errorf("%+v", a)
		}
	}
}

// TestLeastPrivilegeWithLocks: the rights that docs/s3.md lists for object lock
// are enough.
func TestLeastPrivilegeWithLocks(t *testing.T) {
	t.Parallel()
	server := versity(t, sinktest.S3Bucket{Name: "lockable", ObjectLock: true})
	server.AddUser(t, "backup", "backup-secret", "lockable",
		"s3:ListBucket", "s3:GetBucketObjectLockConfiguration",
		"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts", "s3:PutObjectRetention", "s3:GetObjectRetention")
	s := open(t, server, server.URL("lockable", "p", "object-lock=COMPLIANCE", "retention=1h"), keys("backup", "backup-secret", ""))
	for name, size := range map[string]int64{"small": 10, "large": 17 << 20} {
		o, err := sinks.Put(context.Background(), s, name, sinktest.Random(1, size), sinks.CreateOptions{Lock: true})
		if err != nil || o.LockedUntil.IsZero() {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}
