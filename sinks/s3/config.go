package s3

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
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
	// RetryFor is how long one request is tried again, be it a put, a part, a
	// completion or a read: no attempt begins later than that after the first
	// one. An error that lasted so long is not sinks.Temporary, so that
	// sinks.Retry does not spend the same time once more. 0: Attempts count.
	RetryFor time.Duration
	// Attempts is how often a request is tried without RetryFor. 0: 6.
	Attempts int
	// Backoff is the longest pause between two attempts; they grow from a second
	// or less. 0: 10 seconds. With RetryFor it is a sixth of that at most.
	Backoff time.Duration
	// Stall is how long a connection may show no progress. 0: 2 minutes.
	Stall time.Duration
}

var bucketName = regexp.MustCompile(`^[a-z0-9A-Z][a-z0-9A-Z._-]{1,61}[a-z0-9A-Z]$`)

// check refuses what contradicts itself or cannot be honoured.
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
