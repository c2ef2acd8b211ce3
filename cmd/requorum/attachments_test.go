package main

import (
	"context"
	"encoding/json"
	"fmt"
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
		DataDir: t.TempDir(), Members: 1, FreePorts: true, Settings: store.Settings{LogLevel: "error", LogOutputs: []string{"/dev/null"}},
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
	all := job.Attachments([]job.Attachment{{Name: "pki", Path: pki}})
	url = filepath.Join(t.TempDir(), "repo")
	d, err := disk.New(url)
	require.NoError(t, err)
	defer d.Close()
	req := snapshot.Request{Client: client, Sinks: []sinks.Sink{d}, Tool: "test", Attachments: all}
	req.Codec.Recipients = []age.Recipient{identity.Recipient()}
	_, err = snapshot.Take(ctx, req)
	require.NoError(t, err)
	return url, key
}

// What was stored with a backup is shown, listed, and comes back out of it.
func TestAttachmentsCommand(t *testing.T) {
	url, key := attachmentRepo(t)
	if out := runHere(t.Context(), "show", "--repo", url); out.code != exitOK || !strings.Contains(out.stdout, "pki: 2 files, 13 B") {
		t.Errorf("show: %+v", out)
	}
	if out := runHere(t.Context(), "attachments", "list", "--repo", url); out.code != exitOK || !strings.Contains(out.stdout, "attachment-pki.tar.zst.age") {
		t.Errorf("list: %+v", out)
	}
	var listed attachmentsReport
	out := runHere(t.Context(), "attachments", "list", "latest", "--repo", url, "--output", "json")
	if err := json.Unmarshal([]byte(out.stdout), &listed); err != nil || len(listed.Attachments) != 1 || listed.Attachments[0].Files != 2 {
		t.Errorf("list: %+v, %v", out, err)
	}
	to := filepath.Join(t.TempDir(), "to")
	extract := func(want int, args ...string) string {
		t.Helper()
		out := runHere(t.Context(), append([]string{"attachments", "extract", "--repo", url}, args...)...)
		if out.code != want {
			t.Errorf("extract %v: %+v, want exit code %d", args, out, want)
		}
		return fmt.Sprint(out)
	}
	extract(exitUsage, "--name", "pki")
	extract(exitNothing, "--name", "other", "--to", to, "--identity", key)
	extract(exitFailed, "--name", "pki", "--to", to)
	if _, err := os.Lstat(to); !os.IsNotExist(err) {
		t.Errorf("something was made without an identity: %v", err)
	}
	extract(exitOK, "--name", "pki", "--to", to, "--identity", key)
	if data, err := os.ReadFile(filepath.Join(to, "ca.key")); err != nil || string(data) != "the key" {
		t.Errorf("%q, %v", data, err)
	}
	if said := extract(exitFailed, "--name", "pki", "--to", to, "--identity", key); !strings.Contains(said, "nothing is overwritten") {
		t.Error(said)
	}
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
		m.Attachments = slices.Clone(m.Attachments)
		from := m.Attachments[0].Object.Name
		m.Attachments[0].Object.Name = repository.AttachmentName(m.Timeline, m.ID, 1, "pki")
		attempt(&m)
		copied(from, m.Attachments[0].Object.Name)
		copied(c.Manifests[0].Object.Name, m.Object.Name)
		require.NoError(t, repo.WriteDocument(t.Context(), repository.ManifestName(m.Timeline, m.ID), m))
	}
	inTheClear := func(m *snapshot.Manifest) {
		m.Facts.RaftIndex++
		m.Object.Name, m.Object.Codecs = repository.SnapshotName(m.Timeline, m.ID, 1, false), []string{codec.Zstd}
	}
	plant("20990101T000000Z-000001", inTheClear)
	to := filepath.Join(t.TempDir(), "to")
	for _, id := range []string{"", "latest"} {
		out := runHere(t.Context(), slices.DeleteFunc([]string{"attachments", "extract", id, "--name", "pki", "--to", to, "--identity", key, "--repo", url}, func(s string) bool { return s == "" })...)
		if out.code != exitFailed || !strings.Contains(out.stderr, "full snapshot 20990101T000000Z-000001 of timeline") || !strings.Contains(out.stderr, "is not encrypted, though older full snapshots there are") {
			t.Errorf("%q: %+v", id, out)
		}
	}
	if _, err := os.Lstat(to); !os.IsNotExist(err) {
		t.Errorf("something was extracted: %v", err)
	}
	if out := runHere(t.Context(), "attachments", "extract", "20990101T000000Z-000001", "--name", "pki", "--to", to, "--identity", key, "--repo", url); out.code != exitOK {
		t.Errorf("named: %+v", out)
	}
	plant("20990101T000000Z-000002", func(m *snapshot.Manifest) {
		m.Object.Name = repository.SnapshotName(m.Timeline, m.ID, 1, true)
		m.Attachments[0].Object.Codecs = []string{codec.Zstd}
	})
	for _, args := range [][]string{{"attachments", "extract", "--name", "pki", "--to", to}, {"attachments", "list"}, {"verify", "20990101T000000Z-000002", "--no-verdict"}} {
		out := runHere(t.Context(), append(args, "--repo", url)...)
		if text := out.stderr + out.stdout; out.code != exitDamaged || !strings.Contains(text, "its attachment pki is not encrypted, and attachments are stored encrypted only: somebody else made it; find out who did, then remove the backup") {
			t.Errorf("%v: %+v", args, out)
		}
	}
}
