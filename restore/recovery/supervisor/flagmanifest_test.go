package supervisor

import (
	"strings"
	"testing"
)

const kubeadm = `apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/etcd.advertise-client-urls: https://10.0.0.1:2379
  name: etcd
  namespace: kube-system
spec:
  containers:
  - command:
    - etcd
    - --advertise-client-urls=https://10.0.0.1:2379
    - --initial-advertise-peer-urls=https://10.0.0.1:2380
    - --initial-cluster=m1=https://10.0.0.1:2380 # of kubeadm init
    - --name=m1   
    - --snapshot-count=10000
    image: registry.k8s.io/etcd:3.6.6-0
    name: etcd
    volumeMounts:
    - {mountPath: /var/lib/etcd, name: etcd-data}
`

func edited(t *testing.T, text string) (string, error) {
	t.Helper()
	m, err := readFlagManifest([]byte(text), "etcd")
	if err != nil {
		return "", err
	}
	f, err := m.flags()
	if err != nil {
		return "", err
	}
	after, err := m.changed(f.Changes(wanted()))
	if err != nil {
		return "", err
	}
	again, err := readFlagManifest(after, "etcd")
	if err != nil {
		t.Fatalf("%v:\n%s", err, after)
	}
	if f, err := again.flags(); err != nil || len(f.Changes(wanted())) > 0 {
		t.Errorf("%+v %v is still stale:\n%s", f, err, after)
	}
	return string(after), nil
}

// TestManifest (promise 1): only those values change, or a line is added; every other
// byte stays.
func TestManifest(t *testing.T) {
	const cluster = "m1=https://10.0.0.1:2380,m2=https://10.0.0.9:2380"
	for _, c := range []struct {
		name     string
		old, now [][2]string // replaced in kubeadm: for the input, and for what comes out of it
	}{
		{"as kubeadm writes it", nil, [][2]string{{"--initial-cluster=m1=https://10.0.0.1:2380 # of kubeadm init\n", "--initial-cluster=" + cluster + " # of kubeadm init\n    - --initial-cluster-state=existing\n"}}},
		{
			"with quotes, two items, a single dash and a token",
			[][2]string{{"--initial-cluster=m1=https://10.0.0.1:2380 #", `"--initial-cluster=m1=https://10.0.0.1:2380" #`}, {"- --name=m1   \n", "- -name\n    - 'm0'\n    - --initial-cluster-state=new\n    - '--initial-cluster-token=etcd-cluster'\n"}},
			[][2]string{{`"--initial-cluster=m1=https://10.0.0.1:2380"`, `"--initial-cluster=` + cluster + `"`}, {"'m0'", "'m1'"}, {"state=new", "state=existing"}, {"token=etcd-cluster", "token=requorum-77"}},
		},
		{
			"in brackets",
			[][2]string{{"command:\n    - etcd\n", "command: [etcd, -initial-cluster=m9=http://a:1]\n    args:\n"}, {"    - --initial-cluster=m1=https://10.0.0.1:2380 # of kubeadm init\n", ""}},
			[][2]string{{"-initial-cluster=m9=http://a:1]", `"-initial-cluster=` + cluster + `", "--initial-cluster-state=existing"]`}},
		},
		{
			"in the environment",
			[][2]string{{"    - --initial-cluster=m1=https://10.0.0.1:2380 # of kubeadm init\n", ""}, {"    image:", "    env:\n    - name: ETCD_INITIAL_CLUSTER\n      value: m1=https://10.0.0.1:2380\n    - {name: ETCD_INITIAL_CLUSTER_STATE, value: new}\n    image:"}},
			[][2]string{{"value: m1=https://10.0.0.1:2380", "value: " + cluster}, {"value: new", `value: "existing"`}},
		},
	} {
		before := kubeadm
		for _, r := range c.old {
			if !strings.Contains(before, r[0]) {
				t.Fatalf("%s: %q is not in the text", c.name, r[0])
			}
			before = strings.Replace(before, r[0], r[1], 1)
		}
		want := before
		for _, r := range c.now {
			if !strings.Contains(want, r[0]) {
				t.Fatalf("%s: %q is not in the text", c.name, r[0])
			}
			want = strings.Replace(want, r[0], r[1], 1)
		}
		for _, ending := range []string{"\n", "\r\n"} {
			got, err := edited(t, strings.ReplaceAll(before, "\n", ending))
			if err != nil || got != strings.ReplaceAll(want, "\n", ending) {
				t.Errorf("%s: %v, came out as\n%s\nwant\n%s", c.name, err, got, want)
			}
		}
		if again, err := edited(t, want); err != nil || again != want {
			t.Errorf("%s: a second time: %v\n%s", c.name, err, again)
		}
	}
}

// TestManifestByHand (promise 1): what cannot be read for sure is not edited.
func TestManifestByHand(t *testing.T) {
	for _, c := range []struct{ name, old, now, want string }{
		{"a shell", "    - etcd\n", "    - /bin/sh\n    - -c\n", "a shell"},
		{"a shell's line", "    - --name=m1   \n", "    - exec etcd --initial-cluster=x\n", "a shell"},
		{"a configuration file", "--name=m1", "--config-file=/etc/etcd.yaml", "--config-file"},
		{"twice", "--snapshot-count=10000", "--name=m2", "given twice"},
		{"a variable", "--name=m1", "--name=$(NODE)", "variable"},
		{"an escape", "--initial-cluster=m1=https://10.0.0.1:2380 #", `"--initial-cluster=\x6d1=https://10.0.0.1:2380" #`, "line 14"},
		{"folded", "- --initial-cluster=m1=https://10.0.0.1:2380 # of kubeadm init", "- >-\n      --initial-cluster=m1=https://10.0.0.1:2380", "line 14"},
		{"an anchor", "- --initial-cluster=m1=https://10.0.0.1:2380 #", "- &c --initial-cluster=m1=https://10.0.0.1:2380 #", "line 14"},
		{"no container", "    name: etcd\n    vol", "    name: other\n    vol", "no container etcd"},
		{"two documents", "apiVersion: v1\n", "kind: X\n---\napiVersion: v1\n", "more than one document"},
		{"no YAML", "spec:\n", "spec: [\n", "no YAML"},
		{"no arguments", kubeadm[strings.Index(kubeadm, "  - command:"):strings.Index(kubeadm, "    image:")], "  -\n", "no list of arguments"},
	} {
		text := strings.Replace(kubeadm, c.old, c.now, 1)
		if text == kubeadm {
			t.Fatalf("%s: %q is not in the text", c.name, c.old)
		}
		if got, err := edited(t, text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q\n%s", c.name, err, c.want, got)
		}
	}
}

// FuzzManifest: an edit that is made changes nothing else, whatever the text is.
func FuzzManifest(f *testing.F) {
	f.Add(kubeadm)
	f.Add(strings.ReplaceAll(kubeadm, "\n", "\r\n"))
	f.Add("spec: {containers: [{name: etcd, args: [\"--name=é\", -initial-cluster, 'x']}]}")
	f.Fuzz(func(t *testing.T, text string) {
		after, err := edited(t, text)
		if err == nil && strings.Count(after, "force-new-cluster") != strings.Count(text, "force-new-cluster") {
			t.Errorf("%q", after)
		}
	})
}
