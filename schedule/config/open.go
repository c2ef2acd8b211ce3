package config

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/verify/verdict"
)

// ClientConfig is how to reach the cluster; the password is read anew.
func (c *Config) ClientConfig() (store.ClientConfig, error) {
	e := c.Etcd
	cfg := store.ClientConfig{
		Endpoints: e.Endpoints, DiscoverEndpoints: e.DiscoverEndpoints,
		CACert: e.CACert, Cert: e.Cert, Key: e.Key, User: e.User,
		DialTimeout: e.DialTimeout.Std(), CommandTimeout: e.CommandTimeout.Std(),
		Logger: c.Logger,
	}
	var err error
	switch {
	case e.User == "":
	case e.PasswordFile != "":
		if cfg.Password, err = firstLine(e.PasswordFile); err != nil {
			return cfg, c.fault("etcd.password-file", err)
		}
	default:
		cfg.Password = c.getenv(EtcdPasswordVariable)
	}
	return cfg, nil
}

// OpenSink opens the repository's place, with its limits and with retrying. It is
// not looked at yet. The caller closes the sink.
func (c *Config) OpenSink(ctx context.Context) (sinks.Sink, error) {
	r := c.Repository
	s, err := place.Open(ctx, r.URL, r.RetryFor.Std())
	if err != nil {
		return nil, c.fault("repository.url", err)
	}
	if r.LimitUpload > 0 || r.LimitDownload > 0 {
		s = sinks.Limit(s, int64(r.LimitUpload), int64(r.LimitDownload))
	}
	return sinks.Retry(s, sinks.RetryPolicy{For: r.RetryFor.Std(), Logger: c.Logger}), nil
}

// Codec is how objects are stored; files of recipients are read anew.
func (c *Config) Codec() (codec.Options, error) {
	o := codec.Options{Level: codec.Level(c.Encryption.Level)}
	for i, s := range c.Encryption.Recipients {
		r, err := codec.ParseRecipient(s)
		if err != nil {
			return o, c.fault(fmt.Sprintf("encryption.recipients[%d]", i), err)
		}
		o.Recipients = append(o.Recipients, r)
	}
	for i, path := range c.Encryption.RecipientsFiles {
		some, err := codec.ParseRecipientsFile(path)
		if err != nil {
			return o, c.fault(fmt.Sprintf("encryption.recipients-files[%d]", i), err)
		}
		o.Recipients = append(o.Recipients, some...)
	}
	return o, nil
}

// Identities open what is encrypted; their files are read anew.
func (c *Config) Identities() ([]age.Identity, error) {
	var all []age.Identity
	for i, path := range c.Encryption.IdentityFiles {
		some, err := codec.ParseIdentitiesFile(path)
		if err != nil {
			return nil, c.fault(fmt.Sprintf("encryption.identity-files[%d]", i), err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// SigningKey signs verdicts; nil where none is configured.
func (c *Config) SigningKey() (ed25519.PrivateKey, error) {
	if c.Verdicts.SignKeyFile == "" {
		return nil, nil
	}
	key, err := verdict.ReadSigningKey(c.Verdicts.SignKeyFile)
	if err != nil {
		return nil, c.fault("verdicts.sign-key-file", err)
	}
	return key, nil
}

// TrustedKeys are those whose verdicts are believed; none is everybody's.
func (c *Config) TrustedKeys() ([]ed25519.PublicKey, error) {
	var all []ed25519.PublicKey
	for i, path := range c.Verdicts.TrustedKeyFiles {
		key, err := verdict.ReadVerifyKey(path)
		if err != nil {
			return nil, c.fault(fmt.Sprintf("verdicts.trusted-key-files[%d]", i), err)
		}
		all = append(all, key)
	}
	return all, nil
}
