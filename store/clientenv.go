package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ClientConfigFromEnv reads the ETCDCTL_ variables that etcdctl reads, through
// getenv (os.Getenv). Variables that choose how etcdctl prints are left alone;
// one that cannot be honoured or understood is an error, since going on
// without it would ask another cluster, or with less security, than meant.
func ClientConfigFromEnv(getenv func(string) string) (ClientConfig, error) {
	env := envReader{getenv: getenv}
	c := ClientConfig{
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
