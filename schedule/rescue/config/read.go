package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"

	agent "github.com/requorum/requorum/schedule/config"
)

// Read reads a cluster file.
func Read(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the cluster file: %w", err)
	}
	return Parse(data, path)
}

// Parse reads a cluster file's bytes, and looks at no file. Its error holds all
// faults.
func Parse(data []byte, name string) (*Config, error) {
	c := &Config{file: name}
	places, err := agent.Strict(data, name, Guide, c)
	if places == nil {
		return nil, err
	}
	faults := []error{err}
	for _, f := range c.faults() {
		faults = append(faults, places.Fault(f.key, f.err))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if c.StateDir == "" {
		c.StateDir = filepath.Base(c.file) + ".recovery"
	}
	c.derive(filepath.Dir(c.file))
	return c, nil
}

// derive makes paths whole: relative ones are meant in a folder.
func (c *Config) derive(dir string) {
	all := []*string{&c.StateDir, &c.Control.CA, &c.Control.Cert, &c.Control.Key, &c.Etcd.CACert, &c.Etcd.Cert, &c.Etcd.Key, &c.Etcd.PasswordFile}
	for i := range c.IdentityFiles {
		all = append(all, &c.IdentityFiles[i])
	}
	for i := range c.RecipientsFiles {
		all = append(all, &c.RecipientsFiles[i])
	}
	for _, p := range all {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// fault is what is wrong with a key.
type fault struct {
	key string
	err error
}

var (
	errMissing = errors.New("is not given, and there is no default")
	memberName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
)

func (c *Config) faults() (all []fault) {
	add := func(key, format string, args ...any) { all = append(all, fault{key, fmt.Errorf(format, args...)}) }
	for _, k := range []struct{ key, value string }{
		{"cluster", c.Cluster}, {"control.ca", c.Control.CA}, {"control.cert", c.Control.Cert}, {"control.key", c.Control.Key},
	} {
		if k.value == "" {
			add(k.key, "%w", errMissing)
		}
	}
	if (c.Etcd.Cert == "") != (c.Etcd.Key == "") {
		add("etcd.cert", "cert and key go together")
	}
	if c.Etcd.Dial == nil && (c.Etcd.User == "") != (c.Etcd.PasswordFile == "") {
		add("etcd.user", "user and password-file go together")
	}
	if len(c.IdentityFiles) > 0 && len(c.Recipients)+len(c.RecipientsFiles) == 0 && len(c.Repositories) > 0 {
		add("identity-files", "the repositories are encrypted, and the full snapshot that a recovery ends with would not be: give recipients or recipients-files, the same as the agents have")
	}
	for _, u := range c.Repositories {
		if parsed, err := url.Parse(u); err != nil || parsed.Scheme == "" {
			add("repositories", "%q: want a URL such as file:///var/backups/etcd or s3://bucket/prefix?region=…", u)
		}
	}
	if len(c.Hosts) == 0 {
		add("hosts", "%w: name each host with its member and its control address", errMissing)
	}
	return append(all, c.hostFaults()...)
}

func (c *Config) hostFaults() (all []fault) {
	members, addresses := map[string]int{}, map[string]int{}
	for i, h := range c.Hosts {
		key := fmt.Sprintf("hosts[%d]", i)
		add := func(sub, format string, args ...any) {
			all = append(all, fault{key + sub, fmt.Errorf(format, args...)})
		}
		if !memberName.MatchString(h.Member) {
			add(".member", "%q: want the member's name: letters, digits, dots, underscores and hyphens", h.Member)
		} else if at, twice := members[h.Member]; twice {
			add(".member", "%s is hosts[%d] already", h.Member, at)
		}
		if _, port, err := net.SplitHostPort(h.Control); err != nil || port == "" {
			add(".control", "%q: want an address such as 10.0.0.1:2391", h.Control)
		} else if at, twice := addresses[h.Control]; twice {
			add(".control", "%s is that of hosts[%d] already", h.Control, at)
		}
		members[h.Member], addresses[h.Control] = i, i
		for _, list := range []struct {
			key  string
			urls []string
		}{{"peer-urls", h.PeerURLs}, {"client-urls", h.ClientURLs}} {
			for j, u := range list.urls {
				if parsed, err := url.Parse(u); err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Port() == "" {
					add(fmt.Sprintf(".%s[%d]", list.key, j), "%q: want a URL such as https://10.0.0.1:2380", u)
				}
			}
		}
	}
	return all
}
