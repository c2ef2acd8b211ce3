package client

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// Defaults of Config. The first five are etcdctl's own.
const (
	DefaultEndpoint         = "127.0.0.1:2379"
	DefaultDialTimeout      = 2 * time.Second
	DefaultCommandTimeout   = 5 * time.Second
	defaultKeepAliveTime    = 2 * time.Second
	defaultKeepAliveTimeout = 6 * time.Second

	// DefaultStallTimeout is how long a snapshot stream may bring no byte.
	// A member that is busy with a large commit pauses for seconds; half a
	// minute without a byte is no pause, and the stream holds a read
	// transaction that makes the member's database grow.
	DefaultStallTimeout = 30 * time.Second
	// defaultMinStreamRate is how many bytes a second a snapshot stream has to
	// bring: no database of a size that matters gets through at less, and the
	// read transaction does the same harm as in silence.
	defaultMinStreamRate = 16 << 10
	// defaultCatchUpTimeout is how long WaitApplied waits for a follower.
	defaultCatchUpTimeout = 30 * time.Second
)

// Config says how to reach a cluster. Names and meanings are etcdctl's.
// The zero value asks 127.0.0.1:2379 in plain text.
type Config struct {
	// Endpoints are client URLs (http, https, unix, unixs) or host:port. Empty
	// is DefaultEndpoint.
	Endpoints []string
	// DiscoverEndpoints adds the client URLs of the other members, as the
	// cluster advertises them, to each Survey.
	DiscoverEndpoints bool

	// CACert, Cert and Key are PEM files; they are read again at each
	// handshake, so renewed certificates need no restart.
	CACert, Cert, Key string
	// ServerName is the name that the server's certificate must carry, where it
	// is not the endpoint's host.
	ServerName string
	// InsecureSkipTLSVerify accepts any certificate.
	InsecureSkipTLSVerify bool
	// SecureTransport asks for TLS to endpoints without a scheme even where no
	// TLS file is named: etcdctl's --insecure-transport=false.
	SecureTransport bool

	// User and Password log in with etcd's own authentication; Token is a JWT
	// used instead.
	User, Password, Token string

	// DialTimeout bounds one attempt to connect, CommandTimeout one short call
	// (a status, a barrier, a login). Zero is the default.
	DialTimeout, CommandTimeout time.Duration
	// KeepAliveTime and KeepAliveTimeout find connections that died silently.
	// Below 10 s the transport uses 10 s. Zero is the default.
	KeepAliveTime, KeepAliveTimeout time.Duration
	// StallTimeout bounds the silence on a snapshot stream, CatchUpTimeout a
	// WaitApplied. Zero is the default.
	StallTimeout, CatchUpTimeout time.Duration
	// MinStreamRate is in bytes a second, on average over a StallTimeout of
	// waiting: a stream that brings less has stalled as well. Zero is the default.
	MinStreamRate int64

	// Logger hears what is noteworthy and no error; nil is allowed.
	Logger *slog.Logger
}

// SplitUser takes "name:password" apart as etcdctl does; without a colon the
// password is empty.
func SplitUser(user string) (name, password string) {
	name, password, _ = strings.Cut(user, ":")
	return name, password
}

