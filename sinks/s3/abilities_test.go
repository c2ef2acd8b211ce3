package s3_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

// TestProbeIsCheap: one put that is refused, once for each sink, and no
// delete.
func TestProbeIsCheap(t *testing.T) {
	t.Parallel()
	server := versity(t)
	proxy := sinktest.NewFaultProxy(t, server.Endpoint)
	for round, want := range []int{2, 1} {
		before := len(proxy.Requests())
		s := proxied(t, server, proxy, "p")
		for range 3 {
			a, err := s.Abilities(context.Background())
			if err != nil || !a.ExclusiveCreate || len(a.Notes) != 0 {
				t.Fatalf("%+v, %v", a, err)
			}
		}
		puts := 0
		for _, r := range proxy.Requests()[before:] {
			if strings.HasPrefix(r, http.MethodDelete) {
				t.Errorf("the probe deletes: %s", r)
			}
			if strings.HasPrefix(r, http.MethodPut) {
				puts++
			}
		}
		if puts != want {
			t.Errorf("round %d: %d puts, want %d: %q", round, puts, want, proxy.Requests())
		}
	}
}

// TestPromise4WhatRcloneLacksIsSaid: it overwrites on conditional puts. That is
// noticed, each time, and a single writer still never overwrites.
func TestPromise4WhatRcloneLacksIsSaid(t *testing.T) {
	t.Parallel()
	server := sinktest.StartRclone(t)
	server.MakeBucket(t, sinktest.S3Bucket{Name: "plain"})
	for range 2 {
		a, err := open(t, server, server.URL("plain", "p")).Abilities(context.Background())
		require.NoError(t, err)
		t.Logf("%q", a.Notes)
		if a.ExclusiveCreate || len(a.Notes) != 1 ||
			!strings.Contains(a.Notes[0], "ignores conditional puts") || !strings.Contains(a.Notes[0], "one process write") {
			t.Errorf("%+v", a)
		}
	}
	s := open(t, server, server.URL("plain", "p"))
	for _, size := range []int64{10, 17 << 20} {
		name := map[bool]string{true: "small", false: "large"}[size == 10]
		first := sinktest.Random(1, size)
		_, err := store(s, name, first)
		require.NoError(t, err)
		_, err = store(s, name, sinktest.Random(2, size))
		require.ErrorIs(t, err, sinks.ErrExists, "%s again", name)
		holds(t, s, name, first)
	}
}

// TestPromise4EncryptionThatIsIgnored: versitygw takes the request for
// encryption and does nothing.
func TestPromise4EncryptionThatIsIgnored(t *testing.T) {
	t.Parallel()
	server := versity(t)
	for _, sse := range []string{"AES256", "aws:kms"} {
		s := open(t, server, server.URL("plain", "p", "sse="+sse))
		_, err := store(s, "object", []byte("secret"))
		require.ErrorContains(t, err, "does not encrypt", "sse=%s", sse)
		nothing(t, server, "p", s, "object")
	}
}

// TestPromise4StorageClassThatIsIgnored: the object is taken away again.
func TestPromise4StorageClassThatIsIgnored(t *testing.T) {
	t.Parallel()
	server := versity(t)
	s := open(t, server, server.URL("plain", "p", "storage-class=STANDARD_IA"))
	for name, size := range map[string]int64{"small": 10, "large": 17 << 20} {
		_, err := store(s, name, sinktest.Random(1, size))
		require.ErrorContains(t, err, "storage class", name)
		nothing(t, server, "p", s, name)
	}
}

// TestEncryptionOnMinio is seen in what the server says of the object.
func TestEncryptionOnMinio(t *testing.T) {
	t.Parallel()
	server := sinktest.StartMinio(t)
	server.MakeBucket(t, sinktest.S3Bucket{Name: "plain"})
	for i, more := range [][]string{{"sse=AES256"}, {"sse=aws:kms"}, {"sse=aws:kms", "kms-key=test-key"}} {
		prefix := "p" + string(rune('0'+i))
		s := open(t, server, server.URL("plain", prefix, more...))
		for name, size := range map[string]int64{"small": 10, "large": 17 << 20} {
			data := sinktest.Random(1, size)
			_, err := store(s, name, data)
			require.NoError(t, err, "%q", more)
			holds(t, s, name, data)
			head, err := server.Client().HeadObject(context.Background(), &awss3.HeadObjectInput{Bucket: aws.String("plain"), Key: aws.String(prefix + "/" + name)})
			if err != nil || "sse="+string(head.ServerSideEncryption) != more[0] {
				t.Errorf("%q %s: %v, %v", more, name, head.ServerSideEncryption, err)
			}
		}
	}
	s := open(t, server, server.URL("plain", "other", "sse=aws:kms", "kms-key=another-key"))
	if _, err := store(s, "object", nil); err == nil {
		t.Error("a key that does not exist is accepted")
	} else {
		t.Log(err)
	}
}

// TestLeastPrivilege: a user without the right to delete, with no more than
// deploy/s3/agent.json allows, can do all that a backup and a restore need.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	server := versity(t)
	server.AddUser(t, "backup", "backup-secret", "plain",
		"s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
	s := open(t, server, server.URL("plain", "p"), keys("backup", "backup-secret", ""))
	ctx := context.Background()
	data := sinktest.Random(1, big)
	for name, size := range map[string]int{"small": 10, "large": big} {
		_, err := store(s, name, data[:size])
		require.NoError(t, err)
		_, err = store(s, name, data[:size])
		require.ErrorIs(t, err, sinks.ErrExists, "%s again", name)
		holds(t, s, name, data[:size])
		if err := s.Delete(ctx, name); !errors.Is(err, sinks.ErrDenied) || !strings.Contains(err.Error(), "s3:DeleteObject") {
			t.Errorf("delete: %v, want ErrDenied", err)
		}
	}
	w, err := s.Create(ctx, "aborted", sinks.CreateOptions{})
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Abort())
	nothing(t, server, "p", s, "aborted")
	n := 0
	for _, err := range s.List(ctx, "", "") {
		require.NoError(t, err)
		n++
	}
	if n != 2 {
		t.Errorf("%d objects listed, want 2", n)
	}
	if a, err := s.Abilities(ctx); err != nil || !a.ExclusiveCreate {
		t.Errorf("%+v, %v", a, err)
	}
}
