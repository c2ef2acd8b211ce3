package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// The commands in docs/format.md check the signature of every kind of object, with
// ssh-keygen and jq alone; not as one of another kind, and not with a byte changed.
func TestSignaturesByHand(t *testing.T) {
	for _, tool := range []string{"ssh-keygen", "jq"} {
		storetest.Program(t, tool)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "format.md"))
	require.NoError(t, err)
	_, commands, found := strings.Cut(string(text), "for the object called `$d` of the kind `$kind`")
	require.True(t, found)
	_, commands, _ = strings.Cut(commands, "```sh\n")
	commands, _, _ = strings.Cut(commands, "```")

	ctx, dir := t.Context(), t.TempDir()
	place, key := filepath.Join(dir, "repo"), filepath.Join(dir, "key")
	must := func(args ...string) {
		t.Helper()
		if e := run(t, append(args, "--repo", "file://"+place, "--trust", filepath.Join(dir, "trust"), "--signing-key", key)...); e.Code != exitOK {
			t.Fatal(e)
		}
	}
	sinktest.WriteKey(t, key)
	require.NoError(t, os.Rename(key+".trust", filepath.Join(dir, "trust")))
	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	endpoints := c.Endpoints()[0]
	must("backup", "--endpoints", endpoints)
	must("backup", "--endpoints", endpoints)
	putSome(t, c, "/some/", 3)
	must("agent", "--once", "--data-dir", c.Member(0).DataDir, "--endpoints", endpoints, "--spool-dir", filepath.Join(dir, "spool"))
	must("verify", "latest", "--level", "checksum")
	must("prune", "--keep-last", "1", "--grace", "0s")
	must("pin", "latest", "--reason", "kept")

	// What takes an agent, a recovery or a long time is written as they do.
	keys, err := signing.Read(key, filepath.Join(dir, "trust"), nil)
	require.NoError(t, err)
	sink, err := disk.New(place)
	require.NoError(t, err)
	repo, err := repository.Open(ctx, repository.WithKeys(sink, keys))
	require.NoError(t, err)
	ids, err := repo.TimelineIDs(ctx)
	require.NoError(t, err)
	const slot = "20260102T010000Z"
	id, now := ids[0], time.Now()
	require.NoError(t, errors.Join(
		repo.Supersede(ctx, repository.Superseded{Timeline: id, By: repository.TimelineID{ClusterID: 0xab, N: 1}, Reason: "a recovery", Created: now}),
		repo.WriteJob(ctx, repository.JobName{Job: "full", Slot: slot}, repository.JobRecord{Job: "full", Slot: slot, Attempt: 1, OK: true}),
		repo.WriteJob(ctx, repository.JobName{Job: "prune", Slot: slot, Kind: repository.JobFailed}, repository.JobRecord{Job: "prune", Slot: slot, Attempt: 1}),
		repo.WriteJob(ctx, repository.JobName{Job: "full", Slot: slot, Kind: repository.JobBegun, Attempt: 1}, repository.JobRecord{Job: "full", Slot: slot, Attempt: 1}),
		segment.WriteMark(ctx, repo, id, raftlog.Mark{Index: 1, Term: 1, Time: now, Member: 1}),
		segment.WriteGap(ctx, repo, segment.GapRecord{Timeline: id, First: 1 << 30, Last: 1<<30 + 1, Reason: "lost", Member: snapshot.ID(1), Created: now}),
	))

	// verify runs the documented commands in a copy of the repository.
	verify := func(folder, name, kind string) (string, bool) {
		script := strings.NewReplacer("/tmp/", dir+"/", "-f trust", "-f "+dir+"/trust").Replace(commands)
		cmd := exec.CommandContext(ctx, "sh", "-c", "set -e\n"+script)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "d="+name, "kind="+kind)
		out, err := cmd.CombinedOutput()
		return string(out), err == nil
	}
	checked := map[string]int{}
	for o, err := range sink.List(ctx, "", "") {
		require.NoError(t, err)
		kind := kindByFormat(o.Name)
		if kind == "" {
			continue
		}
		checked[kind]++
		if out, ok := verify(place, o.Name, kind); !ok || !strings.Contains(out, `Good "requorum-`+kind+`" signature for ops@example.com`) {
			t.Errorf("%s: %s", o.Name, out)
		}
		if checked[kind] > 1 {
			continue
		}
		if out, ok := verify(place, o.Name, "canary"); kind != "segment" && ok {
			t.Errorf("%s is one of another kind: %s", o.Name, out)
		}
		data, err := os.ReadFile(filepath.Join(place, o.Name))
		require.NoError(t, err)
		at := bytes.LastIndex(data[:min(len(data), segment.HeaderSize)], []byte(": ")) // in the body
		changed := t.TempDir()
		marker, err := os.ReadFile(filepath.Join(place, repository.MarkerName))
		require.NoError(t, err)
		data[at+1] = '\t' // no other meaning, another byte
		require.NoError(t, errors.Join(
			os.MkdirAll(filepath.Dir(filepath.Join(changed, o.Name)), 0o700),
			os.WriteFile(filepath.Join(changed, repository.MarkerName), marker, 0o600),
			os.WriteFile(filepath.Join(changed, o.Name), data, 0o600)))
		if out, ok := verify(changed, o.Name, kind); ok {
			t.Errorf("%s with a byte changed: %s", o.Name, out)
		}
	}
	for _, kind := range []string{"timeline", "superseded", "manifest", "segment", "mark", "gap", "verdict", "pruned", "pin", "job", "repository"} {
		if checked[kind] == 0 {
			t.Errorf("no %s was checked: %v", kind, checked)
		}
	}
}

// kindByFormat is the kind of an object as docs/format.md names it; empty for one that has
// no signature of its own.
func kindByFormat(name string) string {
	parts := strings.Split(name, "/")
	switch first := parts[0]; first {
	case repository.MarkerName:
		return "repository"
	case "timelines", "verdicts", "pins", "jobs":
		return strings.TrimSuffix(first, "s")
	case "pruned":
		return first
	case "scratch", ".probe":
		return ""
	}
	second := parts[1]
	switch {
	case second == "full" && parts[3] == "manifest.json":
		return "manifest"
	case second == "full":
		return ""
	case second == "marks", second == "gaps":
		return strings.TrimSuffix(second, "s")
	case strings.HasPrefix(second, "l"):
		return "segment"
	case strings.HasPrefix(second, "superseded"):
		return "superseded"
	}
	return second
}
