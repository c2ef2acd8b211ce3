package job

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
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
		DataDir: t.TempDir(), Members: 1, FreePorts: true, Settings: store.Settings{LogLevel: "error", LogOutputs: []string{"/dev/null"}},
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

func (w *world) take(t *testing.T, all []snapshot.AttachmentSource, to ...sinks.Sink) (*snapshot.Result, error) {
	t.Helper()
	req := snapshot.Request{Client: w.client, Tool: "test", Sinks: to, Attachments: all}
	req.Codec.Recipients = []age.Recipient{w.identity.Recipient()}
	return snapshot.Take(t.Context(), req)
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
// word, and a flipped byte of it is found.
func TestStoreAndExtract(t *testing.T) {
	w := newWorld(t)
	dir := newPKI(t)
	memory := sinktest.NewMemory()
	result, err := w.take(t, sources(t, dir), memory)
	require.NoError(t, err)
	repo := openRepo(t, memory)
	m, err := snapshot.ReadManifest(t.Context(), repo, result.Outcomes[0].Manifest.Timeline, result.Outcomes[0].Manifest.ID)
	require.NoError(t, err)
	c, err := FindAttachment(m, "pki")
	require.NoError(t, err)
	if c.Files != 7 || c.Links != 2 || c.Host == "" || !c.Object.Encrypted() || c.Object.Name != repository.AttachmentName(m.Timeline, m.ID, 1, "pki") {
		t.Errorf("%+v", c)
	}
	if _, err := FindAttachment(m, "other"); !errors.Is(err, ErrNoAttachment) || !strings.Contains(err.Error(), "pki") {
		t.Errorf("another one: %v", err)
	}
	// Every object there is one that verify knows.
	if got := verified(t, w, repo); got.Status() != report.Passed || len(got.Notes) > 0 {
		t.Errorf("verify says %s, %v", got.Status(), got.Notes)
	}

	// One that another writer added, and that would fill the disk.
	bomb := c
	bomb.Object.RawSize = 1 << 40
	_, err = ExtractAttachment(t.Context(), repo, bomb, []age.Identity{w.identity}, filepath.Join(t.TempDir(), "bomb"))
	require.ErrorContains(t, err, "at most 1073741824 are possible", "an attachment of 1 TiB")

	to := filepath.Join(t.TempDir(), "out")
	content, err := ExtractAttachment(t.Context(), repo, c, []age.Identity{w.identity}, to)
	if err != nil || content.Files != 7 || content.Links != 2 {
		t.Fatalf("%+v, %v", content, err)
	}
	for name, want := range map[string]string{"ca.key": "its key", "token": "secret", "current.pem": "renewed"} {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	_, err = ExtractAttachment(t.Context(), repo, c, []age.Identity{w.identity}, to)
	require.ErrorIs(t, err, os.ErrExist, "extracted twice to one place")
	other, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	elsewhere := filepath.Join(t.TempDir(), "none")
	_, err = ExtractAttachment(t.Context(), repo, c, []age.Identity{other}, elsewhere)
	require.Error(t, err, "another identity opened it")
	if _, err := os.Lstat(elsewhere); !os.IsNotExist(err) {
		t.Errorf("a folder is left of it: %v", err)
	}

	for _, atFile := range []int{60, 400, -3} {
		spoiled := sinktest.NewMemory()
		for _, name := range namesIn(t, memory) {
			data, err := sinks.Get(t.Context(), memory, name, 1<<30)
			require.NoError(t, err)
			if name == c.Object.Name {
				data = slices.Clone(data)
				data[(atFile+len(data))%len(data)] ^= 4
			}
			_, err = sinks.Put(t.Context(), spoiled, name, data, sinks.CreateOptions{})
			require.NoError(t, err)
		}
		got := verified(t, w, openRepo(t, spoiled))
		if got.Status() != report.Damaged || !namesObject(got, c.Object.Name) {
			t.Errorf("byte %d flipped: verify says %s", atFile, got.Status())
		}
		broken := filepath.Join(t.TempDir(), "broken")
		_, err = ExtractAttachment(t.Context(), openRepo(t, spoiled), c, []age.Identity{w.identity}, broken)
		require.Error(t, err, "byte %d flipped: it was extracted", atFile)
		if _, err := os.Lstat(broken); !os.IsNotExist(err) {
			t.Errorf("byte %d flipped: something is left: %v", atFile, err)
		}
	}
	require.NoError(t, memory.Delete(t.Context(), c.Object.Name))
	if got := verified(t, w, repo); got.Status() != report.Damaged || !namesObject(got, c.Object.Name) {
		t.Errorf("it is gone: verify says %s", got.Status())
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

// failing is an attachment that cannot be packed from the n-th time on.
type failing struct {
	snapshot.AttachmentSource
	n int
}

func (f *failing) Pack(ctx context.Context, w io.Writer) (snapshot.AttachmentContent, error) {
	if f.n--; f.n < 0 {
		return snapshot.AttachmentContent{}, errors.New("injected")
	}
	return f.AttachmentSource.Pack(ctx, w)
}

// Promise 1: a backup with attachments is complete or absent, wherever it fails.
func TestPromise1AttachmentsCompleteOrAbsent(t *testing.T) {
	w := newWorld(t)
	dir := newPKI(t)
	two := func() []snapshot.AttachmentSource {
		return Attachments([]Attachment{{Name: "pki", Path: dir}, {Name: "ca", Path: filepath.Join(dir, "ca.crt")}})
	}
	injected := errors.New("injected")
	for _, tt := range []struct {
		name  string
		all   []snapshot.AttachmentSource
		fault []sinktest.Fault
	}{
		{"the first cannot be packed", []snapshot.AttachmentSource{&failing{two()[0], 0}}, nil},
		{"the second cannot be packed any more", []snapshot.AttachmentSource{two()[0], &failing{two()[1], 1}}, nil},
		{"the first cannot be stored", two(), []sinktest.Fault{sinktest.Fail(sinktest.Commit, 1, injected).Of("attachment-pki")}},
		{"the second cannot be stored", two(), []sinktest.Fault{sinktest.Fail(sinktest.Commit, 1, injected).Of("attachment-ca")}},
		{"the second cannot be begun", two(), []sinktest.Fault{sinktest.Fail(sinktest.Create, 1, injected).Of("attachment-ca")}},
		{"the manifest cannot be stored", two(), []sinktest.Fault{sinktest.Fail(sinktest.Commit, 1, injected).Of("manifest.json")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			memory := sinktest.NewMemory()
			faulty := sinktest.NewFaulty(memory, tt.fault...)
			healthy := sinktest.NewMemory()
			to := []sinks.Sink{faulty}
			if len(tt.fault) > 0 {
				to = append(to, healthy)
			}
			_, err := w.take(t, tt.all, to...)
			require.ErrorContains(t, err, "injected", "the backup was made")
			faulty.AllFired(t)
			for _, name := range namesIn(t, memory) {
				if strings.Contains(name, "/full/") {
					t.Errorf("%s is left", name)
				}
			}
			if len(tt.fault) == 0 {
				return
			}
			// The other repository has it whole.
			repo := openRepo(t, healthy)
			c, err := snapshot.ReadCatalog(t.Context(), repo)
			if err != nil || len(c.Manifests) != 1 || len(c.Manifests[0].Attachments) != 2 {
				t.Fatalf("%+v, %v", c, err)
			}
			for _, one := range c.Manifests[0].Attachments {
				r, err := snapshot.OpenAttachment(t.Context(), repo, one, w.identity)
				require.NoError(t, err)
				if data, err := io.ReadAll(r); err != nil || len(data) == 0 {
					t.Errorf("%s: %d bytes, %v", one.Name, len(data), err)
				}
				r.Close()
			}
		})
	}
}

// large is an attachment of many bytes.
type large struct{ name string }

func (l large) Name() string { return l.name }
func (l large) Pack(context.Context, io.Writer) (snapshot.AttachmentContent, error) {
	return snapshot.AttachmentContent{Files: 1, Bytes: snapshot.AttachmentLimit/2 + 1}, nil
}

// Attachments without encryption, too much of them, and two of one name are refused
// before anything is read or stored.
func TestTakeRefusesAttachments(t *testing.T) {
	w := newWorld(t)
	memory := sinktest.NewMemory()
	_, err := snapshot.Take(t.Context(), snapshot.Request{Client: w.client, Sinks: []sinks.Sink{memory}, Attachments: sources(t, newPKI(t))})
	require.ErrorIs(t, err, snapshot.ErrAttachmentsPlain, "without a recipient")
	if _, err := w.take(t, []snapshot.AttachmentSource{large{"a"}, large{"b"}}, memory); err == nil || !strings.Contains(err.Error(), "67108864") || !strings.Contains(err.Error(), "attachment b") {
		t.Errorf("too large together: %v", err)
	}
	_, err = w.take(t, []snapshot.AttachmentSource{large{"a"}, large{"a"}}, memory)
	require.ErrorContains(t, err, "two attachments", "two of one name")
	for _, name := range namesIn(t, memory) {
		if strings.Contains(name, "/full/") {
			t.Errorf("%s was stored", name)
		}
	}
}

// Nothing of an attachment is readable in the repository.
func TestAttachmentIsSealed(t *testing.T) {
	w := newWorld(t)
	memory := sinktest.NewMemory()
	_, err := w.take(t, sources(t, newPKI(t)), memory)
	require.NoError(t, err)
	for _, name := range namesIn(t, memory) {
		data, err := sinks.Get(t.Context(), memory, name, 1<<30)
		require.NoError(t, err)
		for _, secret := range []string{"its key", "server.crt", "ca.key"} {
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("%s shows %q", name, secret)
			}
		}
	}
}
