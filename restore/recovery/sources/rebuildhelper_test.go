package sources

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

// rig is a cluster that is killed, and what is rebuilt of it.
type rig struct {
	t       *testing.T
	c       *storetest.Cluster
	version string // of the binaries, exactly
}

func start(t *testing.T, version string) *rig {
	t.Helper()
	c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
	c.WaitReady(t)
	s, err := c.Client(t).Status(t.Context(), c.Member(0).ClientURL)
	require.NoError(t, err)
	return &rig{t, c, s.Version}
}

// put writes n keys below a prefix.
func (r *rig) put(prefix string, n int) {
	r.t.Helper()
	client := r.c.Client(r.t)
	for i := range n {
		_, err := client.Put(r.t.Context(), fmt.Sprint(prefix, i%9), strings.Repeat("v", 100+i))
		require.NoError(r.t, err)
	}
}

// writeOut waits until every member has all of it in its database's file.
func (r *rig) writeOut() {
	r.t.Helper()
	for i := range r.c.Size() {
		r.c.WriteOut(r.t, i)
	}
}

// killAll is a power cut: all members end at the same moment.
func (r *rig) killAll() {
	var all sync.WaitGroup
	for i := range r.c.Size() {
		all.Go(func() { r.c.Kill(i) })
	}
	all.Wait()
}

// survivor is a copy of a member's directory as it lies there.
func (r *rig) survivor(i int) Survivor {
	r.t.Helper()
	m := r.c.Member(i)
	dir := filepath.Join(r.t.TempDir(), m.Name)
	r.c.CopyData(r.t, i, dir)
	return Survivor{Name: m.Name, DataDir: dir}
}

// live is what a member serves at a revision; 0 for the newest.
func (r *rig) live(i int, revision int64) snapshot.HashKV {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute) // it may have been started just now
	defer cancel()
	client := r.c.Client(r.t, i)
	for {
		h, err := client.HashKV(ctx, r.c.Member(i).ClientURL, revision)
		if err == nil {
			if revision == 0 {
				revision = h.Header.Revision
			}
			return snapshot.HashKV{Hash: h.Hash, Revision: revision, CompactedRevision: h.CompactRevision}
		}
		if ctx.Err() != nil {
			r.t.Fatalf("member %d at revision %d: %v", i, revision, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// summaries are those of stopped members.
func summaries(t *testing.T, survivors ...Survivor) (all []Summary) {
	t.Helper()
	for _, s := range survivors {
		all = append(all, summarized(s.Name, summaryOf(t, s)))
	}
	return all
}

func surveyOf(t *testing.T, req SurveyRequest) *Findings {
	t.Helper()
	f, err := Survey(t.Context(), req)
	require.NoError(t, err)
	return f
}

// sourceOf is a candidate's source, as it comes to another host: by way of JSON.
func sourceOf(t *testing.T, p *Plan, name string) (s Source) {
	t.Helper()
	c := p.Candidate(name)
	if c == nil || c.Source == nil {
		t.Fatalf("candidate %q: %+v", name, p.Candidates)
	}
	text, err := json.Marshal(c.Source)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &s))
	return s
}

// bring copies what Needed says, and nothing else, as the coordinator does.
func bring(t *testing.T, s Source, survivors ...Survivor) map[string]Directories {
	t.Helper()
	places := map[string]Directories{}
	for _, from := range survivors {
		var names []string
		for _, folder := range []string{"member/snap/", "member/wal/"} {
			list, err := os.ReadDir(filepath.Join(from.DataDir, folder))
			if !os.IsNotExist(err) {
				require.NoError(t, err)
			}
			for _, e := range list {
				names = append(names, folder+e.Name())
			}
		}
		for _, name := range s.Needed(from.Name, names) {
			if _, known := places[from.Name]; !known {
				places[from.Name] = Directories{DataDir: t.TempDir()}
			}
			copyFile(t, from.DataDir, places[from.Name].DataDir, name)
		}
	}
	return places
}

func copyFile(t *testing.T, from, to, name string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(from, name))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(to, name), data, 0o600))
}

func state(t *testing.T, r RebuildRequest) *walreplay.Rebuilt {
	t.Helper()
	if r.Replay.ScratchDir == "" {
		r.Replay.ScratchDir = t.TempDir()
	}
	out, err := Rebuild(t.Context(), r)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, out.Close())
	})
	return out
}

func flip(t *testing.T, s Survivor) {
	t.Helper()
	path := filepath.Join(s.DataDir, "member", "snap", "db")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for at := 2 * 4096; at < len(data); at += 4096 { // the head of each page but the meta pages
		data[at+8] ^= 0xff
	}
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// sameHash leaves out how the hashes were obtained.
func sameHash(a, b snapshot.HashKV) bool {
	return a.Hash == b.Hash && a.Revision == b.Revision && a.CompactedRevision == b.CompactedRevision
}

// alterLog changes a byte of what is found in a survivor's log.
func alterLog(t *testing.T, s Survivor, what string) {
	t.Helper()
	found := false
	files, err := filepath.Glob(filepath.Join(s.DataDir, "member", "wal", "*.wal"))
	require.NoError(t, err)
	for _, path := range files {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		if at := bytes.Index(data, []byte(what)); at >= 0 {
			found = true
			data[at] ^= 1
			require.NoError(t, os.WriteFile(path, data, 0o600))
		}
	}
	if !found {
		t.Fatalf("the log of %s does not hold %q", s.Name, what)
	}
}
