package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
)

// survivorsOf names the data directories of some of a cluster's members.
func survivorsOf(c *storetest.Cluster, members ...int) []Survivor {
	var all []Survivor
	for _, i := range members {
		all = append(all, Survivor{Name: c.Member(i).Name, DataDir: c.Member(i).DataDir})
	}
	return all
}

func surveyed(t *testing.T, survivors ...Survivor) *Findings {
	t.Helper()
	return surveyOf(t, SurveyRequest{Summaries: summaries(t, survivors...)})
}

// decide also fails the test for what never may happen.
func decide(t *testing.T, f *Findings, req DecideRequest) *Plan {
	t.Helper()
	p, err := Decide(f, req)
	if err != nil {
		t.Fatalf("%v\n%+v", err, p.Candidates)
	}
	return p
}

func kinds(all []Finding) string {
	var list []string
	for _, f := range all {
		list = append(list, string(f.Kind))
	}
	return strings.Join(list, " ")
}

// rebuild rebuilds what was chosen of a single survivor, and gives its keys.
func rebuild(t *testing.T, p *Plan, survivors []Survivor) snapshot.Facts {
	t.Helper()
	c := p.Candidate(p.Chosen)
	if c.Kind != FromSurvivor {
		t.Fatalf("chosen was %s, of kind %s", c.Name, c.Kind)
	}
	for _, s := range survivors {
		if s.Name != c.Name {
			continue
		}
		h, err := walreplay.OpenDataDir(t.Context(), s.DataDir, s.WALDir)
		require.NoError(t, err)
		defer h.Close()
		o := walreplay.Options{ScratchDir: t.TempDir()}
		point, err := h.Resolve(t.Context(), walreplay.Target{Kind: walreplay.AtIndex, Index: c.LastIndex}, "", o)
		require.NoError(t, err)
		r, err := h.Rebuild(t.Context(), point, o)
		require.NoError(t, err)
		defer r.Close()
		facts, err := r.Facts(t.Context())
		require.NoError(t, err)
		if facts.Revision < c.Revision.AtLeast || facts.Revision > c.Revision.AtMost {
			t.Errorf("%s: revision %d, and the plan said %+v", c.Name, facts.Revision, c.Revision)
		}
		return facts
	}
	t.Fatalf("no survivor is called %s", c.Name)
	return snapshot.Facts{}
}

// dataDirs are those of survivors.
func dataDirs(survivors []Survivor) []string {
	var all []string
	for _, s := range survivors {
		all = append(all, s.DataDir)
	}
	return all
}

// Promise 2 of the design: all members are killed right after the last
// acknowledgement. From three survivors and from any two the plan says proven,
// and what is rebuilt of it holds every acknowledged write; from one it says
// unproven. Promise 3: no survivor's file is changed. Promise 8: the revision is
// raised just where something may be lost.
func TestPromise2KillAllAfterTheLastAcknowledgement(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some(storetest.Versions()...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			rounds := 1
			if storetest.Soak() {
				rounds = 5
			}
			for range rounds {
				killRound(t, version)
			}
		})
	}
}

func killRound(t *testing.T, version string) {
	c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
	c.WaitReady(t)
	w := storetest.StartWriter(t, c.Client(t), "/k/")
	w.WaitFor(t, 150)
	c.KillAll()
	acked := w.Stop()
	last := acked[len(acked)-1].Revision
	bare := copied(t, c, 0, "bare") // its log alone says who the members are
	require.NoError(t, os.Remove(filepath.Join(bare.DataDir, "member", "snap", "db")))
	for _, m := range surveyed(t, bare).Survivors[0].Membership.Members {
		if m.Name == "" || len(m.ClientURLs) == 0 {
			t.Errorf("out of the log alone: %+v", m)
		}
	}
	everybody := survivorsOf(c, 0, 1, 2)
	before := storetest.Fingerprint(t, dataDirs(everybody)...)
	for _, set := range [][]int{{0, 1, 2}, {0, 1}, {0, 2}, {1, 2}, {0}, {1}, {2}} {
		survivors := survivorsOf(c, set...)
		p := decide(t, surveyed(t, survivors...), DecideRequest{DeclareDead: []string{c.Member(0).Name, c.Member(1).Name}})
		if p.Proven != (len(set) > 1) || p.Bump.Raise == p.Proven || p.Why == "" || len(p.Members) != 3 || !p.Fence.Enough {
			t.Errorf("%v: %+v", set, p)
		}
		for _, m := range p.Members {
			if m.Name == "" || len(m.PeerURLs) == 0 || len(m.ClientURLs) == 0 {
				t.Errorf("%v: member %+v", set, m)
			}
		}
		if !p.Proven && set[0] > 0 {
			continue
		}
		facts := rebuild(t, p, survivors)
		if p.Proven && facts.Revision < last {
			t.Errorf("%v: revision %d was rebuilt, and %d was acknowledged", set, facts.Revision, last)
		}
	}
	if !maps.Equal(storetest.Fingerprint(t, dataDirs(everybody)...), before) {
		t.Error("a survivor's file was changed")
	}
}

