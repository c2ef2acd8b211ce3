package rescue

import (
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/lineage"
	"github.com/requorum/requorum/schedule/rescue/proof"
	"github.com/requorum/requorum/snapshot"
)

// Report is what a recovery did. Its JSON form is stable.
type Report struct {
	Cluster string `json:"cluster"`
	Run     string `json:"run"`
	// WentOn says that the run had been begun by an earlier command.
	WentOn bool `json:"went_on,omitempty"`
	// Inherited is the run of a lost driver elsewhere that this one only completed.
	// GivenUp is one that had set nothing aside: clients were started again, and all
	// but the hosts and warnings is empty.
	Inherited string         `json:"inherited,omitempty"`
	GivenUp   string         `json:"given_up,omitempty"`
	Plan      *recovery.Plan `json:"plan"`
	Proven    bool           `json:"proven"`
	Lost      recovery.Loss  `json:"lost"`

	OldClusterID snapshot.ID `json:"old_cluster_id,omitzero"`
	NewClusterID snapshot.ID `json:"new_cluster_id"`
	// InitialCluster is the value for etcd's flag.
	InitialCluster string               `json:"initial_cluster"`
	Members        []recovery.NewMember `json:"members"`
	// RevisionBefore is that of the state that was recovered, RevisionAfter the one
	// that the new cluster began with.
	RevisionBefore int64 `json:"revision_before"`
	RevisionAfter  int64 `json:"revision_after"`

	Hosts  []HostReport  `json:"hosts"`
	Proof  *proof.Report `json:"proof"`
	Phases []PhaseTime   `json:"phases"`
	// RTO is from the first change until the new cluster was proved to serve, and
	// ClientsBack until the clients were started; both count time in which nobody
	// went on with the run.
	RTO         time.Duration `json:"rto_nanoseconds"`
	ClientsBack time.Duration `json:"clients_back_nanoseconds"`
	Began       time.Time     `json:"began"` // by this machine's clock

	Lineage   []lineage.Done `json:"lineage,omitempty"`
	Snapshots []Stored       `json:"snapshots,omitempty"`
	// Incomplete says what failed after the proof: the same command completes it.
	Incomplete []string `json:"incomplete,omitempty"`
	// Flags are those of etcd's that were brought in line, or are stale.
	Flags    []HostFlags `json:"stale_flags,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
	Next     []string    `json:"next,omitempty"` // steps for the operator
}

// HostReport is what was done on one host.
type HostReport struct {
	Member  string `json:"member"`
	Address string `json:"address"`
	// Left: it had an old member and got no new one; Dead: it was passed by.
	Left    bool                `json:"left,omitempty"`
	Dead    bool                `json:"declared_dead,omitempty"`
	Aside   *restore.Aside      `json:"aside,omitempty"`
	Brought []protocol.Brought  `json:"brought,omitempty"`
	Phases  []restore.PhaseTime `json:"phases,omitempty"`
	Flags   []string            `json:"flags,omitempty"` // that start the member
}

// PhaseTime is how long a phase took: all attempts that came to an end, without
// what was between them.
type PhaseTime struct {
	Phase Phase         `json:"phase"`
	Took  time.Duration `json:"nanoseconds"`
	Hosts []HostTime    `json:"hosts,omitempty"`
}

// HostTime is how long a phase took on a host.
type HostTime struct {
	Member string        `json:"member"`
	Took   time.Duration `json:"nanoseconds"`
}

// Stored is the full snapshot in one repository.
type Stored struct {
	Repository string `json:"repository"`
	Backup     string `json:"backup,omitempty"`
	Error      string `json:"error,omitempty"`
}

// UndoReport is what an undo did. Its JSON form is stable.
type UndoReport struct {
	Cluster string     `json:"cluster"`
	Run     string     `json:"run"`
	Hosts   []HostUndo `json:"hosts"`
	// Lineage is what was done in repositories.
	Lineage []lineage.Done `json:"lineage,omitempty"`
	Phases  []PhaseTime    `json:"phases"`
	// Incomplete says what failed: the same command goes on with it.
	Incomplete []string `json:"incomplete,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
	Next       []string `json:"next,omitempty"`
}

// HostUndo is what an undo did on one host.
type HostUndo struct {
	Member string `json:"member"`
	// PutBack is the data directory whose old content is back; empty where nothing
	// had been set aside. Kept is where the new content went.
	PutBack string   `json:"put_back,omitempty"`
	Kept    []string `json:"kept,omitempty"`
	// Flags is the file in which etcd's flags are as they were before; empty where the
	// recovery had not changed them.
	Flags   string `json:"flags,omitempty"`
	Started bool   `json:"started"`
	Dead    bool   `json:"declared_dead,omitempty"`
	// Failed says why the data of a host that is declared dead, and can be reached, was
	// not put back.
	Failed string `json:"failed,omitempty"`
}
