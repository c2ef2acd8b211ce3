package recovery

import (
	"fmt"
	"strings"

	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/shell"
)

// staleFlags say, one of each host, what etcd's flags about the members should be where
// the new members have other names or peer URLs than the old ones. No recovery needs
// them: etcd ignores them while the data directory has a log, and every new member's has
// one. They count once that data is lost.
func (d *coordinator) staleFlags(old []snapshot.Member, members []sources.NewMember) (all []string) {
	if !changed(old, members) {
		return nil
	}
	for _, m := range members {
		if h := d.host(m.Name); h != nil {
			all = append(all, fmt.Sprintf("%s: etcd ignores --initial-cluster and the like while it has data; for the day when that is lost, set in %s: %s",
				m.Name, flagsPlace(h.MemberConfig), shell.Quote("--name="+m.Name, "--initial-advertise-peer-urls="+strings.Join(m.PeerURLs, ","), "--initial-cluster="+sources.InitialCluster(members), "--initial-cluster-state=existing")))
		}
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
