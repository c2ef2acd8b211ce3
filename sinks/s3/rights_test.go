package s3_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/s3"
	"github.com/requorum/requorum/sinks/sinktest"
)

// What credentials may do is found out without a trace, in a bucket with versions and in
// one without: each right alone is found, and no other.
func TestMay(t *testing.T) {
	t.Parallel()
	server := versity(t, sinktest.S3Bucket{Name: "plain"}, sinktest.S3Bucket{Name: "kept", Versioned: true})
	for _, bucket := range []string{"plain", "kept"} {
		t.Run(bucket, func(t *testing.T) {
			expectMay(t, server, bucket, func(t *testing.T, user string, actions []string) {
				if actions == nil {
					server.AddUser(t, user, user+"-secret", bucket, "s3:GetObject")
				} else {
					server.Allow(t, user, bucket, actions...)
				}
			})
		})
	}
}

func expectMay(t *testing.T, server *sinktest.S3Server, bucket string, allow func(t *testing.T, user string, actions []string)) {
	user := "user-" + bucket
	allow(t, user, nil)
	proxy := sinktest.NewFaultProxy(t, server.Endpoint)
	url := server.URLThrough(proxy.Endpoint, bucket, "p")
	place := open(t, server, url, func(c *s3.Config) {
		c.Credentials = credentials.NewStaticCredentialsProvider(user, user+"-secret", "")
	})
	for action, want := range map[string][]s3.Right{
		"s3:GetObject":           nil,
		"s3:PutObject":           {s3.MayPut, s3.MayReplace},
		"s3:DeleteObject":        {s3.MayDelete},
		"s3:DeleteObjectVersion": {s3.MayDeleteVersion},
	} {
		allow(t, user, []string{"s3:ListBucket", "s3:GetObject", action})
		var got []s3.Right
		for _, right := range []s3.Right{s3.MayPut, s3.MayReplace, s3.MayDelete, s3.MayDeleteVersion} {
			may, err := place.May(t.Context(), right, "some/where")
			require.NoError(t, err, action, right)
			if may {
				got = append(got, right)
			}
		}
		require.Equal(t, want, got, action)
	}
	if left := server.Versions(t, bucket, ""); len(left) > 0 {
		t.Errorf("these are left: %q", left)
	}
	objects, err := server.Client().ListObjectsV2(context.Background(), &awss3.ListObjectsV2Input{Bucket: &bucket})
	require.NoError(t, err)
	require.Empty(t, objects.Contents)
	// A policy that refuses puts of names that may be taken, as Amazon's can.
	proxy.Add(sinktest.ProxyFault{Name: "NeverReplace", Times: -1, Do: sinktest.Refuse(http.StatusForbidden, "AccessDenied"), Match: func(r *http.Request) bool {
		return r.Method == http.MethodPut && r.Header.Get("If-None-Match") == ""
	}})
	allow(t, user, []string{"s3:ListBucket", "s3:GetObject", "s3:PutObject"})
	for right, want := range map[s3.Right]bool{s3.MayPut: true, s3.MayReplace: false} {
		if may, err := place.May(t.Context(), right, "some/where"); may != want || err != nil {
			t.Errorf("%s: %v, %v", right, may, err)
		}
	}
	// Unknown is not "no".
	proxy.Add(sinktest.ProxyFault{Name: "away", Times: -1, Do: sinktest.Refuse(http.StatusServiceUnavailable, "SlowDown"), Match: func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "else")
	}})
	for _, right := range []s3.Right{s3.MayPut, s3.MayDelete} {
		if may, err := open(t, server, url, briefly).May(t.Context(), right, "some/where/else"); err == nil {
			t.Errorf("%s: %v, and the server did not say", right, may)
		}
	}
	proxy.AllFired(t)
}

// Nor is anything left at another server.
func TestMayAtMinio(t *testing.T) {
	t.Parallel()
	server := sinktest.StartMinio(t)
	for _, bucket := range []sinktest.S3Bucket{{Name: "plain"}, {Name: "kept", Versioned: true}} {
		server.MakeBucket(t, bucket)
		place := open(t, server, server.URL(bucket.Name, "p"))
		for _, right := range []s3.Right{s3.MayPut, s3.MayReplace, s3.MayDelete, s3.MayDeleteVersion} {
			if may, err := place.May(t.Context(), right, "some/where"); !may || err != nil {
				t.Errorf("the administrator may not %s: %v", right, err)
			}
		}
		if left := server.Versions(t, bucket.Name, ""); len(left) > 0 {
			t.Errorf("%s: these are left: %q", bucket.Name, left)
		}
	}
}
