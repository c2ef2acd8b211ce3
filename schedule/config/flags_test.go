package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fromEnv is an environment of a test.
func fromEnv(all map[string]string) func(string) string {
	return func(name string) string { return all[name] }
}

// TestFromFlags_AllFlags_SameAsFile gives every flag, and a file with the same keys.
func TestFromFlags_AllFlags_SameAsFile(t *testing.T) {
	given, file := map[string][]string{}, map[string][]string{}
	for _, f := range Flags {
		value := map[string]string{
			"endpoints": "https://h:2379", "repo": "s3://bucket/p?region=x", "jobs": "none", "name": "m1", "user": "backup", "listen": "127.0.0.1:1",
			"recipient": "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p",
		}[f.Name]
		if value == "" {
			value = "/" + f.Name
		}
		given[f.Name], file[f.Key] = []string{value}, []string{value}
		if f.List != One && f.Name != "recipient" {
			given[f.Name] = append(given[f.Name], value+"1")
			file[f.Key] = given[f.Name]
		}
	}
	c, err := FromFlags(given, none)
	require.NoError(t, err)
	data := strings.NewReplacer("\t", "  ").Replace(string(c.data))
	same, err := ParseWith([]byte(data), "agent.yaml", none)
	require.NoError(t, err)
	if c.String() != same.String() {
		t.Errorf("flags give\n%s\na file gives\n%s", c, same)
	}
	for key, values := range file {
		if !c.Given(key) {
			t.Errorf("no flag set %s to %v", key, values)
		}
	}
}

// TestFromFlags_Defaults_SameAsFile gives only what must be given.
func TestFromFlags_Defaults_SameAsFile(t *testing.T) {
	state := fromEnv(map[string]string{"STATE_DIRECTORY": "/state"})
	c, err := FromFlags(map[string][]string{"data-dir": {"etcd"}, "repo": {"./backups"}}, state)
	require.NoError(t, err)
	wd, err := os.Getwd()
	require.NoError(t, err)
	file, err := ParseWith([]byte("member: {data-dir: "+filepath.Join(wd, "etcd")+"}\nrepository: {url: "+filepath.Join(wd, "backups")+"}\n"), "agent.yaml", state)
	require.NoError(t, err)
	if c.String() != file.String() {
		t.Errorf("flags give\n%s\na file gives\n%s", c, file)
	}
}

// TestFromFlags_Wrong_NamesFlag gives wrong values: the errors name flags, and no key
// that has one.
func TestFromFlags_Wrong_NamesFlag(t *testing.T) {
	for _, c := range []struct {
		name  string
		given map[string][]string
		want  string
	}{
		{"nothing", nil, "give the member's --data-dir"},
		{"no repository", map[string][]string{"data-dir": {"/e"}}, "--repo: there is no repository: write --repo"},
		{"endpoint", map[string][]string{"data-dir": {"/e"}, "endpoints": {"http://h"}}, `--endpoints: "http://h" has no port`},
		{"password", map[string][]string{"data-dir": {"/e"}, "user": {"root:hunter2"}}, "--user: no password is read here: write the name, and --password-file"},
		{"certificate", map[string][]string{"data-dir": {"/e"}, "cert": {"/c"}}, "--cert: a certificate without its key: add --key"},
		{"recipient", map[string][]string{"data-dir": {"/e"}, "recipient": {"x"}}, "--recipient: "},
		{"jobs", map[string][]string{"data-dir": {"/e"}, "jobs": {"some"}}, `--jobs: "some" is not known`},
		{"no log", map[string][]string{"endpoints": {"http://h:1"}, "repo": {"/b"}}, "give the member's --data-dir"},
		{"listen", map[string][]string{"data-dir": {"/e"}, "listen": {"0.0.0.0:1"}}, "--listen: 0.0.0.0:1 is plain text to other machines"},
		{"trust", map[string][]string{"data-dir": {"/e"}, "trust": {"/t"}}, "--signing-key: "},
	} {
		_, err := FromFlags(c.given, none)
		require.ErrorContains(t, err, c.want, c.name)
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error has a secret: %v", c.name, err)
		}
	}
	home := fromEnv(map[string]string{"HOME": "/home"})
	c, err := FromFlags(map[string][]string{"data-dir": {"/e"}, "repo": {"/b"}, "cacert": {"/nowhere"}}, home)
	require.NoError(t, err)
	if faults := c.Check(); len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), "--cacert: ") {
		t.Errorf("a certificate that does not exist: %v", faults)
	}
}

// TestFromFlags_EtcdctlVariables_Count uses etcdctl's variables for flags that are not
// given, and refuses those that no key has.
func TestFromFlags_EtcdctlVariables_Count(t *testing.T) {
	env := map[string]string{
		"ETCDCTL_ENDPOINTS": "https://a:1, https://b:1", "ETCDCTL_CACERT": "/ca", "ETCDCTL_USER": "root:pass", "ETCDCTL_DIAL_TIMEOUT": "9s", "HOME": "/home",
	}
	given := map[string][]string{"data-dir": {"/e"}, "repo": {"/b"}}
	c, err := FromFlags(given, fromEnv(env))
	require.NoError(t, err)
	cfg, err := c.ClientConfig()
	require.NoError(t, err)
	if !slices.Equal(cfg.Endpoints, []string{"https://a:1", "https://b:1"}) || cfg.CACert != "/ca" || cfg.User != "root" || cfg.Password != "pass" || cfg.DialTimeout.Seconds() != 9 {
		t.Errorf("from the environment: %+v", cfg)
	}
	given["endpoints"], given["user"] = []string{"https://c:1"}, []string{"other"}
	_, err = FromFlags(given, fromEnv(env))
	require.ErrorContains(t, err, "--user: there is no password", "another user's password")
	env["ETCDCTL_USER"], env["ETCDCTL_PASSWORD"] = "", "mine"
	c, err = FromFlags(given, fromEnv(env))
	require.NoError(t, err)
	if cfg, err = c.ClientConfig(); err != nil || cfg.Password != "mine" || !slices.Equal(cfg.Endpoints, given["endpoints"]) {
		t.Errorf("flags win: %+v, %v", cfg, err)
	}
	for _, name := range []string{"ETCDCTL_INSECURE_SKIP_TLS_VERIFY", "ETCDCTL_AUTH_JWT_TOKEN"} {
		_, err = FromFlags(given, fromEnv(map[string]string{name: "true"}))
		require.ErrorContains(t, err, name)
	}
	c, err = FromFlags(map[string][]string{"data-dir": {"/e"}, "repo": {"/b"}}, fromEnv(map[string]string{"ETCDCTL_ENDPOINTS": "h:1", "ETCDCTL_INSECURE_TRANSPORT": "false", "HOME": "/home"}))
	require.NoError(t, err)
	if !slices.Equal(c.Etcd.Endpoints, []string{"https://h:1"}) {
		t.Errorf("a secure transport: %v", c.Etcd.Endpoints)
	}
}

// Every flag sets a key that exists.
func TestFlags_Keys_Exist(t *testing.T) {
	for _, f := range Flags {
		v := reflect.ValueOf(Default()).Elem()
		for name := range strings.SplitSeq(f.Key, ".") {
			found := reflect.Value{}
			for i := range v.NumField() {
				if v.Type().Field(i).Tag.Get("yaml") == name {
					found = v.Field(i)
				}
			}
			if !found.IsValid() {
				t.Fatalf("--%s sets %s, which does not exist", f.Name, f.Key)
			}
			v = found
		}
	}
}
