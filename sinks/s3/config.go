package s3

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/requorum/requorum/sinks"
)

// Config names a place in a bucket and says how objects are kept there.
type Config struct {
	Bucket string
	// Prefix stands before every name, without a slash at either end; it may be
	// empty.
	Prefix string
	// Region is the bucket's. Empty: what the SDK's configuration says, and
	// us-east-1 where there is an Endpoint.
	Region string
	// Endpoint is the URL of a server that is not Amazon's; plain http only to
	// the loopback, or with Insecure.
	Endpoint string
	Insecure bool
	// PathStyle puts the bucket into the path, not into the host name.
	PathStyle bool
	// CAFile holds the authorities that the server's certificate may come from,
	// in place of the system's.
	CAFile string
	// Profile picks one of the profiles in the SDK's shared files.
	Profile string

	StorageClass string // empty: the bucket's own
	// Encryption is "", "AES256" (SSE-S3) or "aws:kms"; KMSKey is for the latter
	// and may be empty (the account's default key).
	Encryption string
	KMSKey     string
	// LockMode is "", "GOVERNANCE" or "COMPLIANCE", Retention how long an object
	// that is created with CreateOptions.Lock stays locked, counted from the
	// start of its upload.
	LockMode  string
	Retention time.Duration

	// Credentials, when not nil, take the place of the SDK's own sources.
	Credentials aws.CredentialsProvider
	// Stall is how long a connection may show no progress. 0: 2 minutes.
	Stall time.Duration
	// Limits hold over all connections of the sink together. Retry is for each
	// request, be it a put, a part, a completion or a page of a listing.
	sinks.Options

	settle time.Duration // 0: settleTimeout; shorter in tests of places that stay away
}

var bucketName = regexp.MustCompile(`^[a-z0-9A-Z][a-z0-9A-Z._-]{1,61}[a-z0-9A-Z]$`)

// check refuses what contradicts itself or is not supported.
func (c Config) check() error {
	if !bucketName.MatchString(c.Bucket) {
		return fmt.Errorf("bucket name %q: 3 to 63 letters, digits, dots and hyphens are needed (s3://bucket/prefix)", c.Bucket)
	}
	if c.Prefix != "" {
		if err := sinks.ValidName(c.Prefix); err != nil {
			return fmt.Errorf("prefix %q: %w", c.Prefix, err)
		}
	}
	if err := c.checkEndpoint(); err != nil {
		return err
	}
	switch {
	case c.Encryption != "" && c.Encryption != string(types.ServerSideEncryptionAes256) && c.Encryption != string(types.ServerSideEncryptionAwsKms):
		return fmt.Errorf("sse=%s: known are AES256 and aws:kms", c.Encryption)
	case c.KMSKey != "" && c.Encryption != string(types.ServerSideEncryptionAwsKms):
		return errors.New("kms-key is given without sse=aws:kms, and would have no effect")
	case c.LockMode != "" && c.LockMode != string(types.ObjectLockModeGovernance) && c.LockMode != string(types.ObjectLockModeCompliance):
		return fmt.Errorf("object-lock=%s: known are GOVERNANCE and COMPLIANCE", c.LockMode)
	case c.LockMode != "" && c.Retention <= 0:
		return errors.New("object-lock is given without a retention: add retention=720h, say")
	case c.LockMode == "" && c.Retention != 0:
		return errors.New("retention is given without object-lock=GOVERNANCE or COMPLIANCE, and would have no effect")
	case c.StorageClass == string(types.StorageClassGlacier) || c.StorageClass == string(types.StorageClassDeepArchive):
		return fmt.Errorf("storage-class=%s: such an object takes hours until it can be read, and a recovery cannot wait; GLACIER_IR can be read at once", c.StorageClass)
	}
	return nil
}

func (c Config) checkEndpoint() error {
	if c.Endpoint == "" {
		if c.Insecure {
			return errors.New("insecure=true is given without an endpoint, and would have no effect")
		}
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil:
		return errors.New("the endpoint is not a URL; https://host:port is expected")
	case u.User != nil:
		return errors.New("the endpoint holds a user name or a password: credentials come from the environment, never from a URL")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("endpoint %q: https://host:port is expected, and nothing else in it", u.Redacted())
	case u.Scheme == "https" && c.Insecure:
		return errors.New("insecure=true contradicts an https endpoint: drop one of them")
	case u.Scheme == "http" && c.CAFile != "":
		return errors.New("ca is given with an http endpoint, and would have no effect: use https")
	case u.Scheme == "http" && !c.Insecure && !loopback(u.Hostname()):
		return fmt.Errorf("endpoint %s is plain http to another machine, so that anybody between could read and change backups: use https, or add insecure=true if that is accepted", c.Endpoint)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// parameters are what a URL's query may hold, and the fields that it stands for.
func (c *Config) parameters() map[string]any {
	return map[string]any{
		"region": &c.Region, "endpoint": &c.Endpoint, "ca": &c.CAFile, "profile": &c.Profile, "storage-class": &c.StorageClass, "sse": &c.Encryption,
		"kms-key": &c.KMSKey, "object-lock": &c.LockMode, "path-style": &c.PathStyle, "insecure": &c.Insecure, "retention": &c.Retention,
	}
}

// set reads the value of a field.
func set(field any, v string) (err error) {
	switch field := field.(type) {
	case *string:
		*field = v
	case *bool:
		if *field, err = strconv.ParseBool(v); err != nil {
			err = fmt.Errorf("%q is neither true nor false", v)
		}
	case *time.Duration:
		*field, err = retention(v)
	}
	return err
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
	parameters := c.parameters()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		field, known := parameters[name]
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
		if err := set(field, query[name][0]); err != nil {
			return Config{}, fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	return c, c.check()
}

// String is the URL that ParseURL reads the same Config from. It holds no
// secrets.
func (c Config) String() string {
	q := url.Values{}
	c.Endpoint = withoutUser(c.Endpoint)
	for name, field := range c.parameters() {
		if v := reflect.ValueOf(field).Elem(); !v.IsZero() {
			q.Set(name, fmt.Sprint(v.Interface()))
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
