package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
)

// checker collects what is wrong with keys.
type checker struct {
	*Config
	faults []error
}

// refuse adds a fault where wrong. What could not be read is not judged.
func (k *checker) refuse(wrong bool, key, format string, args ...any) {
	if wrong && !k.bad[key] {
		k.faults = append(k.faults, k.fault(key, fmt.Errorf(format, args...)))
	}
}

// refuseErr is refuse for an error that says it all.
func (k *checker) refuseErr(key string, err error) { k.refuse(err != nil, key, "%w", err) }

// contradictions are what is impossible in itself.
func (c *Config) contradictions() []error {
	k := &checker{Config: c}
	k.refuse(!name.MatchString(c.Name), "name", "%q is no name: write letters, digits, dots and hyphens, 63 at most", c.Name)
	k.etcd()
	k.member()
	k.repository()
	k.encryption()
	k.archive()
	_, err := time.LoadLocation(c.TimeZone)
	k.refuse(err != nil || c.TimeZone == "Local", "time-zone", "%q is no time zone: write one of the tz database, such as UTC or Europe/Berlin", c.TimeZone)
	k.jobs()
	k.retention()
	k.companions()
	k.resources()
	k.objectives()
	k.listen()
	k.pings()
	k.oneOf("log.format", c.Log.Format, "text", "json")
	k.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	return k.faults
}

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$`)

func (k *checker) oneOf(key, value string, allowed ...string) {
	k.refuse(!slices.Contains(allowed, value), key, "%q is not known: write %s", value, strings.Join(allowed, ", "))
}

func (k *checker) absolute(key, path string) {
	k.refuse(path != "" && !filepath.IsAbs(path), key, "%s is relative, and the agent's folder is not yours: write the path from / on", path)
}

func (k *checker) positive(key string, d Duration, least time.Duration) {
	k.refuse(d.Std() < least, key, "%s is too short: write %s at least", d, Duration(least))
}

// pair refuses one of a certificate and its key alone.
func (k *checker) pair(section, cert, key string) {
	k.refuse(cert != "" && key == "", section+".cert", "a certificate without its key: add %s.key", section)
	k.refuse(cert == "" && key != "", section+".key", "a key without its certificate: add %s.cert", section)
}

func (k *checker) etcd() {
	e := k.Etcd
	secure := false
	for i, endpoint := range e.Endpoints {
		key := fmt.Sprintf("etcd.endpoints[%d]", i)
		k.refuseErr(key, checkEndpoint(endpoint))
		secure = secure || !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "unix://")
	}
	k.pair("etcd", e.Cert, e.Key)
	for _, f := range []struct{ key, path string }{{"etcd.cacert", e.CACert}, {"etcd.cert", e.Cert}, {"etcd.key", e.Key}, {"etcd.password-file", e.PasswordFile}} {
		k.absolute(f.key, f.path)
	}
	k.refuse(k.HasCluster() && !secure && e.CACert+e.Cert != "", "etcd.endpoints", "TLS files are named and all endpoints are plain text: write https://, or remove etcd.cacert, etcd.cert and etcd.key")
	k.refuse(strings.Contains(e.User, ":"), "etcd.user", "a password does not stand in this file: write the name alone, and etcd.password-file")
	k.refuse(e.User != "" && e.PasswordFile == "" && k.getenv(EtcdPasswordVariable) == "", "etcd.user", "there is no password: add etcd.password-file, or set %s", EtcdPasswordVariable)
	k.refuse(e.User == "" && e.PasswordFile != "", "etcd.password-file", "a password without a user: add etcd.user")
	k.positive("etcd.dial-timeout", e.DialTimeout, 100*time.Millisecond)
	k.positive("etcd.command-timeout", e.CommandTimeout, 100*time.Millisecond)
	if !k.HasCluster() {
		const what = "there are no members to talk to: add etcd.endpoints, or for a verifier write %s"
		k.refuse(k.HasMember(), "member", what, "no member")
		k.refuse(k.Jobs.Full.Enabled, "jobs.full", what, "jobs.full.enabled: false")
		k.refuse(k.Jobs.Divergence.Enabled, "jobs.divergence", what, "jobs.divergence.enabled: false")
		k.refuse(e.CACert+e.Cert+e.User != "", "etcd", what, "none of its keys")
	}
}

// checkEndpoint does not repeat what may hold a password.
func checkEndpoint(s string) error {
	scheme, rest, has := strings.Cut(s, "://")
	if !has {
		scheme, rest = "https", s
	}
	switch scheme {
	case "unix", "unixs":
		return nil
	case "http", "https":
	default:
		return errors.New("no client URL: write https://host:2379")
	}
	u, err := url.Parse(scheme + "://" + rest)
	switch {
	case err != nil:
		return errors.New("no client URL: write https://host:2379")
	case u.User != nil:
		return errors.New("it holds a user: write etcd.user and etcd.password-file")
	case u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
		return fmt.Errorf("%q is no client URL: write https://host:2379", s)
	case u.Port() == "":
		return fmt.Errorf("%q has no port: write %s:2379", s, strings.TrimSuffix(s, "/"))
	}
	return nil
}

func (k *checker) member() {
	k.absolute("member.data-dir", k.Member.DataDir)
	k.absolute("member.wal-dir", k.Member.WALDir)
}

func (k *checker) repository() {
	r := k.Repository
	switch err := place.Check(r.URL); {
	case r.URL == "":
		k.refuse(true, "repository.url", "there is no repository: write repository.url, such as file:///var/backups/etcd or s3://bucket/prefix?region=…")
	case err != nil:
		k.refuseErr("repository.url", err)
	case !strings.Contains(r.URL, "://"):
		k.absolute("repository.url", r.URL)
	}
	for _, limit := range []struct {
		key   string
		value Bytes
	}{{"repository.limit-upload", r.LimitUpload}, {"repository.limit-download", r.LimitDownload}} {
		k.refuse(k.Given(limit.key) && limit.value == 0, limit.key, "nothing could be transferred: write bytes a second, such as 50MiB, or remove the line for no limit")
	}
	k.positive("repository.retry-for", r.RetryFor, time.Second)
	k.refuse(r.Writer != "" && !name.MatchString(r.Writer), "repository.writer", "%q is no agent's name: write the `name` of the one that writes", r.Writer)
}

func (k *checker) encryption() {
	e := k.Encryption
	for i, r := range e.Recipients {
		_, err := codec.ParseRecipient(r)
		k.refuseErr(fmt.Sprintf("encryption.recipients[%d]", i), err)
	}
	for i, f := range e.RecipientsFiles {
		k.absolute(fmt.Sprintf("encryption.recipients-files[%d]", i), f)
	}
	for i, f := range e.IdentityFiles {
		k.absolute(fmt.Sprintf("encryption.identity-files[%d]", i), f)
	}
	_, err := codec.ParseLevel(e.Level)
	k.refuseErr("encryption.level", err)
}

// maxSegment is the largest that the archiver cuts.
const maxSegment = 8 << 20

func (k *checker) archive() {
	a := k.Archive
	k.refuse(a.Enabled && k.Given("archive.enabled") && !k.HasMember(), "archive.enabled", "there is no log to archive: add member.data-dir, or remove the line")
	if !k.Archiving() {
		for _, key := range []string{"interval", "size", "spool-dir", "spool-limit", "takeover", "stamp"} {
			k.refuse(k.Given("archive."+key), "archive."+key, "it has no effect: this agent archives nothing. Add member.data-dir, or remove the line")
		}
		return
	}
	k.positive("archive.interval", a.Interval, 100*time.Millisecond)
	k.refuse(a.Size < 1<<10 || a.Size > maxSegment, "archive.size", "%s: write 1KiB to 8MiB", a.Size)
	k.refuse(a.SpoolDir == "", "archive.spool-dir", "no folder for the spool is known: write archive.spool-dir, or set STATE_DIRECTORY or HOME")
	k.absolute("archive.spool-dir", a.SpoolDir)
	k.refuse(a.SpoolLimit < 64<<20, "archive.spool-limit", "%s holds less than one file of etcd's log: write 64MiB at least", a.SpoolLimit)
	if a.Takeover != 0 {
		k.positive("archive.takeover", a.Takeover, max(time.Second, a.Interval.Std()))
	}
	if a.Stamp != 0 {
		k.positive("archive.stamp", a.Stamp, time.Minute)
	}
}

func (k *checker) listen() {
	l := k.Listen
	host, _, err := net.SplitHostPort(l.Address)
	k.refuse(err != nil, "listen.address", "%q: write host:port, such as 127.0.0.1:2390", l.Address)
	k.pair("listen", l.Cert, l.Key)
	for _, f := range []struct{ key, path string }{{"listen.cert", l.Cert}, {"listen.key", l.Key}, {"listen.client-ca", l.ClientCA}} {
		k.absolute(f.key, f.path)
	}
	k.refuse(err == nil && !Loopback(host) && l.Cert == "" && !l.AllowPlaintext, "listen.address", "%s is plain text to other machines: add listen.cert and listen.key, write 127.0.0.1 as the host, or listen.allow-plaintext: true behind a proxy that encrypts", l.Address)
	k.refuse(l.ClientCA != "" && l.Cert == "", "listen.client-ca", "client certificates need TLS: add listen.cert and listen.key")
	k.refuse(l.AllowPlaintext && l.Cert != "", "listen.allow-plaintext", "it has no effect beside listen.cert: remove one of them")
}

// Loopback tells whether a host is this one, and reached by nobody else.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
