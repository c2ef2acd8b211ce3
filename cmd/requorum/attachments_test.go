package main

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/client"
)

// attachmentRepo is a repository with a backup that has a PKI with it, and the file
// of the identity that opens it.
func attachmentRepo(t *testing.T) (url, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := store.StartCluster(ctx, store.ClusterConfig{
		DataDir: t.TempDir(), Members: 1, FreePorts: true, Settings: store.Settings{LogFile: os.DevNull},
	})
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	client, err := client.Dial(ctx, client.Config{Endpoints: c.Endpoints()})
	require.NoError(t, err)
	defer client.Close()
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	pki := filepath.Join(t.TempDir(), "pki")
	require.NoError(t, os.Mkdir(pki, 0o700))
	key = filepath.Join(t.TempDir(), "key.txt")
	for path, content := range map[string]string{filepath.Join(pki, "ca.key"): "the key", filepath.Join(pki, "ca.crt"): "the CA", key: identity.String()} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	files, err := job.PackAttachments(ctx, []string{pki})
	require.NoError(t, err)
	url = filepath.Join(t.TempDir(), "repo")
	d, err := disk.New(url)
	require.NoError(t, err)
	defer d.Close()
	req := snapshot.Request{Client: client, Sink: d, Tool: "test", Attachments: files}
	req.Codec.Recipients = []age.Recipient{identity.Recipient()}
	_, err = snapshot.Take(ctx, req)
	require.NoError(t, err)
	return url, key
}

// The files that were stored with a backup come back out of it.
func TestShow_Attachments_WritesTar(t *testing.T) {
	url, key := attachmentRepo(t)
	if out := runHere(t.Context(), "show", "--repo", url); out.code != exitOK || !strings.Contains(out.stdout, "as attachments.tar.zst.age") {
		t.Errorf("show: %+v", out)
	}
	show := func(want int, args ...string) string {
		t.Helper()
		out := runHere(t.Context(), append([]string{"show", "--attachments", "--repo", url}, args...)...)
		if out.code != want || want != exitOK && out.stdout != "" {
			t.Errorf("show %v: %+v, want exit code %d", args, out, want)
		}
		return out.stdout
	}
	show(exitFailed)
	show(exitUsage, "--identity", key, "--output", "json")
	files := map[string]string{}
	for in := tar.NewReader(strings.NewReader(show(exitOK, "--identity", key))); ; {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		data, err := io.ReadAll(in)
		require.NoError(t, err)
		files[filepath.Base(h.Name)] = string(data)
	}
	require.Equal(t, map[string]string{"pki": "", "ca.key": "the key", "ca.crt": "the CA"}, files)
}

// Attachments of a full snapshot in the clear, which somebody may have added, are extracted
// only where it is named; and one in the clear is nobody's.
func TestAttachmentsPlanted(t *testing.T) {
	url, key := attachmentRepo(t)
	place, err := disk.New(url)
	require.NoError(t, err)
	defer place.Close()
	repo, err := repository.Open(t.Context(), place)
	require.NoError(t, err)
	c, err := snapshot.ReadCatalog(t.Context(), repo)
	require.NoError(t, err)
	copied := func(from, to string) {
		t.Helper()
		data, err := sinks.Get(t.Context(), place, from, 1<<20)
		require.NoError(t, err)
		_, err = sinks.Put(t.Context(), place, to, data, sinks.CreateOptions{})
		require.NoError(t, err)
	}
	plant := func(id string, attempt func(*snapshot.Manifest)) {
		t.Helper()
		m := *c.Manifests[0]
		m.ID = id
		from := m.Attachments.Name
		m.Attachments = new(*m.Attachments)
		m.Attachments.Name = repository.AttachmentsName(m.Timeline, m.ID, 1)
		attempt(&m)
		copied(from, m.Attachments.Name)
		copied(c.Manifests[0].Object.Name, m.Object.Name)
		require.NoError(t, repo.WriteDocument(t.Context(), repository.ManifestName(m.Timeline, m.ID), m))
	}
	inTheClear := func(m *snapshot.Manifest) {
		m.Facts.RaftIndex++
		m.Object.Name, m.Object.Codecs = repository.SnapshotName(m.Timeline, m.ID, 1, false), []string{codec.Zstd}
	}
	plant("20990101T000000Z-000001", inTheClear)
	for _, id := range []string{"", "latest"} {
		out := runHere(t.Context(), slices.DeleteFunc([]string{"show", id, "--attachments", "--identity", key, "--repo", url}, func(s string) bool { return s == "" })...)
		if out.code != exitFailed || out.stdout != "" || !strings.Contains(out.stderr, "full snapshot 20990101T000000Z-000001 of timeline") || !strings.Contains(out.stderr, "is not encrypted, though older full snapshots there are") {
			t.Errorf("%q: %+v", id, out)
		}
	}
	if out := runHere(t.Context(), "show", "20990101T000000Z-000001", "--attachments", "--identity", key, "--repo", url); out.code != exitOK {
		t.Errorf("named: %+v", out)
	}
	plant("20990101T000000Z-000002", func(m *snapshot.Manifest) {
		m.Object.Name = repository.SnapshotName(m.Timeline, m.ID, 1, true)
		m.Attachments.Codecs = []string{codec.Zstd}
	})
	for _, args := range [][]string{{"show", "--attachments"}, {"show"}, {"verify", "20990101T000000Z-000002", "--no-verdict"}} {
		out := runHere(t.Context(), append(args, "--repo", url)...)
		if text := out.stderr + out.stdout; out.code != exitDamaged || !strings.Contains(text, "its attachments are not encrypted, and attachments are stored encrypted only: somebody else made them; find out who did, then remove the backup") {
			t.Errorf("%v: %+v", args, out)
		}
	}
}
