package host

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/logtest"
)

// keptIn makes a repository with a full snapshot and its log, encrypted to a key, and
// signed where there are keys for that.
func keptIn(t *testing.T, dir string, key age.Recipient, signs signing.Keys) (full, log Stored) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	sink, err := disk.New(dir)
	must(err)
	repo, err := repository.Init(t.Context(), repository.WithKeys(sink, signs), time.Now())
	must(err)
	id := repository.TimelineID{ClusterID: 7, N: 1}
	must(repo.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: id, Created: time.Now(), Reason: "test"}))
	entries := logtest.Begin(t)
	options := codec.Options{Recipients: []age.Recipient{key}}
	image, _ := logtest.Database(t, entries)
	m, err := snapshot.Store(t.Context(), snapshot.StoreRequest{Repo: repo, Timeline: id, Image: image, Started: time.Now(), Version: "3.6.0", Codec: options, Tool: "test"})
	must(err)
	logtest.ArchiveAll(t, repo, id, entries, 2, options)
	return Stored{Timeline: id, Backup: m.ID}, Stored{Timeline: id}
}

// readableTo is what a host says of pieces.
func readableTo(t *testing.T, h *host, pieces ...Stored) []Repository {
	t.Helper()
	all, err := h.readable(t.Context(), &pieces, nil)
	require.NoError(t, err)
	return all.([]Repository)
}

func identity(t *testing.T) (text string, key age.Recipient) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return identity.String(), identity.Recipient()
}

// TestReadable: a host says what it can read of its repositories, and why not of
// others: a key that is missing or another one, a folder that is not there, a server
// that does not answer.
func TestReadable(t *testing.T) {
	file, key := identity(t)
	another, _ := identity(t)
	dir := t.TempDir()
	full, log := keptIn(t, dir, key, signing.Keys{})
	none := filepath.Join(t.TempDir(), "none")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	require.NoError(t, err)
	defer silent.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	for _, c := range []struct {
		what, repository string
		identities       []string
		full, log        string // why they cannot be read; empty where they can
	}{
		{"all is there", dir, []string{file}, "", ""},
		{"no key", dir, nil, "no identity was given", "no identity was given"},
		{"another key", dir, []string{another}, "does not open it", "does not open it"},
		{"no key at all", dir, []string{"none"}, "identity-files", "identity-files"},
		{"no folder", none, []string{file}, "no repository there", "no repository there"},
		{"no answer", "s3://bucket/prefix?region=x&endpoint=http://" + silent.Addr().String(), nil, "no answer in", "no answer in"},
	} {
		askFor := 10 * time.Second
		if c.what == "no answer" {
			askFor = 300 * time.Millisecond
		}
		h := &host{process: quietly(askFor), Config: &Config{Repositories: []string{c.repository}, Identities: c.identities}}
		got := readableTo(t, h, full, log)
		if len(got) != 1 {
			t.Fatalf("%s: %+v", c.what, got)
		}
		for piece, want := range map[Stored]string{full: c.full, log: c.log} {
			if why := got[0].Unread([]Stored{piece}); (why == "") != (want == "") || !strings.Contains(why, want) {
				t.Errorf("%s: %s: %q, want %q", c.what, piece, why, want)
			}
		}
	}
	// What lies in another repository only is absent, which no key mends.
	empty := t.TempDir()
	sink, err := disk.New(empty)
	if err == nil {
		_, err = repository.Init(t.Context(), sink, time.Now())
	}
	require.NoError(t, err)
	h := &host{process: quietly(time.Minute), Config: &Config{Repositories: []string{empty}}}
	got := readableTo(t, h, full, log)
	if len(got[0].Lacks) != 2 || !got[0].Lacks[0].Absent || !got[0].Lacks[1].Absent || got[0].Unreadable() != "" {
		t.Errorf("an empty one: %+v", got)
	}
}

// TestReadableAmongForeign: what others add to a log keeps no host from reading it.
func TestReadableAmongForeign(t *testing.T) {
	file, key := identity(t)
	keys, dir := sinktest.NewKeys(t), t.TempDir()
	full, log := keptIn(t, dir, key, keys)
	sink, err := disk.New(dir)
	require.NoError(t, err)
	defer sink.Close()
	for n := range 20 {
		later := repository.SegmentName{Timeline: log.Timeline, First: uint64(1000 + n)}
		_, err := sinks.Put(t.Context(), sink, later.String(), []byte("forged"), sinks.CreateOptions{})
		require.NoError(t, err)
	}
	h := &host{process: quietly(10 * time.Second), Config: &Config{Repositories: []string{dir}, Identities: []string{file}, Trust: keys.Trust.Files()}}
	got := readableTo(t, h, full, log)
	if why := got[0].Unread([]Stored{full, log}); why != "" {
		t.Error(why)
	}
	h.Config.Trust = sinktest.NewKeys(t).Trust.Files()
	got = readableTo(t, h, full, log)
	if why := got[0].Unread([]Stored{full}); !strings.Contains(why, "is not among those in") {
		t.Errorf("with another's trust: %q", why)
	}
	if why := got[0].Unread([]Stored{log}); why == "" {
		t.Error("with another's trust the log is read")
	}
}

// TestStored: a plan's pieces are found in the same repository under another URL, and
// under the numbers that a survey of several repositories gives to their archives.
func TestStored(t *testing.T) {
	file, key := identity(t)
	dir := t.TempDir()
	full, log := keptIn(t, dir, key, signing.Keys{})
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	cfg := &Config{Repositories: []string{filepath.Join(t.TempDir(), "none"), link}, Identities: []string{file}}
	s := &rebuilding{host: &host{process: quietly(time.Minute), Config: cfg}}
	owner := sources.ArchivePrefix + log.Timeline.String() + "@2"
	found, err := s.stored(t.Context(), sources.Source{
		Base: sources.Base{Owner: owner, Backup: full.Backup, Timeline: full.Timeline, Repository: "file://" + dir},
		Log:  []sources.Piece{{Owner: owner, First: 1, Last: 2}}, Index: 2,
	})
	if err != nil || found.String() != "file://"+link || found.bytes <= found.base || found.base == 0 || len(s.keys) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	require.NoError(t, closeAll(s.repositories))
}
