package config

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/robfig/cron/v3"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/archive"
)

// Check looks at the files that the configuration names, and at no network: keys,
// certificates, passwords. Its faults keep an agent from starting. What may come
// later (the member's files, attachments) and what passes (an expired certificate
// is renewed) is not among them.
func (c *Config) Check() []error {
	var faults []error
	add := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	for _, f := range c.paths() {
		if !f.trusted {
			continue
		}
		// One that is not there is a fault of its own, where it is read.
		if err := safedir.TrustedFile(f.path); errors.Is(err, safedir.ErrOthers) {
			add(c.Fault(f.key, err))
		}
	}
	_, err := c.ClientConfig()
	add(err)
	for _, cert := range c.Certificates() {
		add(cert.Err)
	}
	add(c.CheckIdentities())
	_, err = c.Keys()
	add(err)
	_, err = c.HeartbeatURL()
	add(err)
	return faults
}

// named is a file or folder that the configuration names.
type named struct {
	key, path string
	trusted   bool // it decides what the agent does or whom it trusts: others must not write it
	secret    bool // others must not read it
}

// paths are all that are named.
func (c *Config) paths() (all []named) {
	list := func(key string, paths []string, trusted, secret bool) {
		for i, path := range paths {
			all = append(all, named{fmt.Sprintf("%s[%d]", key, i), path, trusted, secret})
		}
	}
	list("encryption.recipients-files", c.Encryption.RecipientsFiles, true, false)
	list("encryption.identity-files", c.Encryption.IdentityFiles, true, true)
	list("repository.revoked-keys-files", c.Repository.RevokedKeysFiles, true, false)
	list("attachments", c.Attachments, false, false)
	if c.Archiving() {
		all = append(all, named{key: "archive.spool-dir", path: c.Archive.SpoolDir})
	}
	all = append(all, []named{
		{"etcd.cacert", c.Etcd.CACert, false, false},
		{"etcd.cert", c.Etcd.Cert, false, false},
		{"etcd.key", c.Etcd.Key, false, true},
		{"etcd.password-file", c.Etcd.PasswordFile, false, true},
		{"member.data-dir", c.Member.DataDir, false, false},
		{"member.wal-dir", c.Member.WALDir, false, false},
		// Not trusted: whoever could have written it can sign with it anyway, and root
		// looks at that of the agent's user.
		{"repository.signing-key-file", c.Repository.SigningKeyFile, false, true},
		{"repository.trust-file", c.Repository.TrustFile, true, false},
		{"resources.scratch-dir", c.Resources.ScratchDir, false, false},
		{"listen.cert", c.Listen.Cert, false, false},
		{"listen.key", c.Listen.Key, true, true},
		{"listen.client-ca", c.Listen.ClientCA, true, false},
		{"listen.deny-file", c.Listen.DenyFile, true, false},
		{"heartbeat.url-file", c.Heartbeat.URLFile, false, true},
	}...)
	return slices.DeleteFunc(all, func(n named) bool { return n.path == "" })
}

// CheckIdentities encrypts a few bytes to the recipients and opens them with the
// identities, whose files are read anew: one that is lost, or the wrong one, is found
// before the day on which a backup has to be opened with it.
func (c *Config) CheckIdentities() error {
	options, err := c.Codec()
	identities, err2 := c.Identities()
	if err := errors.Join(err, err2); err != nil || len(options.Recipients) == 0 {
		return err
	}
	secret := make([]byte, 32)
	rand.Read(secret) // never fails, by its documentation
	var closed bytes.Buffer
	w, err := age.Encrypt(&closed, options.Recipients...)
	if err == nil {
		_, err = w.Write(secret)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return c.Fault("encryption.recipients", fmt.Errorf("nothing can be encrypted to them: %w", err))
	}
	if len(identities) == 0 {
		return nil
	}
	r, err := age.Decrypt(&closed, identities...)
	if err != nil {
		return c.Fault("encryption.identity-files", errors.New("they do not open what is encrypted to encryption.recipients: add the identity of one of these recipients"))
	}
	if opened, err := io.ReadAll(r); err != nil || !bytes.Equal(opened, secret) {
		return c.Fault("encryption.identity-files", fmt.Errorf("what was encrypted came back different (%w)", err))
	}
	return nil
}

// Certificate is one that a file holds.
type Certificate struct {
	Use     string // such as "etcd client"
	File    string
	Expires time.Time // of the one that expires first
	Err     error     // why it cannot be used, with the key of the configuration within
}

