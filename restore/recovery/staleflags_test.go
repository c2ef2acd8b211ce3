package recovery

import (
	"strings"
	"testing"

	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/snapshot"
)

// TestStaleFlags: where names or URLs have changed, each host's flags are reported whole, with
// where its supervisor has them; else there is nothing to report.
func TestStaleFlags(t *testing.T) {
	old := []snapshot.Member{{Name: "m1", PeerURLs: []string{"http://a:2380"}}, {Name: "m2", PeerURLs: []string{"http://b:2380"}}, {Name: "m3", PeerURLs: []string{"http://c:2380"}}}
	same := []sources.NewMember{{Name: "m1", PeerURLs: []string{"http://a:2380"}}, {Name: "m2", PeerURLs: []string{"http://b:2380"}}, {Name: "m3", PeerURLs: []string{"http://c:2380"}}}
	on := func(member string, kind supervisor.Kind) *participant {
		m := supervisor.MemberConfig{ServiceConfig: supervisor.ServiceConfig{Kind: kind, Systemd: supervisor.SystemdMember{Unit: "etcd.service"}, StaticPod: supervisor.StaticPodMember{Manifest: "/m/etcd.yaml"}}}
		return &participant{HostConfig: HostConfig{Member: member, Setup: supervisor.Setup{MemberConfig: m}}}
	}
	d := &coordinator{hosts: []*participant{on("m1", supervisor.Systemd), on("m2", supervisor.StaticPod), on("m4", supervisor.Command)}}
	if all := d.staleFlags(old, same); len(all) > 0 {
		t.Errorf("nothing has changed: %+v", all)
	}
	const cluster = "--initial-cluster=m1=http://a:2380,m2=http://b:2380,m4=http://d:2380 --initial-cluster-state=existing"
	const why = ": etcd ignores --initial-cluster and the like while it has data; for the day when that is lost, set in "
	want := []string{
		"m1" + why + "etcd.service or its environment file: --name=m1 --initial-advertise-peer-urls=http://a:2380 " + cluster,
		"m2" + why + "/m/etcd.yaml: --name=m2 --initial-advertise-peer-urls=http://b:2380 " + cluster,
		"m4" + why + "what starts etcd: --name=m4 --initial-advertise-peer-urls=http://d:2380 " + cluster,
	}
	all := d.staleFlags(old, []sources.NewMember{same[0], same[1], {Name: "m4", PeerURLs: []string{"http://d:2380"}}})
	for i, w := range want {
		if i >= len(all) || all[i] != w {
			t.Errorf("%v, want %s", all, w)
		}
	}
	if all := d.staleFlags(old, same[:1]); len(all) != 1 || !strings.Contains(all[0], " --initial-cluster=m1=http://a:2380 ") {
		t.Errorf("fewer members: %v", all)
	}
}
