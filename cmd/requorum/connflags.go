package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/requorum/requorum/store"
)

// connFlags are etcdctl's flags for reaching a cluster. What is not given is
// taken from the ETCDCTL_ variables.
type connFlags struct {
	flags          *pflag.FlagSet
	name           string // of the flag that names the endpoints
	cfg            store.ClientConfig
	endpoints      []string
	user, password string
	insecure       bool
	dial, command  time.Duration
}

func (c *connFlags) addFlags(f *pflag.FlagSet) {
	c.addFlagsAs(f, "endpoints", "etcd's client URLs, separated by commas (default "+store.DefaultEndpoint+", or ETCDCTL_ENDPOINTS)")
}

// addFlagsAs names the endpoints otherwise, for a command that does not always
// talk to a cluster.
func (c *connFlags) addFlagsAs(f *pflag.FlagSet, name, usage string) {
	c.flags, c.name = f, name
	f.StringSliceVar(&c.endpoints, name, nil, usage)
	f.BoolVar(&c.cfg.DiscoverEndpoints, "discover-endpoints", false, "also use the endpoints that the members advertise")
	f.StringVar(&c.cfg.CACert, "cacert", "", "verify etcd's certificate with the CA in this `file`")
	f.StringVar(&c.cfg.Cert, "cert", "", "client certificate `file`")
	f.StringVar(&c.cfg.Key, "key", "", "client key `file`")
	f.BoolVar(&c.insecure, "insecure-transport", true, "use plain text to endpoints without a scheme when no TLS file is given")
	f.BoolVar(&c.cfg.InsecureSkipTLSVerify, "insecure-skip-tls-verify", false, "accept any certificate (for tests only)")
	f.StringVar(&c.user, "user", "", "`name[:password]`; a missing password is asked for on a terminal")
	f.StringVar(&c.password, "password", "", "password of --user; better in ETCDCTL_PASSWORD, where other users cannot see it")
	f.DurationVar(&c.dial, "dial-timeout", store.DefaultDialTimeout, "time to connect")
	f.DurationVar(&c.command, "command-timeout", store.DefaultCommandTimeout, "time for one short request")
}

// connect connects to the cluster. The caller closes the client.
func (c *connFlags) connect(ctx context.Context, g *globals) (*store.Client, error) {
	cfg, err := c.config(g)
	if err != nil {
		return nil, err
	}
	return store.Dial(ctx, cfg)
}

func (c *connFlags) config(g *globals) (store.ClientConfig, error) {
	cfg, err := store.ClientConfigFromEnv(g.getenv)
	if err != nil {
		return cfg, usageError{err}
	}
	override(c.flags, c.name, &cfg.Endpoints, c.endpoints)
	override(c.flags, "cacert", &cfg.CACert, c.cfg.CACert)
	override(c.flags, "cert", &cfg.Cert, c.cfg.Cert)
	override(c.flags, "key", &cfg.Key, c.cfg.Key)
	override(c.flags, "insecure-transport", &cfg.SecureTransport, !c.insecure)
	override(c.flags, "insecure-skip-tls-verify", &cfg.InsecureSkipTLSVerify, c.cfg.InsecureSkipTLSVerify)
	override(c.flags, "dial-timeout", &cfg.DialTimeout, c.dial)
	override(c.flags, "command-timeout", &cfg.CommandTimeout, c.command)
	cfg.DiscoverEndpoints = c.cfg.DiscoverEndpoints
	cfg.StallTimeout = c.cfg.StallTimeout
	cfg.Logger = g.logger()
	if c.flags.Changed("user") {
		user, password := store.SplitUser(c.user)
		cfg.User = user
		if password != "" {
			cfg.Password = password
		}
	}
	override(c.flags, "password", &cfg.Password, c.password)
	if cfg.User != "" && cfg.Password == "" {
		cfg.Password, err = askPassword(g, cfg.User)
	}
	return cfg, err
}

// override sets a value that the user gave.
func override[T any](f *pflag.FlagSet, name string, to *T, value T) {
	if f.Changed(name) {
		*to = value
	}
}

// askPassword asks on a terminal; elsewhere a missing password is an error,
// since nobody would answer.
func askPassword(g *globals, user string) (string, error) {
	file, ok := g.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return "", usageError{fmt.Errorf("no password for user %s: give --user name:password or set ETCDCTL_PASSWORD", user)}
	}
	fmt.Fprintf(g.stderr, "Password of %s: ", user)
	password, err := term.ReadPassword(int(file.Fd()))
	fmt.Fprintln(g.stderr)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return string(password), nil
}
