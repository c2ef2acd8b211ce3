package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/store/yamlfile"
)

// source is where a Config came from.
type source struct {
	*yamlfile.Places
	data   []byte // that stood in the file
	flags  bool   // they set the keys: there is no file
	getenv func(string) string
	zone   *time.Location
}

// ReadWith reads the file of an agent; getenv is the environment.
func ReadWith(path string, getenv func(string) string) (*Config, error) {
	if err := safedir.TrustedFile(path); err != nil {
		return nil, fmt.Errorf("the agent's configuration: %w", err)
	}
	data, err := sinks.ReadFile(path, sinks.SmallFile)
	if err != nil {
		return nil, fmt.Errorf("the agent's configuration: %w", err)
	}
	return ParseWith(data, path, getenv)
}

// Parse reads a configuration. Its error holds all faults (errors.Join), each
// with name, line, key and what to write. It looks at no file and no network.
func Parse(data []byte, name string) (*Config, error) { return ParseWith(data, name, os.Getenv) }

// ParseWith is Parse with another environment.
func ParseWith(data []byte, name string, getenv func(string) string) (*Config, error) {
	return parseSource(name, source{data: data, getenv: getenv, zone: time.UTC})
}

func parseSource(name string, from source) (*Config, error) {
	c := Default()
	c.source = from
	// The schedules may be "": structure runs after full snapshots only, and full when
	// the archived log needs it.
	places, faults := yamlfile.Read(from.data, name, "docs/agent-configuration.md", c, removedKeys, "jobs.full.schedule", "jobs.structure.schedule")
	if places == nil {
		return nil, errors.Join(faults...)
	}
	for i, err := range faults {
		faults[i] = from.named(err)
	}
	c.Places = places
	c.derive()
	faults = append(faults, c.contradictions()...)
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return c, nil
}

// ClientConfig is how to reach the cluster; the password is read anew.
func (c *Config) ClientConfig() (client.Config, error) {
	e := c.Etcd
	cfg := client.Config{
		Endpoints: e.Endpoints, DiscoverEndpoints: e.DiscoverEndpoints,
		CACert: e.CACert, Cert: e.Cert, Key: e.Key, User: e.User,
		DialTimeout: e.DialTimeout.Std(), CommandTimeout: e.CommandTimeout.Std(),
		Logger: c.Logger,
	}
	var err error
	switch {
	case e.User == "":
	case e.PasswordFile != "":
		if cfg.Password, err = sinks.ReadSecret(e.PasswordFile); err != nil {
			return cfg, c.Fault("etcd.password-file", err)
		}
	default:
		cfg.Password = c.passwordVariable()
	}
	return cfg, nil
}

// passwordVariable returns the password of etcd.user that the environment holds.
func (c *Config) passwordVariable() string {
	if password := c.getenv(EtcdPasswordVariable); password != "" {
		return password
	}
	env, err := client.ConfigFromEnv(c.getenv)
	if err != nil || env.User != "" && env.User != c.Etcd.User { // another user's
		return ""
	}
	return env.Password
}

// OpenSink opens the repository's place, with its limits and with retrying. It is
// not looked at yet. The caller closes the sink.
func (c *Config) OpenSink(ctx context.Context) (sinks.Sink, error) {
	r := c.Repository
	s, err := place.Open(ctx, r.URL, sinks.Options{
		Limits: sinks.Limits{Up: int64(r.LimitUpload), Down: int64(r.LimitDownload)},
		Retry:  sinks.Retry{For: r.RetryFor.Std(), Logger: c.Logger},
	})
	if err != nil {
		return nil, c.Fault("repository.url", err)
	}
	keys, err := c.Keys()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return repository.WithKeys(s, keys), nil
}

// Keys are with which this agent signs, and whose signatures it believes.
func (c *Config) Keys() (signing.Keys, error) {
	r := c.Repository
	keys, err := signing.Read(r.SigningKeyFile, r.TrustFile, r.RevokedKeysFiles)
	switch {
	case err != nil && r.TrustFile == "":
		err = c.Fault("repository.signing-key-file", err)
	case err != nil:
		err = c.Fault("repository.trust-file", err)
	}
	return keys, err
}

// Codec is how objects are stored; files of recipients are read anew.
func (c *Config) Codec() (codec.Options, error) {
	o := codec.Options{Level: codec.Level(c.Encryption.Level)}
	for i, s := range c.Encryption.Recipients {
		r, err := codec.ParseRecipient(s)
		if err != nil {
			return o, c.Fault(fmt.Sprintf("encryption.recipients[%d]", i), err)
		}
		o.Recipients = append(o.Recipients, r)
	}
	for i, path := range c.Encryption.RecipientsFiles {
		some, err := codec.ParseRecipientsFile(path)
		if err != nil {
			return o, c.Fault(fmt.Sprintf("encryption.recipients-files[%d]", i), err)
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
			return nil, c.Fault(fmt.Sprintf("encryption.identity-files[%d]", i), err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// Secret is a text that no printed form of a Config shows. Reveal gives it.
type Secret string

const hidden = "(hidden)"

// Reveal is the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String hides it, as do the other printed forms.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides it.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// MarshalText hides it, in YAML, in JSON and in logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads one of the three.
func (r *Run) UnmarshalText(text []byte) error {
	switch v := Run(text); v {
	case RunLease, RunHere, RunOff:
		*r = v
		return nil
	}
	return fmt.Errorf("%q is none of lease, here and off", text)
}

// UnmarshalText reads one of the two.
func (l *Lease) UnmarshalText(text []byte) error {
	switch v := Lease(text); v {
	case LeaseOn, LeaseOff:
		*l = v
		return nil
	}
	return fmt.Errorf("%q is neither on nor off", text)
}