// Certificates are those that the configuration names, read anew.
func (c *Config) Certificates() []Certificate {
	var all []Certificate
	add := func(use, key, cert, private string) {
		if cert == "" {
			return
		}
		one := Certificate{Use: use, File: cert}
		one.Expires, one.Err = readCertificate(cert, private)
		if one.Err != nil {
			one.Err = c.Fault(key, one.Err)
		}
		all = append(all, one)
	}
	add("etcd CA", "etcd.cacert", c.Etcd.CACert, "")
	add("etcd client", "etcd.cert", c.Etcd.Cert, c.Etcd.Key)
	add("server", "listen.cert", c.Listen.Cert, c.Listen.Key)
	add("CA of those who connect", "listen.client-ca", c.Listen.ClientCA, "")
	return all
}

// readCertificate is when the first certificate in a file expires. With a private
// key the two must fit.
func readCertificate(file, private string) (time.Time, error) {
	data, err := sinks.ReadFile(file, sinks.SmallFile)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: write the path of a PEM file that this user can read", err)
	}
	var first time.Time
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return first, fmt.Errorf("%s: %w", file, err)
		}
		if first.IsZero() || cert.NotAfter.Before(first) {
			first = cert.NotAfter
		}
	}
	if first.IsZero() {
		return first, fmt.Errorf("%s holds no PEM certificate: write the path of one", file)
	}
	if private != "" {
		if _, err := tls.LoadX509KeyPair(file, private); err != nil {
			return first, fmt.Errorf("%s and %s do not go together: %w", file, private, err)
		}
	}
	return first, nil
}

// checker collects what is wrong with keys.
type checker struct {
	*Config
	faults []error
}

// refuse adds a fault where wrong. What could not be read is not judged.
func (k *checker) refuse(wrong bool, key, format string, args ...any) {
	if wrong && !k.Bad(key) {
		k.faults = append(k.faults, k.Fault(key, fmt.Errorf(format, args...)))
	}
}

// refuseErr is refuse for an error that says it all.
func (k *checker) refuseErr(key string, err error) { k.refuse(err != nil, key, "%w", err) }

// contradictions are what is impossible in itself.
func (c *Config) contradictions() []error {
	k := &checker{Config: c}
	k.refuse(!name.MatchString(c.Name), "name", "%q is no name: write letters, digits, dots and hyphens, 63 at most", c.Name)
	for _, n := range k.paths() {
		k.absolute(n.key, n.path)
	}
	k.etcd()
	k.repository()
	k.encryption()
	k.archive()
	_, err := time.LoadLocation(c.TimeZone)
	k.refuse(err != nil || c.TimeZone == "Local", "time-zone", "%q is no time zone: write one of the tz database, such as UTC or Europe/Berlin", c.TimeZone)
	k.jobs()
	k.retention()
	k.attachments()
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
	k.refuse(!filepath.IsAbs(path), key, "%s is relative, and the agent's folder is not yours: write the path from / on", path)
}

func (k *checker) positive(key string, d yamlfile.Duration, least time.Duration) {
	k.refuse(d.Std() < least, key, "%s is too short: write %s at least", d, yamlfile.Duration(least))
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
	k.refuse(k.HasCluster() && !secure && e.CACert+e.Cert != "", "etcd.endpoints", "TLS files are named and all endpoints are plain text: write https://, or remove etcd.cacert, etcd.cert and etcd.key")
	k.refuse(strings.Contains(e.User, ":"), "etcd.user", "no password is read here: write the name, and etcd.password-file")
	k.refuse(e.User != "" && e.PasswordFile == "" && k.passwordVariable() == "", "etcd.user", "there is no password: add etcd.password-file, or set %s", EtcdPasswordVariable)
	k.refuse(e.User == "" && e.PasswordFile != "", "etcd.password-file", "a password without a user: add etcd.user")
	k.positive("etcd.dial-timeout", e.DialTimeout, 100*time.Millisecond)
	k.positive("etcd.command-timeout", e.CommandTimeout, 100*time.Millisecond)
	if !k.HasCluster() {
		const what = "there are no members to talk to: add etcd.endpoints, or for a verifier write %s"
		k.refuse(k.Jobs.Full.Runs(), "jobs.full", what, "jobs.full.run: off")
		k.refuse(k.Jobs.Divergence.Runs(), "jobs.divergence", what, "jobs.divergence.run: off")
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
		return fmt.Errorf("%q has no port: write %s:2379", s, strings.TrimRight(s, ":/"))
	}
	return nil
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
		value yamlfile.Bytes
	}{{"repository.limit-upload", r.LimitUpload}, {"repository.limit-download", r.LimitDownload}} {
		k.refuse(k.Given(limit.key) && limit.value == 0, limit.key, "nothing could be transferred: write bytes a second, such as 50MiB, or remove the line for no limit")
	}
	k.positive("repository.retry-for", r.RetryFor, time.Second)
	k.refuse(r.TrustFile != "" && r.SigningKeyFile == "", "repository.signing-key-file", "this agent writes as well, and what it writes unsigned would be unusable to itself: make a key with ssh-keygen -t ed25519 -N '' -f FILE, name it here, and its public key in repository.trust-file")
	k.refuse(r.TrustFile == "" && len(r.RevokedKeysFiles) > 0, "repository.revoked-keys-files", "without repository.trust-file nobody's signature is checked: name that as well")
}

