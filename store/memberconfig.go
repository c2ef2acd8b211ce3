package store

import (
	"cmp"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// TLSFiles are the PEM files of mutual TLS: the certificate that members and clients
// show each other, and the CA that must have signed it.
type TLSFiles struct{ Cert, Key, CA string }

// Settings are what all members of a cluster share.
type Settings struct {
	TLS           TLSFiles // of clients and peers; empty: plain text
	SnapshotCount uint64   // 0: etcd's default
	// LogFile takes etcd's log, from warnings on; empty: standard error.
	LogFile string
}

// MemberConfig describes one member of the bundled etcd. Names are etcd's flags.
type MemberConfig struct {
	Name    string
	DataDir string // made with mode 0700
	WALDir  string // empty: in the data directory

	ListenClientURLs  []string
	ListenPeerURLs    []string
	AdvertisePeerURLs []string // empty: ListenPeerURLs

	// InitialCluster is "m1=http://…,m2=http://…"; empty is this member alone.
	// It, its state and Token count for a new data directory only; etcd ignores
	// them for an existing one.
	InitialCluster      string
	InitialClusterState string // new (default) or existing
	Token               string
	QuotaBytes          int64 // 0: etcd's default; less: none
	Settings
}

func (c MemberConfig) withDefaults() MemberConfig {
	if len(c.AdvertisePeerURLs) == 0 {
		c.AdvertisePeerURLs = c.ListenPeerURLs
	}
	c.InitialCluster = cmp.Or(c.InitialCluster, c.Name+"="+c.AdvertisePeerURLs[0])
	c.InitialClusterState = cmp.Or(c.InitialClusterState, embed.ClusterStateFlagNew)
	return c
}

// embedConfig returns etcd's own form of c. options are for its gRPC server.
func (c MemberConfig) embedConfig(logger *zap.Logger, options []grpc.ServerOption) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.WalDir = c.Name, c.DataDir, c.WALDir
	for _, urls := range []struct {
		from []string
		to   *[]url.URL
	}{
		{c.ListenClientURLs, &cfg.ListenClientUrls}, {c.ListenClientURLs, &cfg.AdvertiseClientUrls},
		{c.ListenPeerURLs, &cfg.ListenPeerUrls}, {c.AdvertisePeerURLs, &cfg.AdvertisePeerUrls},
	} {
		*urls.to = nil
		for _, text := range urls.from {
			u, err := url.Parse(text)
			if err != nil {
				return nil, fmt.Errorf("store: member %s: %w", c.Name, err)
			}
			*urls.to = append(*urls.to, *u)
		}
	}
	cfg.InitialCluster, cfg.ClusterState = c.InitialCluster, c.InitialClusterState
	cfg.InitialClusterToken = cmp.Or(c.Token, cfg.InitialClusterToken)
	cfg.ClientTLSInfo, cfg.PeerTLSInfo = c.TLS.info(), c.TLS.info()
	cfg.QuotaBackendBytes = c.QuotaBytes
	cfg.SnapshotCount = cmp.Or(c.SnapshotCount, cfg.SnapshotCount)
	cfg.GRPCAdditionalServerOptions = options
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	return cfg, nil
}

func (t TLSFiles) info() transport.TLSInfo {
	return transport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.CA, ClientCertAuth: t.CA != ""}
}

// buildLogger returns etcd's own logger from a level on, to LogFile or standard error.
func (c MemberConfig) buildLogger(level zap.AtomicLevel) (*zap.Logger, error) {
	output := []string{cmp.Or(c.LogFile, embed.StdErrLogOutput)}
	config := logutil.DefaultZapLoggerConfig
	config.OutputPaths, config.ErrorOutputPaths, config.Level = output, output, level
	logger, err := config.Build()
	if err != nil {
		return nil, fmt.Errorf("store: log of member %s: %w", c.Name, err)
	}
	return logger, nil
}
