package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/yamlfile"
)

// Flag describes a flag of `requorum agent`. It sets one key, and so has that key's
// default and check.
type Flag struct {
	Name  string // such as "repo"
	Key   string // such as "repository.url"
	Usage string
	List  List
	path  bool // of a file or directory: may be relative to the working directory
}

// List is how a flag takes several values.
type List int

// The values of List.
const (
	One      List = iota
	Repeated      // the flag is given again
	Commas        // with commas between them, or given again
)

// Flags holds what a first user needs; a file has the other keys.
var Flags = []Flag{
	{Name: "data-dir", Key: "member.data-dir", path: true, Usage: "the member's data `directory`, which is only read"},
	{Name: "wal-dir", Key: "member.wal-dir", path: true, Usage: "the member's --wal-dir, if it has one"},
	{Name: "endpoints", Key: "etcd.endpoints", List: Commas, Usage: "etcd's client URLs, separated by commas, the member's own first (default " + client.DefaultEndpoint + ", or ETCDCTL_ENDPOINTS)"},
	{Name: "cacert", Key: "etcd.cacert", path: true, Usage: "verify etcd's certificate with the CA in this `file`"},
	{Name: "cert", Key: "etcd.cert", path: true, Usage: "client certificate `file`"},
	{Name: "key", Key: "etcd.key", path: true, Usage: "client key `file`"},
	{Name: "user", Key: "etcd.user", Usage: "`name` of etcd's user; full snapshots need the role root"},
	{Name: "password-file", Key: "etcd.password-file", path: true, Usage: "password of --user: the first line of this `file` (default ETCDCTL_PASSWORD)"},
	{Name: "repo", Key: "repository.url", path: true, Usage: "`URL` of the repository: file:///path, /path, ./path, or s3://bucket/prefix?region=…"},
	{Name: "recipient", Key: "encryption.recipients", List: Repeated, Usage: "encrypt to this age `recipient` (age1…); may be given more than once"},
	{Name: "recipients-file", Key: "encryption.recipients-files", List: Repeated, path: true, Usage: "encrypt to the age recipients in this `file`, one a line"},
	{Name: "identity", Key: "encryption.identity-files", List: Repeated, path: true, Usage: "verify and merge what is encrypted with the age identities in this `file`"},
	{Name: "signing-key", Key: "repository.signing-key-file", path: true, Usage: "sign with the Ed25519 key in this `file` (ssh-keygen -t ed25519)"},
	{Name: "trust", Key: "repository.trust-file", path: true, Usage: "believe only what a key in this `file` signed (OpenSSH's allowed_signers)"},
	{Name: "revoked-keys", Key: "repository.revoked-keys-files", List: Repeated, path: true, Usage: "do not trust the public keys in this `file`, one a line"},
	{Name: "jobs", Key: "jobs", Usage: "default, or none: archive the log, and take only the full snapshots that it needs"},
	{Name: "name", Key: "name", Usage: "the agent's name, unique in the repository (default: the host's name)"},
	{Name: "spool-dir", Key: "archive.spool-dir", path: true, Usage: "`directory` for segments while the repository is unreachable (default: in the user's state directory)"},
	{Name: "listen", Key: "listen.address", Usage: "host:port of the status page (default " + Default().Listen.Address + ")"},
}

// commandLine is the place of what no flag sets.
const commandLine = "command line"

// FromFlags returns the configuration that flags give, by their names. ETCDCTL_ variables
// count for flags that are not given.
func FromFlags(given map[string][]string, getenv func(string) string) (*Config, error) {
	keys, err := fromEnvironment(getenv)
	if err != nil {
		return nil, err
	}
	for _, f := range Flags {
		values := slices.Clone(given[f.Name])
		if len(values) == 0 {
			continue
		}
		for i, v := range values {
			if f.path && !strings.Contains(v, "://") {
				if values[i], err = filepath.Abs(v); err != nil {
					return nil, fmt.Errorf("--%s: %w", f.Name, err)
				}
			}
		}
		keys[f.Key] = values
	}
	if len(keys["member.data-dir"])+len(keys["member.wal-dir"]) == 0 {
		return nil, errors.New("no data directory: give the member's --data-dir, or with --config a file that has no member")
	}
	data, err := yaml.Marshal(nested(keys))
	if err != nil {
		return nil, err
	}
	return parseSource(commandLine, source{data: data, flags: true, getenv: getenv, zone: time.UTC})
}

