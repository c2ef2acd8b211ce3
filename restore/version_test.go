package restore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
)

func TestTargetVersion(t *testing.T) {
	for _, c := range []struct {
		storage, cluster, target string
		oldest                   string // empty: refused
	}{
		{"", "", "", "3.5"},
		{"", "3.0.0", "3.5", "3.5"},
		{"", "3.5.0", "v3.5.21", "3.5"},
		{"3.6.0", "3.6.0", "3.6", "3.6"},
		{"3.6.0", "3.7.0", "", "3.7"}, // just upgraded: 3.6 refuses the cluster version
		{"3.6.0", "3.7.0", "3.6", ""},
		{"3.7.0", "3.6.0", "", "3.7"}, // a downgrade under way
		{"3.7.0", "3.7.0", "3.5", ""},
		{"3.7.0", "3.7.0", "4.0", "3.7"},
		{"", "", "3.4", ""},
	} {
		oldest, err := planTarget(c.target, snapshot.Facts{StorageVersion: c.storage, ClusterVersion: c.cluster})
		if oldest != c.oldest || (err != nil) != (c.oldest == "") {
			t.Errorf("storage %q, cluster %q, target %q: oldest %q (%v), want %q", c.storage, c.cluster, c.target, oldest, err, c.oldest)
		}
		if err != nil && c.target != "3.4" && (!strings.Contains(err.Error(), "etcdctl downgrade enable") || !strings.Contains(err.Error(), "etcdutl migrate")) {
			t.Errorf("target %q: %v does not name the ways back", c.target, err)
		}
		if err != nil && !errors.Is(err, ErrTooOld) {
			t.Errorf("target %q: %v is not ErrTooOld", c.target, err)
		}
		if err != nil && c.storage != "" && (!strings.Contains(err.Error(), "etcdctl downgrade enable 3.6") || !strings.Contains(err.Error(), "etcdutl migrate")) {
			t.Errorf("target %q: %v does not name what is possible", c.target, err)
		}
	}
	var bad *RequestError
	if _, err := planTarget("newest", snapshot.Facts{}); !errors.As(err, &bad) || errors.Is(err, ErrTooOld) {
		t.Errorf("target newest: %v", err)
	}
}

// TestOlderServersRefuse: what requorum builds is not only refused by its own
// check, but by the older servers as well, before they change anything.
func TestOlderServersRefuse(t *testing.T) {
	for _, c := range []struct{ source, target string }{{"3.6", "3.5"}, {"3.7", "3.5"}, {"3.7", "3.6"}} {
		t.Run(fmt.Sprint(c.source, " on ", c.target), func(t *testing.T) {
			t.Parallel()
			req := three(open(t, realImage(t, c.source).path), t.TempDir())
			res := execute(t, req, ExecOptions{})
			req.TargetVersion = c.target
			_, err := NewPlan(t.Context(), req)
			require.ErrorIs(t, err, ErrTooOld, "a plan for etcd %s", c.target)
			out := startRefused(t, c.target, append(res.Members[0].Flags,
				"--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:1", "--listen-peer-urls=http://127.0.0.1:0")...)
			if !strings.Contains(out, "invalid downgrade") && !strings.Contains(out, "cannot create migration plan") && !strings.Contains(out, "is not supported") {
				t.Errorf("etcd %s refused for another reason:\n%s", c.target, last([]byte(out)))
			}
		})
	}
}
