package e2e

import (
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks/sinktest"
)

// TestOtherS3Servers: what a provider lacks is detected and said, and what it
// has is used. rclone overwrites where it should refuse; minio encrypts.
func TestOtherS3Servers(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(testing.TB) *sinktest.S3Server
		query []string
		note  string // on standard error; empty: nothing
	}{
		{"rclone", sinktest.StartRclone, nil, "note: "},
		{"minio", sinktest.StartMinio, []string{"sse=AES256"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := c.start(t)
			server.MakeBucket(t, sinktest.S3Bucket{Name: "backups"})
			cluster := startPlain(t, "3.7", 1, killKeys, killValueSize)
			u := newUser(t, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
			repo := server.URL("backups", "etcd", c.query...)
			e := u.Must(t, exitOK, append(backupArgs(cluster.Endpoints(), repo), "--read-back")...)
			if c.note == "" && e.Stderr != "" || !strings.Contains(e.Stderr, c.note) {
				t.Errorf("want %q on standard error: %s", c.note, e)
			}
			checked := map[string]bool{}
			if expectListedRestore(t, u, repo, checked, c.name); len(checked) != 1 {
				t.Errorf("%d backups are listed", len(checked))
			}
		})
	}
}
