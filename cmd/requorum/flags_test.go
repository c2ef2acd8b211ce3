package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// A password is that of the user who is named where it is: one beside another user's name
// is not sent along.
func TestUser(t *testing.T) {
	for _, c := range []struct{ env, args, user, password string }{
		{"ETCDCTL_USER=root:secret", "", "root", "secret"},
		{"ETCDCTL_USER=root ETCDCTL_PASSWORD=secret", "", "root", "secret"},
		{"ETCDCTL_USER=root:secret", "--user=alice:hers", "alice", "hers"},
		{"ETCDCTL_USER=root:secret", "--user=alice --password=hers", "alice", "hers"},
		{"ETCDCTL_PASSWORD=hers", "--user=alice", "alice", "hers"},
		{"ETCDCTL_USER=root:secret", "--user=alice", "alice", ""},
		{"ETCDCTL_USER=root:secret", "--user=root", "root", "secret"},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		var conn connFlags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		conn.addFlags(flags)
		require.NoError(t, flags.Parse(strings.Fields(c.args)))
		cfg, err := conn.config(&globals{environment: environment{getenv: func(name string) string { return env[name] }, stdin: strings.NewReader(""), stderr: &strings.Builder{}}})
		if cfg.User != c.user || cfg.Password != c.password || (err == nil) != (c.password != "") {
			t.Errorf("%s, %s: user %q, password %q, %v", c.env, c.args, cfg.User, cfg.Password, err)
		}
	}
}