func (k *checker) encryption() {
	e := k.Encryption
	for i, r := range e.Recipients {
		_, err := codec.ParseRecipient(r)
		k.refuseErr(fmt.Sprintf("encryption.recipients[%d]", i), err)
	}
	_, err := codec.ParseLevel(e.Level)
	k.refuseErr("encryption.level", err)
}

func (k *checker) archive() {
	a := k.Archive
	k.refuse(a.Enabled && k.Given("archive.enabled") && !k.HasMember(), "archive.enabled", "there is no log to archive: add member.data-dir, or remove the line")
	if !k.Archiving() {
		for _, key := range []string{"interval", "size", "spool-dir", "spool-limit", "takeover"} {
			k.refuse(k.Given("archive."+key), "archive."+key, "it has no effect: this agent archives nothing. Add member.data-dir, or remove it")
		}
		return
	}
	k.positive("archive.interval", a.Interval, 100*time.Millisecond)
	k.refuse(a.Size < 1<<10 || a.Size > archive.MaxSize, "archive.size", "%s: write 1KiB to %s", a.Size, yamlfile.Bytes(archive.MaxSize))
	k.refuse(a.SpoolDir == "", "archive.spool-dir", "no folder for the spool is known: write archive.spool-dir, or set STATE_DIRECTORY or HOME")
	k.refuse(a.SpoolLimit < 64<<20, "archive.spool-limit", "%s holds less than one file of etcd's log: write 64MiB at least", a.SpoolLimit)
	if a.Takeover != 0 {
		k.positive("archive.takeover", a.Takeover, max(time.Second, a.Interval.Std()))
	}
}

func (k *checker) listen() {
	l := k.Listen
	host, _, err := net.SplitHostPort(l.Address)
	k.refuse(err != nil, "listen.address", "%q: write host:port, such as 127.0.0.1:2390", l.Address)
	k.pair("listen", l.Cert, l.Key)
	k.refuse(err == nil && !loopback(host) && l.Cert == "" && !l.AllowPlaintext, "listen.address", "%s is plain text to other machines: add listen.cert and listen.key, write 127.0.0.1 as the host, or listen.allow-plaintext: true behind a proxy that encrypts", l.Address)
	k.refuse(l.ClientCA != "" && l.Cert == "", "listen.client-ca", "client certificates need TLS: add listen.cert and listen.key")
	k.refuse(l.DenyFile != "" && l.ClientCA == "", "listen.deny-file", "without client certificates nobody can be distinguished: add listen.client-ca")
	k.refuse(l.AllowPlaintext && l.Cert != "", "listen.allow-plaintext", "it has no effect beside listen.cert: remove one of them")
}

// loopback reports whether a host is this one, and reached by nobody else.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// NamedTiming is one job's timing under its name.
type NamedTiming struct {
	Name   string
	Timing *Timing
	// Reads says that the job opens what is stored, and so needs an identity
	// where that is encrypted.
	Reads bool
}

// All are the timings of all jobs, in the order of their running.
func (j *Jobs) All() []NamedTiming {
	return []NamedTiming{
		{"full", &j.Full.Timing, false},
		{"checksum", &j.Checksum.Timing, false},
		{"structure", &j.Structure.Timing, true},
		{"replay", &j.Replay.Timing, true},
		{"drill", &j.Drill.Timing, true},
		{"prune", &j.Prune.Timing, false},
		{"merge", &j.Merge.Timing, true},
		{"divergence", &j.Divergence.Timing, false},
	}
}

// ScratchNeed returns how many bytes the jobs of this agent may need in
// resources.scratch-dir for a database of size bytes: they have two unpacked at once. It
// is 0 if no job unpacks one.
func (c *Config) ScratchNeed(size int64) int64 {
	if c.Jobs.Prove(report.Structure) {
		return 2 * size
	}
	return 0
}

// Prove reports whether a job runs here that proves a level, by itself or with a higher
// one. Each level has a job of its name.
func (j *Jobs) Prove(level report.Level) bool {
	return slices.ContainsFunc(j.All(), func(t NamedTiming) bool { return t.Timing.Runs() && report.Level(t.Name).Includes(level) })
}

