package serve

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
)

// savedDir is removed by TestMain.
var savedDir string

// saved are images that several tests use, each made once, by name.
var saved sync.Map // of *sync.Once

// kind is a sort of cluster to take an image of.
type kind struct {
	version          string
	voters, learners int
	noSpace          bool
	load             storetest.Load
}

// image takes a snapshot of a real cluster, with etcdctl, once for all tests.
func image(t *testing.T, name string, k kind) *snapshot.File {
	t.Helper()
	path := filepath.Join(savedDir, name)
	once, _ := saved.LoadOrStore(name, &sync.Once{})
	once.(*sync.Once).Do(func() { k.save(t, path) })
	return open(t, path)
}

func (k kind) save(t *testing.T, path string) {
	t.Helper()
	c := storetest.Start(t, storetest.Options{Version: k.version, Members: k.voters})
	for range k.learners {
		c.AddLearner(t)
	}
	c.Fill(t, k.load)
	if k.noSpace {
		client := c.Client(t, 0)
		status, err := client.Status(t.Context(), c.Endpoints()[0])
		require.NoError(t, err)
		if _, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
			Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE,
		}); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--endpoints=" + c.Endpoints()[0], "snapshot", "save", path}
	if k.load.Users > 0 {
		args = append([]string{"--user=" + storetest.RootUser + ":" + storetest.RootPassword}, args...)
	}
	storetest.Etcdctl(t, k.version, args...)
	c.StopAll()
}

func open(t *testing.T, path string) *snapshot.File {
	t.Helper()
	f, err := snapshot.OpenFile(path)
	require.NoError(t, err)
	return f
}

// plain is a small image of one member of 3.7, with some of everything.
func plain(t *testing.T) *snapshot.File {
	t.Helper()
	return image(t, "plain", kind{version: "3.7", voters: 1, load: storetest.Load{Keys: 300, Overwrites: 100, Deletes: 50, Leases: 3, Compact: true}})
}

// history is a small image in which nothing is compacted.
func history(t *testing.T) *snapshot.File {
	t.Helper()
	return image(t, "history", kind{version: "3.7", voters: 1, load: storetest.Load{Keys: 300, Overwrites: 100, Deletes: 50}})
}

// withAuth is a small image with users and roles.
func withAuth(t *testing.T) *snapshot.File {
	t.Helper()
	return image(t, "auth", kind{version: "3.7", voters: 1, load: storetest.Load{Keys: 50, Users: 2}})
}

// altered is an image with changed content and no checksum, as if a member had
// written it so.
func altered(t *testing.T, from *snapshot.File, change func(tx *bbolt.Tx) error) *snapshot.File {
	t.Helper()
	data, err := os.ReadFile(from.Name())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "altered.db")
	require.NoError(t, os.WriteFile(path, data[:from.Size()], 0o600))
	alter(t, path, change)
	return open(t, path)
}

// run does a drill and makes sure that nothing remains.
func run(t *testing.T, image snapshot.Image, o DrillOptions) report.Check {
	t.Helper()
	o.ScratchDir = filepath.Join(t.TempDir(), "scratch")
	check, err := Drill(t.Context(), image, o)
	require.NoError(t, err)
	nothingIn(t, o.ScratchDir)
	return check
}

func nothingIn(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil && !os.IsNotExist(err) {
		t.Errorf("%s is not empty: %v %v", dir, left, err)
	}
}