// A member that runs is refused, with the process that it is, and not with another one
// that only reads its files, as an agent does.
func TestRunningIsRefused(t *testing.T) {
	t.Parallel()
	// It is begun first, so that it is found first.
	reader := exec.Command("sh", "-c", `read -r db; exec 3<"$db"; echo open; read -r end; exit 0`)
	in, err := reader.StdinPipe()
	require.NoError(t, err)
	out, err := reader.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, reader.Start())
	t.Cleanup(func() {
		_ = in.Close()
		require.NoError(t, reader.Wait(), "the reader")
	})
	c := storetest.Start(t, storetest.Options{Version: "3.6"})
	_, err = fmt.Fprintln(in, filepath.Join(survivorsOf(c, 0)[0].DataDir, "member", "snap", "db"))
	require.NoError(t, err)
	_, err = io.ReadFull(out, make([]byte, len("open\n")))
	require.NoError(t, err)
	_, err = Summarize(t.Context(), survivorsOf(c, 0)[0], SummaryOptions{})
	var running *RunningError
	if !errors.As(err, &running) || !errors.Is(err, restore.ErrInUse) || !strings.Contains(running.Process, "(etcd") {
		t.Fatalf("%v", err)
	}
}

// An isolated leader writes into its log what nobody acknowledges. Beside a
// survivor of the others that tail is refused and cut, though it is the longer
// one; alone it cannot be recognized, and the plan says unproven.
func TestRefusedTail(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.6", Members: 3})
	c.WaitReady(t)
	leader := c.Leader(t)
	others := []int{(leader + 1) % 3, (leader + 2) % 3}
	c.CutOffWriting(t, leader)
	client := c.Client(t, others...)
	acked := int64(0)
	storetest.Eventually(t, "the others acknowledge", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := client.Put(ctx, "acknowledged", "y")
		if err == nil {
			acked = r.Header.Revision
		}
		return err
	})
	c.KillAll()
	both := survivorsOf(c, leader, others[0])
	f := surveyed(t, both...)
	p := decide(t, f, DecideRequest{})
	cut := p.Candidate(c.Member(leader).Name)
	if f.Survivors[0].Log.LastIndex <= f.Survivors[1].Log.LastIndex {
		t.Logf("the isolated leader's log is not the longer one: %d and %d", f.Survivors[0].Log.LastIndex, f.Survivors[1].Log.LastIndex)
	}
	if p.Chosen != both[1].Name || !p.Proven || !strings.Contains(kinds(cut.Findings), string(KindRefused)) || cut.LastIndex >= f.Survivors[0].Log.LastIndex {
		t.Errorf("chosen %s, proven %t, the leader: %+v", p.Chosen, p.Proven, cut)
	}
	if facts := rebuild(t, p, both); facts.Revision < acked {
		t.Errorf("revision %d was rebuilt, %d was acknowledged", facts.Revision, acked)
	}
	alone := decide(t, surveyed(t, both[0]), DecideRequest{})
	if alone.Proven || !strings.Contains(alone.Why, "refused") {
		t.Errorf("an isolated leader alone: %+v", alone.Why)
	}
}
