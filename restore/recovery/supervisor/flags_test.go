package supervisor

import (
	"strings"
	"testing"
)

func wanted() Flags {
	return Flags{Name: "m1", InitialAdvertisePeerURLs: "https://10.0.0.1:2380", InitialCluster: "m1=https://10.0.0.1:2380,m2=https://10.0.0.9:2380", InitialClusterState: "existing", InitialClusterToken: "requorum-77"}
}

// TestChanges: lists are compared as sets, what is not given as etcd's default, and a
// token counts only where one is given.
func TestChanges(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Flags)
		want string
	}{
		{"all is in line", func(*Flags) {}, ""},
		{"another order", func(f *Flags) { f.InitialCluster = "m2=https://10.0.0.9:2380, m1=https://10.0.0.1:2380" }, ""},
		{"no token", func(f *Flags) { f.InitialClusterToken = "" }, ""},
		{"an old token", func(f *Flags) { f.InitialClusterToken = "old" }, "--initial-cluster-token old → requorum-77"},
		{"no state is new", func(f *Flags) { f.InitialClusterState = "" }, "--initial-cluster-state (not given) → existing"},
		{"no name is default", func(f *Flags) { f.Name = "" }, "--name (not given) → m1"},
		{"an old member", func(f *Flags) { f.InitialCluster = "m1=https://10.0.0.1:2380" }, "--initial-cluster m1=https://10.0.0.1:2380 → m1=https://10.0.0.1:2380,m2=https://10.0.0.9:2380"},
	} {
		f := wanted()
		c.edit(&f)
		var got []string
		for _, change := range f.Changes(wanted()) {
			got = append(got, change.String())
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestCheck (promise 3): nothing but names and URLs gets into a file.
func TestCheck(t *testing.T) {
	if err := wanted().Check(); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*Flags){
		"a line of its own":    func(f *Flags) { f.Name = "m1\n    - --force-new-cluster" },
		"a quote":              func(f *Flags) { f.InitialClusterToken = `a"b` },
		"a blank":              func(f *Flags) { f.InitialClusterToken = "a b" },
		"a variable":           func(f *Flags) { f.InitialClusterToken = "a$(B)" },
		"an option":            func(f *Flags) { f.Name = "--config-file" },
		"a new cluster":        func(f *Flags) { f.InitialClusterState = "new" },
		"no token":             func(f *Flags) { f.InitialClusterToken = "" },
		"not its own peer URL": func(f *Flags) { f.InitialAdvertisePeerURLs = "https://10.0.0.7:2380" },
		"not its own name":     func(f *Flags) { f.Name = "m3" },
	} {
		f := wanted()
		edit(&f)
		if err := f.Check(); err == nil {
			t.Errorf("%s is let through", name)
		}
	}
}
