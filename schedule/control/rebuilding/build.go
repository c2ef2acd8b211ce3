package rebuilding

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control/journal"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/proof"
	"github.com/requorum/requorum/walreplay"
)

// build makes the member's directories of a state, and records it.
func (s *session) build(ctx context.Context, w *way, state *walreplay.Rebuilt, built *protocol.Rebuilt) error {
	if err := describe(ctx, w, state, built); err != nil {
		return err
	}
	owner, err := s.owner()
	if err != nil {
		return err
	}
	p := s.plan
	plan, err := restore.NewPlan(ctx, restore.Request{
		Image: state, Target: p.Target.String(), Repository: w.source.Base.Repository, BackupID: w.source.Base.Backup,
		InitialCluster: p.InitialCluster, Learners: p.Learners, ClusterToken: p.ClusterToken,
		DataDir: s.DataDir, WALDir: s.WALDir, Owner: owner,
		Bump: p.Bump, HighestKnownRevision: p.HighestKnown,
	})
	if err != nil {
		return err
	}
	if plan.ClusterID != p.New {
		return fmt.Errorf("the plan is for cluster %s, and cluster %s would be built", p.New, plan.ClusterID)
	}
	// By it an attempt that was cut off is known again.
	plan.ID = restorePlanID(p.ID)
	built.Restore = &restore.Result{Plan: plan}
	if err := s.record(s.Building, built); err != nil {
		return err
	}
	result, err := restore.Execute(ctx, plan, state, restore.ExecOptions{
		Only: s.Member, Owner: owner, Logger: s.logger,
		// What lies there beside a member is left alone; a member that could start is
		// somebody's, and refused, unless this run built it by a plan that was given up.
		SetAside: restore.CheckStartable(s.DataDir, s.WALDir) != nil || s.Built != nil,
	})
	if err != nil {
		return err
	}
	built.Restore, built.Phases = result, append(built.Phases, result.Phases...)
	if built.Image, err = imageOf(ctx, filepath.Join(s.DataDir, "member", "snap", "db")); err != nil {
		return err
	}
	return s.record(s.Superseded, built)
}

// imageOf reads what the proof of the new cluster goes by.
func imageOf(ctx context.Context, path string) (_ *proof.Image, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return proof.ReadImage(ctx, f, info.Size())
}

// describe tells the state before it is changed.
func describe(ctx context.Context, w *way, state *walreplay.Rebuilt, built *protocol.Rebuilt) error {
	facts, err := state.Facts(ctx)
	if err != nil {
		return err
	}
	built.Way = &w.source
	built.Index, built.Term, built.Revision = facts.RaftIndex, facts.RaftTerm, facts.Revision
	if r := state.Recipe; r != nil {
		built.Recipe = r
		built.Index, built.Term, built.Revision, built.HashKV = r.Index, r.Term, r.Revision, r.HashKV
	} else if state.Base != nil && state.Base.Manifest != nil {
		built.HashKV = state.Base.Manifest.HashKV
	}
	if built.Term == 0 && built.Index == w.source.Index {
		built.Term = w.source.Term
	}
	return nil
}

func (s *session) record(step func(journal.Built) error, built *protocol.Rebuilt) error {
	raw, err := json.Marshal(built)
	if err != nil {
		return err
	}
	return step(journal.Built{Plan: s.plan.ID, Old: s.plan.Old, New: s.plan.New, Result: raw})
}

func restorePlanID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// earlier is what the same run built by this plan; nil where it has not, or where
// that is not there any more.
func earlier(q *request) (*protocol.Rebuilt, error) {
	if q.Built == nil || q.Built.Plan != q.plan.ID || q.Built.New != q.plan.New {
		return nil, nil
	}
	var built protocol.Rebuilt
	err := json.Unmarshal(q.Built.Result, &built)
	if err == nil && (built.Restore == nil || built.Restore.Plan == nil) {
		err = errors.New("it names no plan of the directories")
	}
	if err != nil {
		return nil, fmt.Errorf("what the journal says of the rebuild by plan %s cannot be read: %w", q.plan.ID, err)
	}
	result, err := built.Restore.Plan.Built(q.Member)
	if result == nil || err != nil {
		return nil, err
	}
	built.Earlier = true
	if !q.Built.Done {
		built.Restore = result
		if err := (&session{request: q}).record(q.Superseded, &built); err != nil {
			return nil, err
		}
	}
	return &built, nil
}
