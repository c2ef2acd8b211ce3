package sources

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/store/storetest"
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
	s := survivorsOf(c, 0)[0]
	require.ErrorIs(t, WriteSummary(t.Context(), io.Discard, s, SummaryOptions{}), restore.ErrInUse)
	directory, err := supervisor.NewMember(supervisor.MemberConfig{DataDir: s.DataDir, ServiceConfig: supervisor.ServiceConfig{Kind: supervisor.None}}, "")
	require.NoError(t, err)
	err = directory.Stopped(t.Context())
	require.ErrorIs(t, err, supervisor.ErrRuns)
	require.ErrorContains(t, err, "(etcd")
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
	source := sourceOf(t, p, p.Chosen)
	if got := state(t, RebuildRequest{Source: source, Places: bring(t, source, both...)}).Recipe.Revision; got < acked {
		t.Errorf("revision %d was rebuilt, %d was acknowledged", got, acked)
	}
	alone := decide(t, surveyed(t, both[0]), DecideRequest{})
	if alone.Proven || !strings.Contains(alone.Why, "refused") {
		t.Errorf("an isolated leader alone: %+v", alone.Why)
	}
}
