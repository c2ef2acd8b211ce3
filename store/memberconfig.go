package store

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// TLSFiles are the PEM files of one kind of listener.
type TLSFiles struct {
	Cert, Key string
	// CA verifies the other side; with ClientCertAuth a certificate signed by it
	// is demanded.
	CA             string
	ClientCertAuth bool
}

// Settings are what all members of a cluster share. Names and defaults are
// etcd's; the zero value is its default.
type Settings struct {
	Token string // initial-cluster-token

	ClientTLS, PeerTLS TLSFiles
	// AllowPlaintext permits listeners beyond loopback without TLS.
	AllowPlaintext bool

	QuotaBytes              int64
	AutoCompactionMode      string // periodic or revision
	AutoCompactionRetention string // such as 8h, or 1000
	SnapshotCount           uint64
	Heartbeat, Election     time.Duration // whole milliseconds
	InitialCorruptCheck     bool

	LogLevel   string   // debug, info, warn, error, panic, fatal
	LogOutputs []string // stderr, stdout, files
}

// MemberConfig says how to run one bundled member. Names are etcd's flags.
type MemberConfig struct {
	Name    string // empty: default
	DataDir string // needed; made with mode 0700
	WALDir  string // empty: in the data directory

	ListenClientURLs, AdvertiseClientURLs []string // empty: http://127.0.0.1:2379
	ListenPeerURLs, AdvertisePeerURLs     []string // empty: http://127.0.0.1:2380
	MetricsURLs                           []string

	// InitialCluster is "m1=http://…,m2=http://…"; empty is this member alone.
	// It, its state and Token count for a new data directory only; etcd ignores
	// them for an existing one.
	InitialCluster      string
	InitialClusterState string // new (default) or existing

	Settings
}

const (
	defaultClientURL = "http://127.0.0.1:2379"
	defaultPeerURL   = "http://127.0.0.1:2380"
)

func (c MemberConfig) withDefaults() MemberConfig {
	if c.Name == "" {
		c.Name = embed.DefaultName
	}
	c.ListenClientURLs, c.AdvertiseClientURLs = defaultURLs(c.ListenClientURLs, c.AdvertiseClientURLs, defaultClientURL)
	c.ListenPeerURLs, c.AdvertisePeerURLs = defaultURLs(c.ListenPeerURLs, c.AdvertisePeerURLs, defaultPeerURL)
	if c.InitialCluster == "" {
		var parts []string
		for _, u := range c.AdvertisePeerURLs {
			parts = append(parts, c.Name+"="+u)
		}
		c.InitialCluster = strings.Join(parts, ",")
	}
	if c.InitialClusterState == "" {
		c.InitialClusterState = embed.ClusterStateFlagNew
	}
	return c
}

// defaultURLs advertises where it listens, unless set otherwise.
func defaultURLs(listen, advertise []string, fallback string) (l, a []string) {
	if len(listen) == 0 {
		listen = []string{fallback}
	}
	if len(advertise) == 0 {
		advertise = listen
	}
	return listen, advertise
}

