package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	agent "github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks/place"
)

// fault is what is wrong with a key.
type fault struct {
	key string
	err error
}

// names are the keys of each kind's section, for what is given and not used.
var names = map[Kind]string{Store: "member.store", Systemd: "member.systemd", StaticPod: "member.static-pod", Command: "member.command"}

// memberName also becomes part of a file's name.
var memberName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

var errMissing = errors.New("is not given, and there is no default")

func (c *Config) contradictions(places *agent.Places) (all []fault) {
	add := func(key string, format string, args ...any) {
		all = append(all, fault{key, fmt.Errorf(format, args...)})
	}
	for _, k := range []struct{ key, value string }{
		{"listen.address", c.Listen.Address}, {"listen.cert", c.Listen.Cert}, {"listen.key", c.Listen.Key}, {"listen.client-ca", c.Listen.ClientCA},
		{"member.name", c.Member.Name}, {"member.data-dir", c.Member.DataDir}, {"member.kind", string(c.Member.Kind)},
	} {
		if k.value == "" {
			add(k.key, "%w", errMissing)
		}
	}
	m := c.Member
	if m.Name != "" && !memberName.MatchString(m.Name) {
		add("member.name", "%q: want letters, digits, dots, underscores and hyphens", m.Name)
	}
	for _, k := range []struct{ key, path string }{
		{"member.data-dir", m.DataDir}, {"member.wal-dir", m.WALDir}, {"state-dir", c.StateDir}, {"audit-file", c.AuditFile},
		{"listen.cert", c.Listen.Cert}, {"listen.key", c.Listen.Key}, {"listen.client-ca", c.Listen.ClientCA},
		{"member.store.log-file", m.Store.LogFile}, {"member.static-pod.manifest", m.StaticPod.Manifest}, {"member.static-pod.aside-dir", m.StaticPod.AsideDir},
		{"member.systemd.environment-file", m.Systemd.EnvironmentFile},
	} {
		if k.path != "" && !filepath.IsAbs(k.path) {
			add(k.key, "%s is relative, and would mean another file in another folder: write the whole path", k.path)
		}
	}
	if m.DataDir != "" && filepath.Clean(m.DataDir) == "/" {
		add("member.data-dir", "/ is no data directory")
	}
	if inside(c.StateDir, m.DataDir) || inside(c.AuditFile, m.DataDir) {
		add("member.data-dir", "the state folder or the audit file lies in it: they must outlive it")
	}
	if m.Owner != "" && strings.Count(m.Owner, ":") != 1 {
		add("member.owner", "%q: want user:group, such as etcd:etcd", m.Owner)
	}
	for i, u := range c.Repositories {
		if err := place.Check(u); err != nil {
			add(fmt.Sprintf("repositories[%d]", i), "%w", err)
		} else if !strings.Contains(u, "://") && !filepath.IsAbs(u) {
			add(fmt.Sprintf("repositories[%d]", i), "%s is relative, and would mean another folder in another one: write the whole path", u)
		}
	}
	for i, path := range c.IdentityFiles {
		if !filepath.IsAbs(path) {
			add(fmt.Sprintf("identity-files[%d]", i), "%s is relative, and would mean another file in another folder: write the whole path", path)
		}
	}
	for kind, key := range names {
		if kind != m.Kind && places.Given(key) {
			add(key, "is for kind %s, and the member is of kind %s: remove it", kind, m.Kind)
		}
	}
	for _, k := range []struct {
		key   string
		value agent.Duration
	}{{"member.stop-timeout", m.StopTimeout}, {"member.start-timeout", m.StartTimeout}} {
		if k.value <= 0 {
			add(k.key, "want a time to wait, such as 3m")
		}
	}
	switch c.Log.Level {
	case "debug", "info", "warn", "error":
	default:
		add("log.level", "%q: want debug, info, warn or error", c.Log.Level)
	}
	switch c.Log.Format {
	case "text", "json":
	default:
		add("log.format", "%q: want text or json", c.Log.Format)
	}
	return slices.Concat(all, m.kindFaults(), c.clientFaults(places))
}

func (m Member) kindFaults() (all []fault) {
	switch m.Kind {
	case "":
	case Store:
		all = needed("member.store.command", len(m.Store.Command) > 0, m.Kind)
	case Systemd:
		all = m.Systemd.faults("member.systemd.")
	case StaticPod:
		all = m.StaticPod.faults("member.static-pod.")
	case Command:
		all = m.Command.faults("member.command.")
	case K3s, RKE2, Talos:
	default:
		all = append(all, fault{"member.kind", fmt.Errorf("%q: want store, systemd, static-pod, command, k3s, rke2 or talos", m.Kind)})
	}
	return all
}

// inside tells whether a path is a folder or lies in it.
func inside(path, folder string) bool {
	if path == "" || folder == "" {
		return false
	}
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
