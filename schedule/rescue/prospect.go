package rescue

import (
	"fmt"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/flagfile"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/snapshot"
)

// Prospect is what would be done, as far as it can be told. Its JSON form is
// stable.
type Prospect struct {
	Cluster string `json:"cluster"`
	// Run is that of a recovery under way, empty where there is none; Reached is the
	// phase that it goes on with.
	Run     string `json:"run,omitempty"`
	Reached Phase  `json:"reached,omitempty"`

	Hosts  []HostState `json:"hosts"` // in the order of the cluster file
	Quorum Quorum      `json:"quorum"`
	// Findings are those of the members that are stopped, and of the repositories.
	Findings *recovery.Findings `json:"findings"`
	// Plan is what would be done by them. Where Unsurveyed names hosts it is made
	// anew once these are stopped and read.
	Plan       *recovery.Plan       `json:"plan"`
	Unsurveyed []string             `json:"unsurveyed,omitempty"`
	Members    []recovery.NewMember `json:"members,omitempty"`
	// Left are hosts with old members that get no new one: their data is set aside as
	// well, so that nothing can start there.
	Left []string            `json:"left,omitempty"`
	Bump restore.BumpRequest `json:"bump"`
	// Flags are those of etcd's that the new members make stale, by host; UpdateFlags
	// says that they are to be brought in line.
	Flags       []HostFlags `json:"stale_flags,omitempty"`
	UpdateFlags bool        `json:"update_flags,omitempty"`
	// Obstacles say, each with the next step, why Run would refuse; none where it
	// would not.
	Obstacles []string `json:"obstacles,omitempty"`
	// Unnamed says that naming members would end all obstacles, as in *ObstacleError.
	Unnamed  bool     `json:"unnamed,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// HostState is one host of the cluster file.
type HostState struct {
	Member  string      `json:"member"`
	Address string      `json:"address"`
	Kind    config.Kind `json:"kind,omitempty"`
	// Unreachable says why the control process does not answer; empty where it does.
	Unreachable string `json:"unreachable,omitempty"`
	// Answers says that somebody does there, whom one cannot work with: the certificates
	// or the address are wrong, and the host is not gone.
	Answers bool `json:"answers,omitempty"`
	Stopped bool `json:"stopped"` // and that is proved
	Runs    bool `json:"runs"`
	// Unclear says why neither is known.
	Unclear string `json:"unclear,omitempty"`
	DataDir string `json:"data_dir,omitempty"`
	// Holder is the run that has the host, Aside those that set data aside there.
	Holder string   `json:"holder,omitempty"`
	Aside  []string `json:"aside,omitempty"`
	// Manual are the steps by hand, of a kind that is not written to.
	Manual  []string               `json:"manual,omitempty"`
	Clients []protocol.ClientState `json:"clients,omitempty"`
	// Flags are those of etcd's about the members, as the host has them.
	Flags *flagfile.Found `json:"etcd_flags,omitempty"`
	Dead  bool            `json:"declared_dead,omitempty"`
	// Repositories are those that the host's own configuration names, and what it can
	// read there of what the plan may have it build from; nil where it was not asked,
	// because nothing may have to. Unasked says why it could not be.
	Repositories []protocol.Repository `json:"repositories"`
	Unasked      string                `json:"repositories_unasked,omitempty"`
}

// Word says a host's state in a word or two.
func (h HostState) Word() string {
	switch {
	case h.Unreachable != "" && h.Dead:
		return "declared dead"
	case h.Answers:
		return "unusable"
	case h.Unreachable != "":
		return "unreachable"
	case len(h.Manual) > 0:
		return "by hand"
	case h.Runs:
		return "runs"
	case h.Stopped:
		return "stopped"
	}
	return "unclear"
}

// RepositoriesWord says how many of its repositories the host can read.
func (h HostState) RepositoriesWord() string {
	read := 0
	for _, r := range h.Repositories {
		if r.Unreadable() == "" {
			read++
		}
	}
	switch n := len(h.Repositories); {
	case h.Unasked != "":
		return "unknown"
	case h.Repositories == nil:
		return "-"
	case n == 0:
		return "none"
	case read == n:
		return "readable"
	case read == 0:
		return "unreadable"
	default:
		return fmt.Sprintf("%d of %d readable", read, n)
	}
}

// Quorum is whether the cluster serves.
type Quorum struct {
	// Serves: a linearizable read was answered, by the member of this name.
	Serves    bool        `json:"serves"`
	By        string      `json:"by,omitempty"`
	ClusterID snapshot.ID `json:"cluster_id,omitzero"`
	Revision  int64       `json:"revision,omitempty"`
	// Members are those of the cluster that serves, by ID.
	Members map[snapshot.ID]string `json:"members,omitempty"`
	Asked   []string               `json:"asked"` // client URLs
	// Answered: a member said how it is, whether it serves or not.
	Answered bool `json:"answered"`
	// Unknown says why it could not be told; empty where it could.
	Unknown string   `json:"unknown,omitempty"`
	Answers []string `json:"answers,omitempty"` // why there was none, by member
}
