package client_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

// dial waits for a machine that stands still, unless the test is about how long is waited.
func dial(t *testing.T, config client.Config) *client.Client {
	t.Helper()
	config.CommandTimeout = cmp.Or(config.CommandTimeout, time.Minute)
	cli, err := client.Dial(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { cli.Close() })
	return cli
}

func survey(t *testing.T, cli *client.Client) client.Survey {
	t.Helper()
	s, err := cli.Survey(t.Context())
	require.NoError(t, err)
	return s
}

// led is survey, once the members agree on a leader: on a busy machine there may be an
// election at any time.
func led(t *testing.T, cli *client.Client) (s client.Survey) {
	t.Helper()
	storetest.Eventually(t, "the members agree on a leader", func() error {
		s = survey(t, cli)
		leaders, leader := 0, s.Members[0].Leader
		for _, m := range s.Members {
			if m.IsLeader {
				leaders++
			}
			if m.Err == nil && m.Leader != leader {
				leader = 0
			}
		}
		if leaders != 1 || leader == 0 {
			return fmt.Errorf("no leader that all follow: %+v", s)
		}
		return nil
	})
	return s
}

func barrier(t *testing.T, cli *client.Client, s client.Survey) client.Barrier {
	t.Helper()
	b, err := cli.Barrier(t.Context(), s)
	require.NoError(t, err)
	return b
}

// readAll reads a snapshot stream to its end and checks its trailer.
func readAll(t *testing.T, cli *client.Client, member client.MemberStatus) []byte {
	t.Helper()
	stream, err := cli.Stream(t.Context(), member)
	require.NoError(t, err)
	defer stream.Close()
	var all bytes.Buffer
	for {
		blob, err := stream.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		all.Write(blob)
	}
	if stream.Remaining() != 0 {
		t.Errorf("%d bytes remain; %d were read", stream.Remaining(), all.Len())
	}
	database, trailer := all.Bytes()[:all.Len()-sha256.Size], all.Bytes()[all.Len()-sha256.Size:]
	if sum := sha256.Sum256(database); !bytes.Equal(sum[:], trailer) || len(database)%512 != 0 {
		t.Errorf("the trailer of %d bytes does not match", all.Len())
	}
	return database
}

// The whole client side, against three real members of each version.
func TestClientWithEachVersion(t *testing.T) {
	for _, version := range storetest.Some(storetest.Versions()...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3})
			filled := c.Fill(t, storetest.Load{Keys: 500, Deletes: 100, Leases: 2})
			t.Run("survey", func(t *testing.T) { checkSurvey(t, c) })
			t.Run("read", func(t *testing.T) { checkRead(t, c, filled) })
			t.Run("isolated", func(t *testing.T) { checkIsolated(t, c) })
		})
	}
}

func checkSurvey(t *testing.T, c *storetest.Cluster) {
	again := strings.Replace(c.Endpoints()[0], "127.0.0.1", "localhost", 1)
	cli := dial(t, client.Config{Endpoints: append(c.Endpoints(), again, "http://127.0.0.1:1")})
	s := led(t, cli)
	if len(s.Members) != 4 || len(s.Membership) != 3 || s.MembershipErr != nil || s.ClusterID == 0 {
		t.Fatalf("got %+v", s)
	}
	if got := s.Members[0].Endpoints; !slices.Equal(got, []string{c.Endpoints()[0], again}) {
		t.Errorf("one member's two endpoints: %v", got)
	}
	if err := s.Members[3].Err; !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("an endpoint where nothing listens: %v", err)
	}
	for i, m := range s.Members[:3] {
		if m.Name != c.Member(i).Name || m.IsLearner || !strings.HasPrefix(m.Version, c.Version()) || m.DBSize == 0 || m.Revision == 0 {
			t.Errorf("got %+v", m)
		}
	}

	// One endpoint is enough to find the others, when that is asked for.
	discovering := dial(t, client.Config{Endpoints: c.Endpoints()[:1], DiscoverEndpoints: true})
	if s := survey(t, discovering); len(s.Members) != 3 || s.Members[2].Name == "" {
		t.Errorf("discovered %+v", s.Members)
	}
	if s := survey(t, dial(t, client.Config{Endpoints: c.Endpoints()[:1]})); len(s.Members) != 1 {
		t.Errorf("not asked to discover, and got %+v", s.Members)
	}
}

