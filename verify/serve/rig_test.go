package serve

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// rebuilt is a cluster that was rebuilt from the database of another one, and what
// a proof is to hold it against.
type rebuilt struct {
	*storetest.Cluster
	result  *restore.Result
	request Request
	prefix  string // of the load's keys
	leases  int    // of the load
}

type rebuiltKind struct {
	version  string
	load     storetest.Load
	members  int
	learners []string
	tls      bool
	bump     restore.BumpRequest
	// alter changes the databases before the members start.
	alter map[string]func(*bbolt.Tx) error
}

// rebuild fills a cluster, stops it, and builds and starts another one from its
// database.
func rebuild(t *testing.T, k rebuiltKind) *rebuilt {
	t.Helper()
	old := storetest.Start(t, storetest.Options{Version: k.version})
	old.Fill(t, k.load)
	old.StopAll()
	path := filepath.Join(old.Member(0).DataDir, "member", "snap", "db")
	source, err := snapshot.OpenFile(path)
	require.NoError(t, err)
	facts, err := source.Facts(t.Context())
	require.NoError(t, err)
	names := []string{"m1", "m2", "m3", "m4"}[:k.members]
	initial := storetest.InitialCluster(t, names...)
	if k.tls {
		initial = strings.ReplaceAll(initial, "http:", "https:")
	}
	if k.bump.Mode == "" {
		k.bump.Mode = restore.BumpNone
	}
	plan, err := restore.NewPlan(t.Context(), restore.Request{Image: source, InitialCluster: initial, Learners: k.learners, DataDir: filepath.Join(t.TempDir(), "{name}"), Bump: k.bump})
	require.NoError(t, err)
	result, err := restore.Execute(t.Context(), plan, source, restore.ExecOptions{})
	require.NoError(t, err)
	dirs := map[string]string{}
	for _, m := range result.Members {
		dirs[m.Name] = m.DataDir
		if change := k.alter[m.Name]; change != nil {
			alter(t, filepath.Join(m.DataDir, "member", "snap", "db"), change)
		}
	}
	c := storetest.Start(t, storetest.Options{
		Version: k.version, DataDirs: dirs, InitialCluster: initial, Auth: k.load.Users > 0, TLS: k.tls,
		ExtraArgs: []string{"--initial-cluster-state=existing"},
	})
	r := &rebuilt{Cluster: c, result: result, prefix: k.load.Prefix, leases: k.load.Leases}
	r.request = Request{
		Client: c.ClientConfig(), ClientURLs: map[string][]string{}, ClusterID: plan.ClusterID, Members: plan.Members,
		RevisionAtLeast: result.RevisionAfter, AuthEnabled: &facts.AuthEnabled, Grace: 10 * time.Second, Timeout: 20 * time.Second,
	}
	for i := range c.Size() {
		r.request.ClientURLs[c.Member(i).Name] = []string{c.Member(i).ClientURL}
	}
	if plan.Bump == nil {
		hash := hashOf(t, path)
		r.request.HashKV = &hash
	}
	return r
}

func hashOf(t *testing.T, path string) snapshot.HashKV {
	t.Helper()
	f, err := snapshot.OpenFile(path)
	require.NoError(t, err)
	hash, err := f.HashKV(t.Context(), 0)
	require.NoError(t, err)
	return hash
}

func alter(t *testing.T, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, NoFreelistSync: true})
	require.NoError(t, err)
	require.NoError(t, db.Update(change))
	require.NoError(t, db.Close())
}

// noTrace makes sure that the proof left neither key nor lease behind.
func (r *rebuilt) noTrace(t *testing.T) {
	t.Helper()
	var voters []int
	for i, m := range r.request.Members { // both in the order of names
		if !m.Learner {
			voters = append(voters, i)
		}
	}
	client := r.Client(t, voters[0])
	left, err := client.Get(t.Context(), prefix, clientPrefix)
	if err != nil || len(left.Kvs) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	leases, err := client.Leases(t.Context())
	if err != nil || len(leases.Leases) != r.leases {
		t.Errorf("leases %v, %v; %d were rebuilt", leases, err, r.leases)
	}
}

// says makes sure that one of the sentences has the words.
func says(t *testing.T, what string, sentences []string, words string) {
	t.Helper()
	for _, s := range sentences {
		if strings.Contains(s, words) {
			return
		}
	}
	t.Errorf("%s does not say %q: %q", what, words, sentences)
}
