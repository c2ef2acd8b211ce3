// Config is the cluster file of `requorum recover`: which hosts a cluster
// has, how a program is run on each of them, what is there, and where the backups lie. One
// strict YAML file, kept where the operator works.
//
// It promises what package yamlfile promises of the agent's file: nothing is
// accepted and not honoured, all faults are found at once, each with its line, and
// what to write. No password, no key and no credential stands in it.

package recovery

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/yamlfile"
)

// Guide is the page that has all keys.
const Guide = "docs/quorum-loss.md"

// Config is one that Read or Parse gave: with its defaults, and without
// contradictions. Paths of files are as they were written, and relative ones are
// relative to the folder of the file.
type Config struct {
	// Cluster is what the operator calls it. It has to be typed where the outcome of
	// a recovery is unproven.
	Cluster string     `yaml:"cluster"`
	Etcd    EtcdConfig `yaml:"etcd"`
	// Repositories hold backups and the archived log: file:// and s3:// URLs.
	// Credentials come from the SDK's own places, never from the URL.
	//
	// Default: none; what the members have is all then.
	Repositories []string `yaml:"repositories"`
	// IdentityFiles open what is encrypted in the repositories.
	//
	// Default: none.
	IdentityFiles []string `yaml:"identity-files"`
	// Recipients and RecipientsFiles are those for whom the full snapshot is
	// encrypted that a recovery ends with: the same as the agents'.
	//
	// Default: none; needed where there are identity files.
	Recipients      []string `yaml:"recipients"`
	RecipientsFiles []string `yaml:"recipients-files"`
	// SigningKeyFile is the key that signs what a recovery writes into the repositories.
	//
	// Default: none; needed where there is a trust file.
	SigningKeyFile string `yaml:"signing-key-file"`
	// TrustFile names whose signatures are believed, in the form of OpenSSH's
	// allowed_signers: what none of them signed in the repositories does not exist.
	//
	// Default: nobody's signature is checked.
	TrustFile string `yaml:"trust-file"`
	// RevokedKeysFiles hold public keys that are not trusted any more.
	//
	// Default: none.
	RevokedKeysFiles []string `yaml:"revoked-keys-files"`
	// Defaults are what a host has that does not say otherwise.
	Defaults supervisor.Setup `yaml:"defaults"`
	Hosts    []HostConfig     `yaml:"hosts"`

	file string
	keys signing.Keys
}

// Keys are with which a recovery signs, and whose signatures it believes.
func (c *Config) Keys() signing.Keys { return c.keys }

// UseKeys says which keys count; without it none do.
func (c *Config) UseKeys(keys signing.Keys) { c.keys = keys }

// removedKeys are keys of a cluster file that no longer exist, each with its replacement.
var removedKeys = map[string]string{
	"defaults.store": "start and stop the member with programs: kind: command",
	"hosts.store":    "start and stop the member with programs: kind: command",
}

// EtcdConfig is as whom the cluster itself is asked: whether it serves, and for the
// proof. Names and meanings are etcdctl's.
type EtcdConfig struct {
	CACert string `yaml:"cacert"`
	Cert   string `yaml:"cert"`
	Key    string `yaml:"key"`
	User   string `yaml:"user"`
	// PasswordFile is a file whose first line is the password of User.
	PasswordFile string `yaml:"password-file"`
}

// HostConfig is a host that has a member, or is to get one.
type HostConfig struct {
	// Member is the name of the member on it, old or new.
	Member string `yaml:"member"`
	// PeerURLs and ClientURLs of the member. Default: those that the cluster knew.
	PeerURLs   []string `yaml:"peer-urls"`
	ClientURLs []string `yaml:"client-urls"`

	supervisor.Setup `yaml:",inline"`
}

// Command is what runs a program on the host.
func (h *HostConfig) Command() []string {
	if h.Run != "" {
		return strings.Fields(h.Run)
	}
	return []string{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "root@" + h.Hostname()}
}

// Address says in a few words how the host is reached.
func (h *HostConfig) Address() string { return h.Command()[len(h.Command())-1] }

// Hostname is the host of the member's first URL; empty where none is given.
func (h *HostConfig) Hostname() string {
	for _, text := range slices.Concat(h.PeerURLs, h.ClientURLs) {
		if u, err := url.Parse(text); err == nil && u.Hostname() != "" {
			return u.Hostname()
		}
	}
	return ""
}

// File is the name of the cluster file.
func (c *Config) File() string { return c.file }

// Host gives the one of a member, nil where there is none.
func (c *Config) Host(member string) *HostConfig {
	for i := range c.Hosts {
		if c.Hosts[i].Member == member {
			return &c.Hosts[i]
		}
	}
	return nil
}