func checkRead(t *testing.T, c *storetest.Cluster, filled *storetest.Filled) {
	cli := dial(t, c.ClientConfig())
	s := led(t, cli)
	writer := storetest.StartWriter(t, c.Client(t), "/during/")
	writer.WaitFor(t, 50)
	// What was acknowledged before the barrier is at or before it.
	before := writer.Acknowledged()
	b := barrier(t, cli, s)
	if last := before[len(before)-1].Revision; b.Revision < last {
		t.Errorf("barrier at revision %d; %d was acknowledged before", b.Revision, last)
	}
	if b.Index == 0 || b.Term == 0 || b.Member.MemberID == 0 {
		t.Errorf("got %+v", b)
	}
	list := cli.Candidates(s, b)
	if len(list) != 3 || list[0].IsLeader || list[1].IsLeader || !list[2].IsLeader {
		t.Errorf("candidates %v", list)
	}
	for _, m := range list {
		require.NoError(t, cli.WaitApplied(t.Context(), m, b))
	}
	database := readAll(t, cli, list[0])
	if key := []byte(before[len(before)-1].Key); !bytes.Contains(database, key) {
		t.Errorf("the snapshot lacks %s, acknowledged before the barrier", key)
	}
	writer.Stop()

	b = barrier(t, cli, s)
	var hashes []client.HashKV
	for _, m := range list {
		require.NoError(t, cli.WaitApplied(t.Context(), m, b))
		h, err := cli.HashKV(t.Context(), m, b.Revision)
		require.NoError(t, err)
		if h.Hash == 0 || h.HashRevision != b.Revision {
			t.Errorf("hash %+v", h)
		}
		h.Revision = 0 // the member's own, when it answered: a lease may have ended since
		hashes = append(hashes, h)
		n, err := cli.CountKeys(t.Context(), m, filled.Revision)
		if err != nil || n != int64(len(filled.Keys)) {
			t.Errorf("%d keys, %v; want %d", n, err, len(filled.Keys))
		}
	}
	if hashes[0] != hashes[1] || hashes[1] != hashes[2] {
		t.Errorf("hashes differ: %+v", hashes)
	}
}

// A member that is cut off from its quorum is refused as the only endpoint,
// be it a follower or the old leader; of three endpoints another one serves.
func checkIsolated(t *testing.T, c *storetest.Cluster) {
	leader := slices.IndexFunc(led(t, dial(t, c.ClientConfig())).Members, func(m client.MemberStatus) bool { return m.IsLeader })
	for what, cut := range map[string]int{"follower": (leader + 1) % 3, "leader": leader} {
		c.Isolate(t, cut)
		rest := storetest.StartWriter(t, c.Client(t, (cut+1)%3, (cut+2)%3), "/while-isolated/"+what) // tries until they have a leader
		rest.WaitFor(t, 1)
		rest.Stop()

		alone := c.ClientConfig()
		alone.Endpoints = c.Endpoints()[cut : cut+1]
		s := survey(t, dial(t, alone))
		alone.CommandTimeout = time.Second
		began := time.Now()
		_, err := dial(t, alone).Barrier(t.Context(), s)
		if !errors.Is(err, client.ErrNoBarrier) || !strings.Contains(err.Error(), c.Member(cut).Name) {
			t.Errorf("isolated %s as the only endpoint: %v", what, err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("isolated %s: refusing took %s", what, took)
		}
		checkListOfIsolated(t, c, cut)

		config := c.ClientConfig()
		config.CatchUpTimeout = 500 * time.Millisecond
		cli := dial(t, config)
		s = survey(t, cli)
		if len(s.Members) != 3 || s.Members[cut].Err != nil {
			t.Fatalf("survey %+v", s)
		}
		b := barrier(t, cli, s)
		if b.Member.MemberID == s.Members[cut].MemberID {
			t.Errorf("the isolated %s gave a barrier", what)
		}
		list := cli.Candidates(s, b)
		if len(list) == 0 || list[len(list)-1].MemberID != s.Members[cut].MemberID {
			t.Errorf("the isolated %s is not the last candidate: %v", what, list)
		}
		require.ErrorIs(t, cli.WaitApplied(t.Context(), s.Members[cut], b), client.ErrBehind, "the isolated %s", what)
		c.Rejoin(cut)
		c.WaitReady(t)
	}
}

// checkListOfIsolated pins down what the barrier relies on: an isolated member never
// answers a linearizable member list.
func checkListOfIsolated(t *testing.T, c *storetest.Cluster, cut int) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Client(t, cut).MemberList(ctx); err == nil {
		t.Errorf("an isolated member of %s answers a linearizable member list", c.Version())
	}
}

func TestBarrierEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cli := dial(t, client.Config{Endpoints: []string{"http://127.0.0.1:1"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := cli.Barrier(ctx, client.Survey{Members: []client.MemberStatus{{Endpoint: "http://127.0.0.1:1", MemberID: 1}}})
	require.ErrorIs(t, err, context.Canceled)
}

func TestMixedClusters(t *testing.T) {
	t.Parallel()
	var endpoints []string
	for _, name := range []string{"one", "two"} {
		endpoints = append(endpoints, startMember(t, memberConfig(t, name)).Endpoints()...)
	}
	_, err := dial(t, client.Config{Endpoints: endpoints}).Survey(t.Context())
	var mixed *client.MixedClustersError
	if !errors.As(err, &mixed) {
		t.Fatalf("got %v", err)
	}
	for _, e := range endpoints {
		if !strings.Contains(err.Error(), e+" is of cluster ") {
			t.Errorf("%v does not name %s", err, e)
		}
	}
}