// fromEnvironment returns the keys that etcdctl's variables set.
func fromEnvironment(getenv func(string) string) (map[string][]string, error) {
	env, err := client.ConfigFromEnv(getenv)
	switch {
	case err != nil:
		return nil, err
	case env.InsecureSkipTLSVerify:
		return nil, errors.New("ETCDCTL_INSECURE_SKIP_TLS_VERIFY: the agent verifies etcd's certificate: give --cacert, and unset it")
	case env.Token != "":
		return nil, errors.New("ETCDCTL_AUTH_JWT_TOKEN: the agent logs in itself: give --user and --password-file, and unset it")
	}
	for i, e := range env.Endpoints {
		if env.SecureTransport && !strings.Contains(e, "://") {
			env.Endpoints[i] = "https://" + e
		}
	}
	keys := map[string][]string{}
	for key, values := range map[string][]string{
		"etcd.endpoints": env.Endpoints, "etcd.user": {env.User},
		"etcd.cacert": absolute(env.CACert), "etcd.cert": absolute(env.Cert), "etcd.key": absolute(env.Key),
		"etcd.dial-timeout": timeout(env.DialTimeout), "etcd.command-timeout": timeout(env.CommandTimeout),
	} {
		if len(values) > 0 && values[0] != "" {
			keys[key] = values
		}
	}
	return keys, nil
}

func absolute(path string) []string {
	if abs, err := filepath.Abs(path); err == nil && path != "" {
		path = abs
	}
	return []string{path}
}

func timeout(d time.Duration) []string {
	if d == 0 {
		return nil
	}
	return []string{yamlfile.Duration(d).String()}
}

// nested returns keys such as "etcd.user" as sections, in the form of a file.
func nested(keys map[string][]string) map[string]any {
	all := map[string]any{}
	for key, values := range keys {
		names := strings.Split(key, ".")
		section := all
		for _, name := range names[:len(names)-1] {
			if section[name] == nil {
				section[name] = map[string]any{}
			}
			section = section[name].(map[string]any)
		}
		section[names[len(names)-1]] = values
		if len(values) == 1 {
			section[names[len(names)-1]] = values[0]
		}
	}
	return all
}

// flagsByKey maps a key to its flag, as it is typed.
var flagsByKey = func() map[string]string {
	all := map[string]string{}
	for _, f := range Flags {
		all[f.Key] = "--" + f.Name
	}
	return all
}()

// keysInText replaces keys in an error's text with their flags. Only keys with a dot are
// surely keys; of two that begin alike, the longer one comes first.
var keysInText = func() *strings.Replacer {
	var pairs []string
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(flagsByKey))) {
		if strings.Contains(key, ".") {
			pairs = append(pairs, key, flagsByKey[key])
		}
	}
	return strings.NewReplacer(pairs...)
}()

// Fault returns what is wrong with a key: with its line in the file, or with its flag.
func (s *source) Fault(key string, err error) error { return s.named(s.Places.Fault(key, err)) }

// named returns a fault with the flag in place of the key and the line, if flags set keys.
func (s *source) named(err error) error {
	var fault *yamlfile.Fault
	if !s.flags || !errors.As(err, &fault) {
		return err
	}
	err = &inFlags{fault.Err}
	key, _, _ := strings.Cut(fault.Key, "[")
	for k := key; k != ""; k = k[:max(strings.LastIndexByte(k, '.'), 0)] {
		if flag := flagsByKey[k]; flag != "" {
			return &yamlfile.Fault{Place: flag, Err: err}
		}
	}
	return &yamlfile.Fault{Place: commandLine, Key: fault.Key, Err: err}
}

// inFlags is an error whose text names flags, not keys.
type inFlags struct{ err error }

func (e *inFlags) Error() string { return keysInText.Replace(e.err.Error()) }
func (e *inFlags) Unwrap() error { return e.err }
