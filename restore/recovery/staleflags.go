package recovery

import (
	"fmt"
	"strings"

	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/snapshot"
)

// StaleFlags are what etcd's flags about the members should say on a host whose
// members have other names or peer URLs now. No recovery needs them: etcd ignores them
// while the data directory has a log, and every new member's has one. They count once
// that data is lost.
type StaleFlags struct {
	Member string   `json:"member"`
	In     string   `json:"in"`    // where the host's supervisor has them, as far as the cluster file tells
	Flags  []string `json:"flags"` // as they should be
}

func (f StaleFlags) String() string {
	return fmt.Sprintf("%s: etcd ignores --initial-cluster and the like while it has data; for the day when that is lost, set in %s: %s", f.Member, f.In, strings.Join(f.Flags, " "))
}

// staleFlags are none where the new members have the old ones' names and peer URLs.
func (d *coordinator) staleFlags(old []snapshot.Member, members []sources.NewMember) (all []StaleFlags) {
	if !changed(old, members) {
		return nil
	}
	for _, m := range members {
		h := d.host(m.Name)
		if h == nil {
			continue
		}
		all = append(all, StaleFlags{m.Name, flagsPlace(h.MemberConfig), []string{
			"--name=" + m.Name, "--initial-advertise-peer-urls=" + strings.Join(m.PeerURLs, ","),
			"--initial-cluster=" + sources.InitialCluster(members), "--initial-cluster-state=existing",
		}})
	}
	return all
}

// flagsPlace is where a member's supervisor has etcd's flags.
func flagsPlace(m supervisor.MemberConfig) string {
	switch m.Kind {
	case supervisor.StaticPod:
		return m.StaticPod.Manifest
	case supervisor.Systemd:
		return m.Systemd.Unit + " or its environment file"
	default:
		return "what starts etcd"
	}
}