// embedConfig translates. streams is put in front of etcd's own server.
func (c MemberConfig) embedConfig(options []grpc.ServerOption) (*embed.Config, error) {
	if c.DataDir == "" {
		return nil, errors.New("store: no data directory; give --data-dir")
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.WalDir = c.Name, c.DataDir, c.WALDir
	for _, urls := range []struct {
		what string
		from []string
		to   *[]url.URL
		tls  TLSFiles
		open bool // listened on
	}{
		{"client URL to listen on", c.ListenClientURLs, &cfg.ListenClientUrls, c.ClientTLS, true},
		{"peer URL to listen on", c.ListenPeerURLs, &cfg.ListenPeerUrls, c.PeerTLS, true},
		{"advertised client URL", c.AdvertiseClientURLs, &cfg.AdvertiseClientUrls, c.ClientTLS, false},
		{"advertised peer URL", c.AdvertisePeerURLs, &cfg.AdvertisePeerUrls, c.PeerTLS, false},
		{"metrics URL", c.MetricsURLs, &cfg.ListenMetricsUrls, c.ClientTLS, false},
	} {
		parsed, err := parseURLs(c.Name, urls.what, urls.from)
		if err != nil {
			return nil, err
		}
		if urls.open {
			if err := c.checkListeners(urls.what, parsed, urls.tls); err != nil {
				return nil, err
			}
		}
		*urls.to = parsed
	}
	cfg.InitialCluster, cfg.ClusterState = c.InitialCluster, c.InitialClusterState
	cfg.ClientTLSInfo, cfg.PeerTLSInfo = c.ClientTLS.info(), c.PeerTLS.info()
	cfg.QuotaBackendBytes = c.QuotaBytes
	cfg.GRPCAdditionalServerOptions = options
	if c.Token != "" {
		cfg.InitialClusterToken = c.Token
	}
	if c.AutoCompactionMode != "" {
		cfg.AutoCompactionMode = c.AutoCompactionMode
	}
	if c.AutoCompactionRetention != "" {
		cfg.AutoCompactionRetention = c.AutoCompactionRetention
	}
	if c.SnapshotCount != 0 {
		cfg.SnapshotCount = c.SnapshotCount
	}
	if err := setMilliseconds(&cfg.TickMs, "heartbeat interval", c.Heartbeat); err != nil {
		return nil, err
	}
	if err := setMilliseconds(&cfg.ElectionMs, "election timeout", c.Election); err != nil {
		return nil, err
	}
	if c.InitialCorruptCheck {
		if err := cfg.ServerFeatureGate.(featureSetter).Set("InitialCorruptCheck=true"); err != nil {
			return nil, fmt.Errorf("store: initial corruption check: %w", err)
		}
	}
	if c.LogLevel != "" {
		cfg.LogLevel = c.LogLevel
	}
	outputs := c.LogOutputs
	if len(outputs) == 0 {
		outputs = []string{embed.StdErrLogOutput}
	}
	logger, err := buildLogger(outputs, cfg.LogLevel)
	if err != nil {
		return nil, err
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	return cfg, nil
}

// featureSetter is the part of etcd's feature gate that can be written to.
type featureSetter interface{ Set(value string) error }

func (t TLSFiles) info() transport.TLSInfo {
	return transport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.CA, ClientCertAuth: t.ClientCertAuth}
}

func setMilliseconds(to *uint, what string, d time.Duration) error {
	if d == 0 {
		return nil
	}
	if d < 0 || d%time.Millisecond != 0 {
		return fmt.Errorf("store: %s of %s: want whole milliseconds above zero", what, d)
	}
	*to = uint(d / time.Millisecond)
	return nil
}

func parseURLs(member, what string, texts []string) ([]url.URL, error) {
	var urls []url.URL
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("store: member %s: %s: %w", member, what, err)
		}
		urls = append(urls, *u)
	}
	return urls, nil
}

// checkListeners refuses what etcd would start with, or refuse less clearly: a
// listener that the network can reach and that anybody could read and write
// through, and https without a certificate.
func (c MemberConfig) checkListeners(what string, urls []url.URL, files TLSFiles) error {
	if (files.Cert == "") != (files.Key == "") {
		return fmt.Errorf("store: member %s: %s: TLS needs both a certificate and a key", c.Name, what)
	}
	if files.ClientCertAuth && files.CA == "" {
		return fmt.Errorf("store: member %s: %s: client certificates are demanded and no CA to verify them is given", c.Name, what)
	}
	for _, u := range urls {
		switch u.Scheme {
		case "https", "unixs":
			if files.Cert == "" {
				return fmt.Errorf("store: member %s: %s %s needs a certificate and a key", c.Name, what, u.String())
			}
		case "unix":
		case "http":
			if files.Cert != "" {
				return fmt.Errorf("store: member %s: %s %s is plain text although a certificate is given; write https://", c.Name, what, u.String())
			}
			if !loopback(u.Hostname()) && !c.AllowPlaintext {
				return fmt.Errorf("store: member %s: %s %s would let anybody on the network read and write without TLS; use https:// with a certificate, a loopback address, or allow plain text explicitly", c.Name, what, u.String())
			}
		default:
			return fmt.Errorf("store: member %s: %s %s: want http, https, unix or unixs", c.Name, what, u.String())
		}
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
