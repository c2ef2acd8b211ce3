package supervisor

import (
	"strings"
	"testing"
)

// TestEnvironment (promise 1): values change in place, quotes and comments stay, and the
// last assignment is the one that counts.
func TestEnvironment(t *testing.T) {
	const before = "# of the package\nETCD_NAME=old\n  ETCD_NAME=\"m0\"\nETCD_DATA_DIR='/var/lib/etcd'\r\nETCD_INITIAL_CLUSTER=m1=https://10.0.0.1:2380  \n;x\nETCD_INITIAL_ADVERTISE_PEER_URLS='https://10.0.0.1:2380'"
	want := strings.NewReplacer(`"m0"`, `"m1"`, "CLUSTER=m1=https://10.0.0.1:2380  \n", "CLUSTER=m1=https://10.0.0.1:2380,m2=https://10.0.0.9:2380  \nETCD_INITIAL_CLUSTER_STATE=existing\n").Replace(before)
	e, err := readFlagEnvironment([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.changed(e.flags().Changes(wanted()))
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	for _, text := range []string{"", "A=b", "A=b\n"} {
		e, err := readFlagEnvironment([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.changed(e.flags().Changes(wanted()))
		again, readErr := readFlagEnvironment(got)
		if err != nil || readErr != nil || !strings.HasPrefix(string(got), text) || len(again.flags().Changes(wanted())) > 0 {
			t.Errorf("%q: %v %q", text, err, got)
		}
	}
	for text, want := range map[string]string{
		"A=b\\\nETCD_NAME=x": "goes on", "A=\"b\nETCD_NAME=x": "goes on", "# c\\\nETCD_NAME=x": "goes on", "ETCD_NAME=a\"b\"": "quoted in the middle",
		"ETCD_CONFIG_FILE=/x": "reads nothing else", "DAEMON_ARGS=--initial-cluster=a": "may win", "export": "no assignment",
	} {
		if _, err := readFlagEnvironment([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
