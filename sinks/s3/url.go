package s3

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parameters are what a URL's query may hold, and how each is read and written.
var parameters = map[string]struct {
	set func(*Config, string) error
	get func(Config) string
}{
	"region":        {text(func(c *Config) *string { return &c.Region }), func(c Config) string { return c.Region }},
	"endpoint":      {text(func(c *Config) *string { return &c.Endpoint }), func(c Config) string { return withoutUser(c.Endpoint) }},
	"ca":            {text(func(c *Config) *string { return &c.CAFile }), func(c Config) string { return c.CAFile }},
	"profile":       {text(func(c *Config) *string { return &c.Profile }), func(c Config) string { return c.Profile }},
	"storage-class": {text(func(c *Config) *string { return &c.StorageClass }), func(c Config) string { return c.StorageClass }},
	"sse":           {text(func(c *Config) *string { return &c.Encryption }), func(c Config) string { return c.Encryption }},
	"kms-key":       {text(func(c *Config) *string { return &c.KMSKey }), func(c Config) string { return c.KMSKey }},
	"object-lock":   {text(func(c *Config) *string { return &c.LockMode }), func(c Config) string { return c.LockMode }},
	"path-style":    {yes(func(c *Config) *bool { return &c.PathStyle }), func(c Config) string { return spell(c.PathStyle) }},
	"insecure":      {yes(func(c *Config) *bool { return &c.Insecure }), func(c Config) string { return spell(c.Insecure) }},
	"retention": {func(c *Config, v string) (err error) {
		c.Retention, err = retention(v)
		return err
	}, func(c Config) string {
		if c.Retention == 0 {
			return ""
		}
		return c.Retention.String()
	}},
}

// ParseURL reads s3://bucket/prefix?parameters. It is strict: what is unknown,
// given twice or empty, contradicts another or holds a secret is an error.
func ParseURL(s string) (Config, error) {
	c, err := parseURL(s)
	if err != nil {
		// Only what stands before the query is repeated: the rest may hold what
		// should not be there.
		head, _, _ := strings.Cut(s, "?")
		if strings.Contains(head, "@") {
			head = "s3://…"
		}
		return Config{}, fmt.Errorf("repository URL %s: %w", head, err)
	}
	return c, nil
}

func parseURL(s string) (Config, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Config{}, errors.New("not a URL; s3://bucket/prefix?region=… is expected")
	}
	if u.User != nil {
		return Config{}, errSecret("a user name or a password")
	}
	if u.Scheme != "s3" || u.Fragment != "" {
		return Config{}, errors.New("s3://bucket/prefix?region=… is expected")
	}
	c := Config{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Config{}, errors.New("what follows the question mark cannot be read: name=value pairs joined by & are expected")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		p, known := parameters[name]
		switch {
		case secretive(name):
			return Config{}, errSecret("the parameter " + name)
		case !known:
			return Config{}, fmt.Errorf("unknown parameter %q; known are %s", name, strings.Join(slices.Sorted(maps.Keys(parameters)), ", "))
		case len(query[name]) > 1:
			return Config{}, fmt.Errorf("parameter %s is given twice", name)
		case query[name][0] == "":
			return Config{}, fmt.Errorf("parameter %s is empty: give it a value or leave it out", name)
		}
		if err := p.set(&c, query[name][0]); err != nil {
			return Config{}, fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	return c, c.check()
}

// String is the URL that ParseURL reads the same Config from. It holds no
// secrets.
func (c Config) String() string {
	q := url.Values{}
	for name, p := range parameters {
		if v := p.get(c); v != "" {
			q.Set(name, v)
		}
	}
	u := url.URL{Scheme: "s3", Host: c.Bucket, RawQuery: q.Encode()}
	if c.Prefix != "" {
		u.Path = "/" + c.Prefix
	}
	return u.String()
}

// withoutUser is an endpoint as it may be shown. One with a user and a
// password is refused when it is opened; the error must not repeat them.
func withoutUser(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.User != nil {
		return ""
	}
	return endpoint
}

func errSecret(what string) error {
	return fmt.Errorf("it holds %s: credentials come from the environment, the AWS profile or the machine's role, never from a URL, which ends up in logs", what)
}

func secretive(name string) bool {
	name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	for _, s := range []string{"accesskey", "secret", "password", "token", "signature", "credential"} {
		if strings.Contains(name, s) {
			return true
		}
	}
	return false
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error { *field(c) = v; return nil }
}

func yes(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		*field(c) = b
		return nil
	}
}

func spell(b bool) string {
	if b {
		return "true"
	}
	return ""
}

// retention reads a duration; whole days ("30d") too, which Go's do not have.
func retention(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		if n > 36500 {
			return 0, fmt.Errorf("%q is longer than 100 years", s)
		}
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is no duration such as 720h or 30d", s)
	}
	return d, nil
}
