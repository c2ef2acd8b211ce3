package client_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

// With authentication on: who may do what, in words; a login that the member
// forgot is renewed; a learner, which nobody can log in to, serves with the
// voter's token and is the first candidate.
func TestAuthAndLearner(t *testing.T) {
	for _, version := range []string{"3.5", "3.7"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version})
			c.Fill(t, storetest.Load{Keys: 10, Users: 1})
			learner := c.AddLearner(t)
			checkLogin(t, c)

			config := c.ClientConfig()
			cli := dial(t, config)
			s := survey(t, cli)
			b := barrier(t, cli, s)
			list := cli.Candidates(s, b)
			if len(list) != 2 || !list[0].IsLearner || list[0].Endpoint != c.Member(learner).ClientURL {
				t.Fatalf("candidates %v", list)
			}
			require.NoError(t, cli.WaitApplied(t.Context(), list[0], b))
			readAll(t, cli, list[0])
			_, err := cli.HashKV(t.Context(), list[1], 0)
			require.NoError(t, err)

			only := config
			only.Endpoints = []string{c.Member(learner).ClientURL}
			_, err = client.Dial(t.Context(), only)
			require.ErrorContains(t, err, "learner", "logging in to a learner alone")

			// A restarted member has forgotten the token.
			c.Kill(0)
			c.Restart(t, 0)
			c.WaitReady(t)
			s = survey(t, cli)
			if i := slices.IndexFunc(s.Members, func(m client.MemberStatus) bool { return m.Err != nil }); i >= 0 {
				t.Errorf("after a restart: %v", s.Members[i].Err)
			}
			readAll(t, cli, s.Members[0])
		})
	}
}

func checkLogin(t *testing.T, c *storetest.Cluster) {
	secret := "not-the-password"
	config := c.ClientConfig()
	config.Password = secret
	_, err := client.Dial(t.Context(), config)
	if !errors.Is(err, client.ErrLogin) || !strings.Contains(err.Error(), "password is wrong") || strings.Contains(err.Error(), secret) {
		t.Errorf("wrong password: %v", err)
	}

	config.User, config.Password = "", ""
	_, err = dial(t, config).Survey(t.Context())
	if !errors.Is(err, client.ErrLogin) || !strings.Contains(err.Error(), "authentication on") {
		t.Errorf("no user: %v", err)
	}

	config.User, config.Password = "user0", "password-of-user0"
	cli := dial(t, config)
	s := survey(t, cli)
	barrier(t, cli, s)
	if _, err := cli.Stream(t.Context(), s.Members[0]); !errors.Is(err, client.ErrPermission) || !strings.Contains(err.Error(), "root role") {
		t.Errorf("a snapshot without the root role: %v", err)
	}
	_, err = cli.HashKV(t.Context(), s.Members[0], 0)
	require.ErrorIs(t, err, client.ErrPermission, "HashKV without the root role")
}

// Credentials for a cluster without authentication are no error, as in etcdctl.
func TestCredentialsWithoutAuth(t *testing.T) {
	t.Parallel()
	member := startMember(t, memberConfig(t, "one"))
	cli := dial(t, client.Config{Endpoints: member.Endpoints(), User: "root", Password: "x"})
	readAll(t, cli, survey(t, cli).Members[0])
}
