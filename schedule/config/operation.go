package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/store/yamlfile"
)

// Retention is what stays recoverable. A full snapshot goes only when no line
// here keeps it; log goes with the snapshots that it follows.
type Retention struct {
	// Any point of this last time stays recoverable.
	//
	// Default: a mistake of Friday is found on Monday.
	AnyPoint yamlfile.Duration `yaml:"any-point"`
	// The newest full snapshots, this many.
	//
	// Default: two may be damaged.
	Last int `yaml:"last"`
	// The newest of each of this many hours that have one.
	//
	// Default: none.
	Hourly int `yaml:"hourly"`
	// The newest of each of this many days.
	//
	// Default: none.
	Daily int `yaml:"daily"`
	// The newest of each of this many weeks.
	//
	// Default: none.
	Weekly int `yaml:"weekly"`
	// The newest of each of this many months.
	//
	// Default: none.
	Monthly int `yaml:"monthly"`
	// All full snapshots that are younger than this; 0: none for their age.
	//
	// Default: none.
	Within yamlfile.Duration `yaml:"within"`
	// So many full snapshots at least, whatever their age; 1 or more.
	//
	// Default: if no new ones come, the old ones stay.
	Minimum int `yaml:"minimum"`
	// What no rule keeps is deleted this much later; 24h at least.
	//
	// Default: a running restore can end.
	Grace yamlfile.Duration `yaml:"grace"`
}

// Policy is what retention keeps.
func (c *Config) Policy() retention.Policy {
	r := c.Retention
	return retention.Policy{
		AnyPoint: r.AnyPoint.Std(), Last: r.Last, Hourly: r.Hourly, Daily: r.Daily, Weekly: r.Weekly, Monthly: r.Monthly,
		Within: r.Within.Std(), Minimum: r.Minimum, Zone: c.Zone(), Grace: r.Grace.Std(),
	}
}

// Resources bound what the agent takes of its host.
type Resources struct {
	// Memory of a job that reads databases, in a process of its own: 256MiB at least.
	// The agent itself stays below 256 MiB.
	//
	// Default: for about two million keys; a job that needs more fails.
	JobMemory yamlfile.Bytes `yaml:"job-memory"`
	// Folder with room for two unpacked databases.
	//
	// Default: the system's temporary folder; name another where that is memory.
	ScratchDir string `yaml:"scratch-dir"`
}

// Objectives are what the agent is held to: beyond them it is not ready, and
// says why.
type Objectives struct {
	// At most this much may be lost with everything but the repository.
	//
	// Default: 1m, and six archive intervals at least; two days without the archive.
	RecoveryPoint yamlfile.Duration `yaml:"recovery-point"`
	// A backup that has passed `structure` is never older than this.
	//
	// Default: none.
	VerifiedWithin yamlfile.Duration `yaml:"verified-within"`
	// Certificates that expire sooner than this are a problem.
	//
	// Default: none.
	CertificateNotice yamlfile.Duration `yaml:"certificate-notice"`
}

// Listen is the port of the status page, the API and the metrics.
type Listen struct {
	// Host and port.
	//
	// Default: this host alone.
	Address string `yaml:"address"`
	// File with the server's certificate, read at each handshake.
	//
	// Default: needed beyond loopback.
	Cert string `yaml:"cert"`
	// File with its key.
	//
	// Default: none.
	Key string `yaml:"key"`
	// File with the CA of those who may connect.
	//
	// Default: anybody who reaches the port.
	ClientCA string `yaml:"client-ca"`
	// File with SHA-256 fingerprints of refused client certificates, one a line, read
	// at each request.
	//
	// Default: none.
	DenyFile string `yaml:"deny-file"`
	// Serve plain text beyond loopback.
	//
	// Default: right only behind a proxy that encrypts.
	AllowPlaintext bool `yaml:"allow-plaintext"`
}

// Heartbeat are pings to a service that raises the alarm when they stay away,
// in the convention of healthchecks.
type Heartbeat struct {
	// The URL to ping, a secret: better `url-file` or the variable
	// REQUORUM_HEARTBEAT_URL.
	//
	// Default: none.
	URL Secret `yaml:"url"`
	// File whose first line is the URL.
	//
	// Default: none.
	URLFile string `yaml:"url-file"`
	// How often.
	//
	// Default: none.
	Every yamlfile.Duration `yaml:"every"`
	// One ping takes at most this.
	//
	// Default: none.
	Timeout yamlfile.Duration `yaml:"timeout"`
}

// Log is what the agent writes to standard error.
type Log struct {
	// text or json.
	//
	// Default: none.
	Format string `yaml:"format"`
	// debug, info, warn or error.
	//
	// Default: none.
	Level string `yaml:"level"`
}

// The environment variables that hold secrets.
const (
	EtcdPasswordVariable = "REQUORUM_ETCD_PASSWORD"
	HeartbeatURLVariable = "REQUORUM_HEARTBEAT_URL"
)

// HeartbeatURL is where to ping, read anew; empty where nothing is sent.
func (c *Config) HeartbeatURL() (string, error) {
	raw, key := c.Heartbeat.URL.Reveal(), "heartbeat.url"
	switch file := c.Heartbeat.URLFile; {
	case raw != "":
	case file != "":
		key = "heartbeat.url-file"
		line, err := sinks.ReadSecret(file)
		if err != nil {
			return "", c.Fault(key, err)
		}
		if raw = strings.TrimSpace(line); raw == "" {
			return "", c.Fault(key, fmt.Errorf("the first line of %s is blank: write the URL there", file))
		}
	default:
		raw = c.getenv(HeartbeatURLVariable)
	}
	if raw == "" {
		return "", nil
	}
	if err := checkURL(raw); err != nil {
		return "", c.Fault(key, err)
	}
	return raw, nil
}

// checkURL does not repeat the URL: it is a secret.
func checkURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return errors.New("no URL: write https://host/path")
	}
	return nil
}

func (k *checker) pings() {
	h := k.Heartbeat
	k.refuse(h.URL != "" && h.URLFile != "", "heartbeat.url-file", "there is a URL as well: remove one of them")
	if h.URL != "" {
		k.refuseErr("heartbeat.url", checkURL(h.URL.Reveal()))
	}
	if h.URL == "" && h.URLFile == "" && k.getenv(HeartbeatURLVariable) == "" {
		for _, key := range []string{"heartbeat.every", "heartbeat.timeout"} {
			k.refuse(k.Given(key), key, "it has no effect: add heartbeat.url-file, set %s, or remove the line", HeartbeatURLVariable)
		}
	}
	k.positive("heartbeat.every", h.Every, time.Second)
	k.positive("heartbeat.timeout", h.Timeout, 100*time.Millisecond)
	k.refuse(h.Timeout > h.Every, "heartbeat.timeout", "%s is longer than heartbeat.every (%s): write less", h.Timeout, h.Every)
}
