package job

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
)

// world is a bundled member, and a key.
type world struct {
	client   *client.Client
	identity *age.X25519Identity
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := store.StartCluster(ctx, store.ClusterConfig{
		DataDir: t.TempDir(), Members: 1, FreePorts: true, Settings: store.Settings{LogFile: os.DevNull},
	})
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	w := &world{}
	w.client, err = client.Dial(ctx, client.Config{Endpoints: c.Endpoints()})
	require.NoError(t, err)
	t.Cleanup(func() { w.client.Close() })
	w.identity, err = age.GenerateX25519Identity()
	require.NoError(t, err)
	return w
}

func (w *world) take(t *testing.T, attachments []byte, to sinks.Sink) (*snapshot.Result, error) {
	t.Helper()
	req := snapshot.Request{Client: w.client, Tool: "test", Sink: to, Attachments: attachments}
	req.Codec.Recipients = []age.Recipient{w.identity.Recipient()}
	return snapshot.Take(t.Context(), req)
}

// packed is the tar of newPKI.
func packed(t *testing.T) []byte {
	t.Helper()
	data, err := pack(t, newPKI(t))
	require.NoError(t, err)
	return data
}

func openRepo(t *testing.T, s sinks.Sink) *repository.Repository {
	t.Helper()
	r, err := repository.Open(t.Context(), s)
	require.NoError(t, err)
	return r
}

func namesIn(t *testing.T, s sinks.Sink) []string {
	t.Helper()
	var all []string
	for o, err := range s.List(t.Context(), "", "") {
		require.NoError(t, err)
		all = append(all, o.Name)
	}
	return all
}

func verified(t *testing.T, w *world, r *repository.Repository) *report.Report {
	t.Helper()
	got, err := verify.Repository(t.Context(), r, verify.Request{Level: report.Checksum, Identities: []age.Identity{w.identity}, ScratchDir: t.TempDir()})
	require.NoError(t, err)
	return got
}

// What was listed comes back out of the backup as it was, is whole by verify's
// word, a flipped byte of it is found, and nothing of it is readable in the repository.
func TestStoreAndRead(t *testing.T) {
	w := newWorld(t)
	data := packed(t)
	memory := sinktest.NewMemory()
	result, err := w.take(t, data, memory)
	require.NoError(t, err)
	repo := openRepo(t, memory)
	m, err := snapshot.ReadManifest(t.Context(), repo, result.Manifest.Timeline, result.Manifest.ID)
	require.NoError(t, err)
	o := m.Attachments
	if o == nil || !o.Encrypted() || o.Name != repository.AttachmentsName(m.Timeline, m.ID, 1) || o.RawSize != int64(len(data)) {
		t.Fatalf("%+v", o)
	}
	for _, name := range namesIn(t, memory) {
		stored, err := sinks.Get(t.Context(), memory, name, 1<<30)
		require.NoError(t, err)
		for _, secret := range []string{"its key", "server.crt", "ca.key"} {
			require.NotContains(t, string(stored), secret, name)
		}
	}
	// Every object there is one that verify knows.
	if got := verified(t, w, repo); got.Status() != report.Passed || len(got.Notes) > 0 {
		t.Errorf("verify says %s, %v", got.Status(), got.Notes)
	}
	got, err := snapshot.ReadAttachments(t.Context(), repo, m, w.identity)
	require.NoError(t, err)
	require.Equal(t, data, got)
	other, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	_, err = snapshot.ReadAttachments(t.Context(), repo, m, other)
	require.Error(t, err, "another identity opened it")

	// One that another writer added, and that would fill the memory.
	bomb := *m
	bomb.Attachments = new(*o)
	bomb.Attachments.RawSize = 1 << 40
	bombed := sinktest.NewMemory()
	copyTo(t, memory, bombed, func(name string, data []byte) []byte { return data })
	require.NoError(t, bombed.Delete(t.Context(), repository.ManifestName(m.Timeline, m.ID)))
	require.NoError(t, openRepo(t, bombed).WriteDocument(t.Context(), repository.ManifestName(m.Timeline, m.ID), bomb))
	_, err = snapshot.ReadManifest(t.Context(), openRepo(t, bombed), m.Timeline, m.ID)
	require.ErrorContains(t, err, "at most 33554432 are possible", "attachments of 1 TiB")

	for _, at := range []int{60, 400, -3} {
		spoiled := sinktest.NewMemory()
		copyTo(t, memory, spoiled, func(name string, data []byte) []byte {
			if name == o.Name {
				data = slices.Clone(data)
				data[(at+len(data))%len(data)] ^= 4
			}
			return data
		})
		got := verified(t, w, openRepo(t, spoiled))
		if got.Status() != report.Damaged || !namesObject(got, o.Name) {
			t.Errorf("byte %d flipped: verify says %s", at, got.Status())
		}
		_, err = snapshot.ReadAttachments(t.Context(), openRepo(t, spoiled), m, w.identity)
		require.Error(t, err, "byte %d flipped: it was read", at)
	}
	require.NoError(t, memory.Delete(t.Context(), o.Name))
	if got := verified(t, w, repo); got.Status() != report.Damaged || !namesObject(got, o.Name) {
		t.Errorf("it is gone: verify says %s", got.Status())
	}
}

// copyTo copies all objects of a sink to another one, as change makes them.
func copyTo(t *testing.T, from, to sinks.Sink, change func(name string, data []byte) []byte) {
	t.Helper()
	for _, name := range namesIn(t, from) {
		data, err := sinks.Get(t.Context(), from, name, 1<<30)
		require.NoError(t, err)
		_, err = sinks.Put(t.Context(), to, name, change(name, data), sinks.CreateOptions{})
		require.NoError(t, err)
	}
}

// names reports whether a finding is about an object.
func namesObject(r *report.Report, object string) bool {
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			if f.Object == object {
				return true
			}
		}
	}
	return false
}

// Promise 1: a backup with attachments is complete or absent, wherever it fails.
func TestPromise1AttachmentsCompleteOrAbsent(t *testing.T) {
	w := newWorld(t)
	data := packed(t)
	injected := errors.New("injected")
	for _, tt := range []struct {
		name  string
		fault sinktest.Fault
	}{
		{"attachments cannot be begun", sinktest.Fail(sinktest.Create, 1, injected).Of("attachments")},
		{"attachments cannot be stored", sinktest.Fail(sinktest.Commit, 1, injected).Of("attachments")},
		{"the manifest cannot be stored", sinktest.Fail(sinktest.Commit, 1, injected).Of("manifest.json")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			memory := sinktest.NewMemory()
			faulty := sinktest.NewFaulty(memory, tt.fault)
			_, err := w.take(t, data, faulty)
			require.ErrorContains(t, err, "injected", "the backup was made")
			faulty.AllFired(t)
			for _, name := range namesIn(t, memory) {
				if strings.Contains(name, "/full/") {
					t.Errorf("%s is left", name)
				}
			}
		})
	}
}

// TestTake_AttachmentsPlain_Refused proves that attachments without encryption are refused
// before anything is read or stored.
func TestTake_AttachmentsPlain_Refused(t *testing.T) {
	w := newWorld(t)
	memory := sinktest.NewMemory()
	_, err := snapshot.Take(t.Context(), snapshot.Request{Client: w.client, Sink: memory, Attachments: packed(t)})
	require.ErrorIs(t, err, snapshot.ErrAttachmentsPlain, "without a recipient")
	require.Empty(t, namesIn(t, memory))
}