// ReadConfig reads a cluster file. The keys that it names the caller reads (UseKeys): also
// without them a recovery must be possible.
func ReadConfig(path string) (*Config, error) {
	if err := safedir.TrustedFile(path); err != nil {
		return nil, fmt.Errorf("the cluster file: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the cluster file: %w", err)
	}
	return ParseConfig(data, path)
}

// ParseConfig reads a cluster file's bytes, and looks at no file. Its error holds all
// faults.
func ParseConfig(data []byte, name string) (*Config, error) {
	c := &Config{file: name}
	places, faults := yamlfile.Read(data, name, Guide, c, removedKeys)
	if places == nil {
		return nil, errors.Join(faults...)
	}
	for i := range c.Hosts {
		h := &c.Hosts[i]
		h.Complete(h.Member, &c.Defaults)
	}
	k := &yamlfile.Checker{Places: places, Faults: faults}
	c.check(k)
	if err := errors.Join(k.Faults...); err != nil {
		return nil, err
	}
	c.derive(filepath.Dir(c.file))
	return c, nil
}

// derive makes paths whole: relative ones are meant in a folder.
func (c *Config) derive(dir string) {
	all := []*string{&c.Etcd.CACert, &c.Etcd.Cert, &c.Etcd.Key, &c.Etcd.PasswordFile, &c.SigningKeyFile, &c.TrustFile}
	for _, list := range [][]string{c.RevokedKeysFiles, c.IdentityFiles, c.RecipientsFiles} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	for _, p := range all {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

var (
	errMissing = errors.New("is not given, and there is no default")
	// hostName is what may become an argument of the command that reaches a host. The URLs
	// may be a repository's, and ssh would take -oProxyCommand=… for an option.
	hostName = regexp.MustCompile(`^[A-Za-z0-9._:%][A-Za-z0-9._:%-]*$`)
)

func (c *Config) check(k *yamlfile.Checker) {
	k.Refuse(c.Cluster == "", "cluster", "%w", errMissing)
	k.Refuse((c.Etcd.Cert == "") != (c.Etcd.Key == ""), "etcd.cert", "cert and key go together")
	k.Refuse((c.Etcd.User == "") != (c.Etcd.PasswordFile == ""), "etcd.user", "user and password-file go together")
	k.Refuse(len(c.IdentityFiles) > 0 && len(c.Recipients)+len(c.RecipientsFiles) == 0 && len(c.Repositories) > 0, "identity-files",
		"the repositories are encrypted, and the full snapshot that a recovery ends with would not be: give recipients or recipients-files, the same as the agents have")
	k.Refuse(c.TrustFile != "" && c.SigningKeyFile == "", "trust-file",
		"what a recovery writes into the repositories unsigned would be unusable by this file: give signing-key-file as well")
	k.Refuse(c.TrustFile == "" && len(c.RevokedKeysFiles) > 0, "revoked-keys-files", "without trust-file nobody's signature is checked: give that as well")
	for _, u := range c.Repositories {
		parsed, err := url.Parse(u)
		k.Refuse(err != nil || parsed.Scheme == "", "repositories", "%q: want a URL such as file:///var/backups/etcd or s3://bucket/prefix?region=…", u)
	}
	k.Refuse(len(c.Hosts) == 0, "hosts", "%w: name each host with its member and its peer-urls", errMissing)
	members := map[string]int{}
	for i, h := range c.Hosts {
		key := fmt.Sprintf("hosts[%d].", i)
		at, twice := members[h.Member]
		k.Refuse(!supervisor.PlainName.MatchString(h.Member), key+"member", "%q: want the member's name: letters, digits, dots, underscores and hyphens", h.Member)
		k.Refuse(h.Member != "" && twice, key+"member", "%s is hosts[%d] already", h.Member, at)
		members[h.Member] = i
		k.Refuse(h.Run == "" && h.Hostname() == "", key+"run", "%w: give it, such as ssh root@10.0.0.1, or peer-urls, whose host is reached by ssh then", errMissing)
		h.Check(k, key)
		checkURLs(k, key+"peer-urls", h.PeerURLs)
		checkURLs(k, key+"client-urls", h.ClientURLs)
	}
}

func checkURLs(k *yamlfile.Checker, key string, urls []string) {
	for i, u := range urls {
		key := fmt.Sprintf("%s[%d]", key, i)
		parsed, err := url.Parse(u)
		if bad := err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Port() == ""; bad {
			k.Refuse(true, key, "%q: want a URL such as https://10.0.0.1:2380", u)
			continue
		}
		k.Refuse(!hostName.MatchString(parsed.Hostname()), key, "%q: %q is no host: want letters, digits, dots, underscores, colons and hyphens, and no hyphen first", u, parsed.Hostname())
	}
}
