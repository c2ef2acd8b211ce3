package engine

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// loadVoters takes raft's view of the members from the database, or where it has
// none (etcd 3.4, or no entry yet) from the members that it lists.
func (r *replay) loadVoters() error {
	tx := r.backend.ReadTx()
	tx.RLock()
	state := schema.UnsafeConfStateFromBackend(r.logger, tx)
	tx.RUnlock()
	if state == nil {
		state = &raftpb.ConfState{}
		for _, m := range r.cluster.Members() {
			if m.IsLearner {
				state.Learners = append(state.Learners, uint64(m.ID))
			} else {
				state.Voters = append(state.Voters, uint64(m.ID))
			}
		}
	}
	// Neither number matters to who is a voter.
	r.voters = tracker.MakeProgressTracker(1, 0)
	config, progress, err := confchange.Restore(r.changer(), state)
	if err != nil {
		return fmt.Errorf("its confState: %w", err)
	}
	r.voters.Config, r.voters.Progress = config, progress
	return nil
}

func (r *replay) changer() confchange.Changer {
	return confchange.Changer{Tracker: r.voters, LastIndex: r.applied + 1}
}

// changeMembers does what a member does with a membership change.
func (r *replay) changeMembers(c *raftpb.ConfChange) error {
	if refused := r.cluster.ValidateConfigurationChange(c, membership.ApplyBoth); refused != nil {
		return nil //nolint:nilerr // the member refused it, too
	}
	config, progress, err := r.changer().Simple(c.AsV2().Changes...)
	if err != nil {
		return fmt.Errorf("raft refuses the change: %w", err)
	}
	r.voters.Config, r.voters.Progress = config, progress
	r.hooks.SetConfState(r.voters.ConfState())

	switch c.GetType() {
	case raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode:
		var added membership.ConfigChangeContext
		if err := member(c, &added, &added.ID); err != nil {
			return err
		}
		if added.IsPromote {
			r.cluster.PromoteMember(added.ID, membership.ApplyBoth)
		} else {
			r.cluster.AddMember(&added.Member, membership.ApplyBoth)
		}
	case raftpb.ConfChangeRemoveNode:
		r.cluster.RemoveMember(types.ID(c.GetNodeId()), membership.ApplyBoth)
	case raftpb.ConfChangeUpdateNode:
		var updated membership.Member
		if err := member(c, &updated, &updated.ID); err != nil {
			return err
		}
		r.cluster.UpdateRaftAttributes(updated.ID, updated.RaftAttributes, membership.ApplyBoth)
	}
	return nil
}

// member reads the member that a change is about, whose ID must be the change's.
func member(c *raftpb.ConfChange, into any, id *types.ID) error {
	if err := json.Unmarshal(c.Context, into); err != nil {
		return fmt.Errorf("the member in it: %w", err)
	}
	if *id != types.ID(c.GetNodeId()) {
		return fmt.Errorf("it names member %s and describes %s", types.ID(c.GetNodeId()), *id)
	}
	return nil
}