func (c Config) withDefaults() Config {
	if len(c.Endpoints) == 0 {
		c.Endpoints = []string{DefaultEndpoint}
	}
	orDefault(&c.DialTimeout, DefaultDialTimeout)
	orDefault(&c.CommandTimeout, DefaultCommandTimeout)
	orDefault(&c.KeepAliveTime, defaultKeepAliveTime)
	orDefault(&c.KeepAliveTimeout, defaultKeepAliveTimeout)
	orDefault(&c.StallTimeout, DefaultStallTimeout)
	orDefault(&c.CatchUpTimeout, defaultCatchUpTimeout)
	orDefault(&c.MinStreamRate, defaultMinStreamRate)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T time.Duration | int64](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

func (c Config) validate() error {
	for name, d := range map[string]time.Duration{
		"dial-timeout": c.DialTimeout, "command-timeout": c.CommandTimeout,
		"keepalive-time": c.KeepAliveTime, "keepalive-timeout": c.KeepAliveTimeout,
		"stall timeout": c.StallTimeout, "catch-up timeout": c.CatchUpTimeout,
	} {
		if d < 0 {
			return fmt.Errorf("etcd client: %s is negative (%s)", name, d)
		}
	}
	if c.MinStreamRate < 0 {
		return fmt.Errorf("etcd client: the least rate of a snapshot stream is negative (%d)", c.MinStreamRate)
	}
	switch {
	case (c.Cert == "") != (c.Key == ""):
		return errors.New("etcd client: a client certificate needs both --cert and --key")
	case c.Token != "" && (c.User != "" || c.Password != ""):
		return errors.New("etcd client: a token and a user are given; use one of them")
	case c.User == "" && c.Password != "":
		return errors.New("etcd client: a password without a user; add --user")
	case c.User != "" && c.Password == "":
		return fmt.Errorf("etcd client: no password for user %q; give --password, --user %s:PASSWORD or ETCDCTL_PASSWORD", c.User, c.User)
	}
	return nil
}

// wantsTLS reports whether an endpoint without a scheme is asked with TLS.
func (c Config) wantsTLS() bool {
	return c.SecureTransport || c.InsecureSkipTLSVerify ||
		c.CACert != "" || c.Cert != "" || c.ServerName != ""
}

// ConfigFromEnv reads the ETCDCTL_ variables that etcdctl reads, through
// getenv (os.Getenv). Variables that choose how etcdctl prints are left alone;
// one that is not supported or not understood is an error, since going on
// without it would ask another cluster, or with less security, than meant.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	env := envReader{getenv: getenv}
	c := Config{
		CACert:                env.text("CACERT"),
		Cert:                  env.text("CERT"),
		Key:                   env.text("KEY"),
		InsecureSkipTLSVerify: env.flag("INSECURE_SKIP_TLS_VERIFY", false),
		SecureTransport:       !env.flag("INSECURE_TRANSPORT", true),
		User:                  env.text("USER"),
		Password:              env.text("PASSWORD"),
		Token:                 env.text("AUTH_JWT_TOKEN"),
		DialTimeout:           env.duration("DIAL_TIMEOUT"),
		CommandTimeout:        env.duration("COMMAND_TIMEOUT"),
		KeepAliveTime:         env.duration("KEEPALIVE_TIME"),
		KeepAliveTimeout:      env.duration("KEEPALIVE_TIMEOUT"),
	}
	if list := env.text("ENDPOINTS"); list != "" {
		for endpoint := range strings.SplitSeq(list, ",") {
			c.Endpoints = append(c.Endpoints, strings.TrimSpace(endpoint))
		}
	}
	// As in etcdctl, a name may hold a colon once the password is given apart.
	if c.Password == "" {
		c.User, c.Password = SplitUser(c.User)
	}
	for _, name := range []string{"DISCOVERY_SRV", "DISCOVERY_SRV_NAME"} {
		if env.text(name) != "" && env.err == nil {
			env.err = fmt.Errorf("ETCDCTL_%s is set, and endpoints are not looked up in DNS here: unset it and name them in ETCDCTL_ENDPOINTS or --endpoints", name)
		}
	}
	return c, env.err
}

// envReader keeps the first error, so that the reading stays one list.
type envReader struct {
	getenv func(string) string
	err    error
}

func (e *envReader) text(name string) string { return e.getenv("ETCDCTL_" + name) }

func (e *envReader) flag(name string, unset bool) bool {
	text := e.text(name)
	if text == "" {
		return unset
	}
	v, err := strconv.ParseBool(text)
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("ETCDCTL_%s=%q: want true or false", name, text)
	}
	return v
}

func (e *envReader) duration(name string) time.Duration {
	text := e.text(name)
	if text == "" {
		return 0
	}
	v, err := time.ParseDuration(text)
	if (err != nil || v <= 0) && e.err == nil {
		e.err = fmt.Errorf("ETCDCTL_%s=%q: want a duration above zero, such as 5s", name, text)
	}
	return v
}
