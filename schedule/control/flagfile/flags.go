package flagfile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Flags are those of etcd's flags that say who the members are. An empty one is not
// given.
type Flags struct {
	Name                     string `json:"name,omitempty"`
	InitialAdvertisePeerURLs string `json:"initial_advertise_peer_urls,omitempty"`
	InitialCluster           string `json:"initial_cluster,omitempty"`
	InitialClusterState      string `json:"initial_cluster_state,omitempty"`
	InitialClusterToken      string `json:"initial_cluster_token,omitempty"`
}

// Change is a flag with its old value and the one that it should have.
type Change struct {
	Flag string `json:"flag"` // without dashes, such as initial-cluster
	// Old is empty where the flag is not given.
	Old string `json:"old,omitempty"`
	New string `json:"new"`
}

func (c Change) String() string {
	switch c.Old {
	case c.New: // what it is now is not known
		return fmt.Sprintf("--%s=%s", c.Flag, c.New)
	case "":
		return fmt.Sprintf("--%s (not given) → %s", c.Flag, c.New)
	}
	return fmt.Sprintf("--%s %s → %s", c.Flag, c.Old, c.New)
}

const (
	nameFlag    = "name"
	peersFlag   = "initial-advertise-peer-urls"
	clusterFlag = "initial-cluster"
	stateFlag   = "initial-cluster-state"
	tokenFlag   = "initial-cluster-token"
)

// all are the flags in the order in which they are told.
func all() []string { return []string{nameFlag, peersFlag, clusterFlag, stateFlag, tokenFlag} }

// at is where the value of a flag is kept; nil where it is none of ours.
func (f *Flags) at(flag string) *string {
	switch flag {
	case nameFlag:
		return &f.Name
	case peersFlag:
		return &f.InitialAdvertisePeerURLs
	case clusterFlag:
		return &f.InitialCluster
	case stateFlag:
		return &f.InitialClusterState
	case tokenFlag:
		return &f.InitialClusterToken
	}
	return nil
}

// variable is the flag's name in etcd's environment.
func variable(flag string) string {
	return "ETCD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Changes are what is stale in f, held against wanted. What wanted leaves empty is
// not looked at. A token counts only where one is given: no member reads it once
// there is a cluster.
func (f Flags) Changes(wanted Flags) (changes []Change) {
	for _, flag := range all() {
		has, want := *f.at(flag), *wanted.at(flag)
		if want == "" || flag == tokenFlag && has == "" || same(flag, has, want) {
			continue
		}
		changes = append(changes, Change{Flag: flag, Old: has, New: want})
	}
	return changes
}

// same compares values as etcd would.
func same(flag, a, b string) bool {
	if a == "" {
		switch flag {
		case nameFlag:
			a = "default"
		case stateFlag:
			a = "new"
		}
	}
	if flag == clusterFlag || flag == peersFlag {
		return slices.Equal(parts(a), parts(b))
	}
	return a == b
}

func parts(list string) []string {
	var some []string
	for p := range strings.SplitSeq(list, ",") {
		some = append(some, strings.TrimSpace(p))
	}
	slices.Sort(some)
	return slices.Compact(some)
}

// Merge adds later changes to earlier ones: what was first is the old value.
func Merge(earlier, later []Change) []Change {
	all := slices.Clone(earlier)
	for _, c := range later {
		if i := slices.IndexFunc(all, func(a Change) bool { return a.Flag == c.Flag }); i >= 0 {
			all[i].New = c.New
			continue
		}
		all = append(all, c)
	}
	return all
}

// with is f after changes.
func (f Flags) with(changes []Change) Flags {
	for _, c := range changes {
		*f.at(c.Flag) = c.New
	}
	return f
}

// harmless has nothing that YAML, a shell, systemd or the kubelet would read as more
// than a name or a URL.
var harmless = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/,=\[\]@+-]*$`)

// Check fails where flags that are asked for are not those of one member of a
// cluster.
func (f Flags) Check() error {
	for _, flag := range all() {
		v := *f.at(flag)
		switch {
		case v == "":
			return fmt.Errorf("the flags: %s is missing", flag)
		case !harmless.MatchString(v):
			return fmt.Errorf("the flags: %s %q: want names and URLs only", flag, v)
		}
	}
	if f.InitialClusterState != "existing" {
		return fmt.Errorf("the flags: initial-cluster-state %q: want existing", f.InitialClusterState)
	}
	for u := range strings.SplitSeq(f.InitialAdvertisePeerURLs, ",") {
		if !slices.Contains(parts(f.InitialCluster), f.Name+"="+u) {
			return errors.New("the flags: initial-cluster does not have the member's own name with its peer URLs")
		}
	}
	return nil
}

// ByHandError says why flags have to be changed by hand.
type ByHandError struct {
	In  string // where they stand
	Why string
}

func (e *ByHandError) Error() string {
	return fmt.Sprintf("etcd's flags in %s have to be changed by hand: %s", e.In, e.Why)
}

func byHand(in, format string, args ...any) error {
	return &ByHandError{In: in, Why: fmt.Sprintf(format, args...)}
}
