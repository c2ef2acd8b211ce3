package recovery

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const good = `cluster: production
etcd: {cacert: pki/etcd.crt}
repositories: ["file:///var/backups/etcd"]
defaults: {kind: systemd, data-dir: /var/lib/etcd/, systemd: {unit: etcd.service}, clients: [{name: api, kind: command, process: api, command: {start: [/a], stop: [/b]}}]}
hosts:
  - {member: m1, peer-urls: ["https://10.0.0.1:2380"], client-urls: ["https://10.0.0.1:2379"]}
  - {member: m2, run: ssh -J jump admin@m2 sudo -n, start-timeout: 1m, data-dir: /data}
`

func TestParse(t *testing.T) {
	c, err := ParseConfig([]byte(good), "/home/me/cluster.yaml")
	require.NoError(t, err)
	if c.Etcd.CACert != "/home/me/pki/etcd.crt" || c.Etcd.Cert != "" {
		t.Errorf("%+v", c)
	}
	one := c.Host("m1")
	if got := strings.Join(one.Command(), " "); got != "ssh -o BatchMode=yes -o ConnectTimeout=10 root@10.0.0.1" || one.Requorum != "requorum" || one.DataDir != "/var/lib/etcd" ||
		one.Name != "m1" || one.StartTimeout != one.StopTimeout || one.Systemd.Systemctl != "systemctl" || len(one.Clients) != 1 || one.Clients[0].StopTimeout == 0 {
		t.Errorf("by default: %s, %+v", got, one)
	}
	if h := c.Host("m2"); h == nil || strings.Join(h.Command(), ",") != "ssh,-J,jump,admin@m2,sudo,-n" || h.DataDir != "/data" || h.StartTimeout >= h.StopTimeout || h.Systemd.Unit != "etcd.service" || c.Host("m3") != nil || c.File() != "/home/me/cluster.yaml" {
		t.Errorf("%+v", c)
	}
}

// Each fault is found, with its line, and all of them at once.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"cluster: production", "", "cluster: is not given"},
		{"{cacert: pki/etcd.crt}", "{cert: x}", "cert and key go together"},
		{"{cacert: pki/etcd.crt}", "{user: root}", "user and password-file go together"},
		{"{cacert: pki/etcd.crt}", "{password: secret}", "password"},
		{"hosts:", "identity-files: [x]\nhosts:", "recipients"},
		{"file:///var/backups/etcd", "/var/backups/etcd", `line 3: repositories: "/var/backups/etcd": want a URL`},
		{"member: m2", "member: m1", "hosts[1].member: m1 is hosts[0] already"},
		{"member: m2", "member: ../m2", "hosts[1].member"},
		{"run: ssh -J jump admin@m2 sudo -n, ", "", "hosts[1].run: is not given"},
		{"run: ssh", "run: -oProxyCommand=x ssh", "want a command"},
		{"kind: systemd", "kind: k3s", "recovered by hand"},
		{"kind: systemd", "kind: store", "want systemd, static-pod or command"},
		{"cluster: production", "cluster: production\ndefaults: {store: {command: [etcd]}}", "defaults.store: requorum no longer has this key: start and stop"},
		{"data-dir: /data", "store: {command: [etcd]}", "hosts[1].store: requorum no longer has this key: start and stop"},
		{"kind: systemd, ", "", "hosts[0].kind: is not given"},
		{"unit: etcd.service", "unit: --x", "looks like an option"},
		{"data-dir: /data", "data-dir: data", "line 7: hosts[1].data-dir: data is relative"},
		{"data-dir: /data", "data-dir: /var/lib", "must outlive it"},
		{"data-dir: /data", "static-pod: {manifest: /m}", "hosts[1].static-pod: is for kind static-pod"},
		{"process: api, ", "", "hosts[0].clients[0].process: is not given"},
		{"https://10.0.0.1:2380", "10.0.0.1:2380", "peer-urls[0]"},
		{"https://10.0.0.1:2379", "https://10.0.0.1", "client-urls[0]"},
		{"https://10.0.0.1:2380", "https://-oProxyCommand=x:2380", "hosts[0].peer-urls[0]: \"https://-oProxyCommand=x:2380\": \"-oProxyCommand=x\" is no host"},
		{"https://10.0.0.1:2380", "https://a;b:2380", "is no host"},
		{"https://10.0.0.1:2379", "https://$(x):2379", "is no host"},
		{"cluster: production", "cluster: production\ncolour: red", "colour"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		if text == good {
			t.Fatalf("%q is not there", c.from)
		}
		if _, err := ParseConfig([]byte(text), "c.yaml"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.to, err, c.want)
		}
	}
	for _, host := range []string{"m1_a.example-x.org", "[fe80::1%25eth0]", "[::1]"} {
		_, err := ParseConfig([]byte(strings.Replace(good, "https://10.0.0.1", "https://"+host, 1)), "c.yaml")
		require.NoError(t, err)
	}
	_, err := ParseConfig([]byte("cluster: x\n"), "c.yaml")
	require.ErrorContains(t, err, "hosts")
}

// The example of docs/quorum-loss.md is right and has every key, and so has the table
// below it; it names no key that there is not.
func TestGuide(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", Guide))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(data), "```yaml\n")
	example, rest, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("no example in the page")
	}
	c, err := ParseConfig([]byte(example), "/home/me/cluster.yaml")
	require.NoError(t, err)
	table, _, _ := strings.Cut(rest, "\nIt is strict")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z][a-z.\\[\\]-]*)`").FindAllStringSubmatch(firstColumn(table), -1) {
		named[m[1]] = true
	}
	eachKey("", reflect.ValueOf(*c), func(key string, v reflect.Value) {
		// A host has one kind, and a client that is restarted is not stopped.
		other := regexp.MustCompile(`\.(command|static-pod|restart)\b`).MatchString(key)
		if v.IsZero() && !other {
			t.Errorf("the example lacks %s", key)
		}
		if !named[key] {
			t.Errorf("the table lacks %s", key)
		}
		delete(named, key)
	})
	for key := range named {
		t.Errorf("the table has %s, and no cluster file does", key)
	}
}

// firstColumn is that of a table in Markdown.
func firstColumn(table string) string {
	var all []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			all = append(all, cells[1])
		}
	}
	return strings.Join(all, "\n")
}

// eachKey goes through the keys that have values of their own; of a list of sections
// the first one counts.
func eachKey(path string, v reflect.Value, do func(key string, v reflect.Value)) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("yaml")
		if tag == "" || tag == "-" {
			continue
		}
		field, key := v.Field(i), path+tag
		switch {
		case strings.HasSuffix(path, "clients[].") && field.Kind() == reflect.Struct && tag != ",inline": // as of the member
		case tag == ",inline" || tag == "defaults": // which have the keys of a host
			if tag == ",inline" {
				eachKey(path, field, do)
			}
		case field.Kind() == reflect.Struct:
			eachKey(key+".", field, do)
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			if field.Len() > 0 {
				eachKey(key+"[].", field.Index(0), do)
			}
		default:
			do(key, field)
		}
	}
}