func (k *checker) jobs() {
	for _, j := range k.Jobs.All() {
		key := "jobs." + j.Name
		if s := j.Timing.Schedule; s != "" { // of one that is off, too: it is read where jobs are listed
			if err := job.CheckSchedule(s); err != nil {
				k.refuseErr(key+".schedule", err)
			}
		}
		if !j.Timing.Runs() {
			continue
		}
		k.refuse(j.Reads && k.Encrypted() && !k.HasIdentities(), key,
			"it has to read what is encrypted, and this agent holds recipients alone: add encryption.identity-files, or write %s.run: off here and run the job on a verifier that holds the identity", key)
		k.timing(key, j.Timing)
	}
}

func (k *checker) timing(key string, t *Timing) {
	k.positive(key+".timeout", t.Timeout, time.Second)
	if t.Schedule == "" && key == "jobs.full" {
		k.refuse(!k.Archiving(), key+".schedule", "no archived log asks for it: add member.data-dir, or write %s.run: off", key)
		return
	}
	if t.Schedule == "" {
		otherwise := key == "jobs.structure" && k.Jobs.Structure.AfterFull
		k.refuse(!otherwise, key+".schedule", "it would never run: write a cron expression, or %s.run: off", key)
		return
	}
	shortest, _ := Periods(t.Schedule, k.zone)
	k.refuse(shortest > 0 && t.Jitter.Std() >= shortest, key+".jitter", "%s is not shorter than the time between two runs (%s): write less", t.Jitter, yamlfile.Duration(shortest))
}

func (k *checker) retention() {
	r := k.Retention
	policy := k.Policy()
	for _, c := range policy.Counts() {
		k.refuse(*c.N < 0, "retention."+c.Name, "%d is negative: write how many to keep", *c.N)
	}
	k.refuse(r.Minimum == 0, "retention.minimum", "%d would let the last backup go: write 1 at least", r.Minimum)
	k.refuse(r.Grace.Std() < day, "retention.grace", "%s is too short for those who read the repository just then: write 24h at least", r.Grace)
}

func (k *checker) attachments() {
	k.refuse(len(k.Attachments) > 0 && !k.Encrypted(), "attachments", "they are secrets, and nothing is encrypted: add encryption.recipients")
	k.refuse(len(k.Attachments) > 0 && !k.Jobs.Full.Runs(), "attachments", "they are stored with full snapshots, and this agent takes none: remove them, or let jobs.full run")
}

// leastJobMemory is well above what the smallest database needs. With 30 keys,
// structure, replay and drill pass from 112 MiB on (of 80 half of the attempts died);
// in a build with cgo, whose threads have stacks of 8 MiB each, from 192 (of 160 a
// drill in five died). Below, Go's runtime crashes while the process starts.
const leastJobMemory yamlfile.Bytes = 256 << 20

func (k *checker) resources() {
	r := k.Resources
	k.refuse(r.JobMemory < leastJobMemory, "resources.job-memory", "%s is too little for any job: a job's process has spent more before it reads its first byte: write %s at least, and 1GiB for a cluster of a usual size", r.JobMemory, leastJobMemory)
}

func (k *checker) objectives() {
	o := k.Objectives
	k.refuse(k.Archiving() && o.RecoveryPoint < 2*k.Archive.Interval, "objectives.recovery-point", "%s cannot be kept with an archive interval of %s: write twice that at least, or a shorter archive.interval", o.RecoveryPoint, k.Archive.Interval)
	k.positive("objectives.recovery-point", o.RecoveryPoint, time.Second)
	k.positive("objectives.verified-within", o.VerifiedWithin, time.Minute)
}

// Periods are the shortest and the longest time between two runs of a schedule, as
// far as 200 runs, a week and a year show: one with pauses at night or at weekends has
// theirs. 0 where there is none.
func Periods(schedule string, zone *time.Location) (shortest, longest time.Duration) {
	parsed, err := cron.ParseStandard(schedule)
	if err != nil {
		return 0, 0
	}
	// Any moment will do; always the same one gives always the same answer.
	start := parsed.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, zone))
	at := start
	for n := 0; n < 200 && at.Sub(start) < 366*day || n < 13 || at.Sub(start) < 8*day; n++ {
		next := parsed.Next(at)
		if next.IsZero() {
			break
		}
		d := next.Sub(at)
		if longest = max(longest, d); shortest == 0 || d < shortest {
			shortest = d
		}
		at = next
	}
	return shortest, longest
}
