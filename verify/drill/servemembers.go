package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/restore"
)

// checkMembers compares the membership with the plan, and asks each voter
// whether it follows the same leader.
func (s *server) checkMembers(ctx context.Context) error {
	request, cancel := bounded(ctx)
	defer cancel()
	list, err := s.main.MemberList(request)
	if err != nil {
		return err
	}
	if got, want := list.Header.GetClusterId(), uint64(s.plan.ClusterID); got != want {
		s.findings.serve("", "the cluster's ID is %016x, and was planned as %016x", got, want)
	}
	if len(list.Members) != len(s.plan.Members) {
		s.findings.serve("", "it has %d members, and %d were planned", len(list.Members), len(s.plan.Members))
	}
	for _, want := range s.plan.Members {
		known := false
		for _, m := range list.Members {
			known = known || m.ID == uint64(want.ID) && m.Name == want.Name && m.IsLearner == want.Learner && slices.Equal(m.PeerURLs, want.PeerURLs)
		}
		if !known {
			s.findings.serve("member "+want.Name, "it is not among the members as it was planned")
		}
	}
	leaders := map[uint64]bool{}
	for _, v := range s.voters {
		status, err := v.Status(request, v.endpoint)
		if err != nil {
			return err
		}
		leaders[status.Leader] = true
	}
	if len(leaders) != 1 || leaders[0] {
		s.findings.serve("", "its members do not agree on one leader")
	}
	return nil
}

// promote makes learners voters: as learners they answer next to nothing. They
// are compared then like the others.
func (s *server) promote(ctx context.Context) error {
	request, cancel := bounded(ctx)
	defer cancel()
	for _, m := range s.plan.Members {
		if !m.Learner {
			continue
		}
		err := insist(request, rpctypes.ErrMemberLearnerNotReady, func() error {
			_, err := s.main.MemberPromote(request, uint64(m.ID))
			return err
		})
		if err != nil {
			return fmt.Errorf("promote learner %s: %w", m.Name, err)
		}
		// It learns a moment later that it was promoted, and refuses until then.
		if err := insist(request, errStillLearner, func() error { return s.join(ctx, m) }); err != nil {
			return fmt.Errorf("ask %s, a learner that was promoted: %w", m.Name, err)
		}
		v := s.voters[len(s.voters)-1]
		if err := s.checkHashOf(ctx, v); err != nil {
			return err
		}
		if err := s.read(ctx, v, s.expect.probes); err != nil {
			return err
		}
	}
	return nil
}

var errStillLearner = errors.New("it still takes itself for a learner")

// join makes a client of a learner that was promoted, where it serves.
func (s *server) join(ctx context.Context, m restore.Member) error {
	known := len(s.voters)
	err := s.connect(ctx, m)
	if err == nil {
		request, cancel := bounded(ctx)
		defer cancel()
		_, err = s.voters[known].Get(request, s.prefix)
	}
	if err == nil {
		return nil
	}
	if len(s.voters) > known {
		err = errors.Join(err, s.voters[known].Close())
		s.voters = s.voters[:known]
	}
	if strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner)) {
		return fmt.Errorf("%w: %w", errStillLearner, err)
	}
	return err
}

// insist tries until something else comes of it than again.
func insist(ctx context.Context, again error, do func() error) error {
	for {
		err := do()
		if err == nil || !errors.Is(err, again) {
			return err
		}
		if pause(ctx) != nil {
			return err
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}

// checkHash compares each voter's HashKV with that of the database.
func (s *server) checkHash(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, v := range s.voters {
		group.Go(func() error { return s.checkHashOf(ctx, v) })
	}
	return group.Wait()
}

func (s *server) checkHashOf(ctx context.Context, v *voter) error {
	request, cancel := s.hashing(ctx)
	defer cancel()
	want := s.expect.hash
	got, err := v.HashKV(request, v.endpoint, want.Revision)
	if err != nil {
		return fmt.Errorf("HashKV of %s at revision %d: %w", v.Name, want.Revision, err)
	}
	if got.Hash != want.Hash || got.CompactRevision != want.CompactedRevision {
		s.findings.serve("member "+v.Name, "its HashKV at revision %d is %d, compacted at %d; the database's is %d, compacted at %d",
			want.Revision, got.Hash, got.CompactRevision, want.Hash, want.CompactedRevision)
	}
	return nil
}

// checkAgreement compares the voters with each other, after all that was
// written.
func (s *server) checkAgreement(ctx context.Context) error {
	request, cancel := s.hashing(ctx)
	defer cancel()
	head, err := s.main.Get(request, s.prefix)
	if err != nil {
		return err
	}
	hashes := map[uint32]string{}
	for _, v := range s.voters {
		if _, err := v.Get(request, s.prefix); err != nil { // it has applied as much then
			return err
		}
		got, err := v.HashKV(request, v.endpoint, head.Header.Revision)
		if err != nil {
			return fmt.Errorf("HashKV of %s at revision %d: %w", v.Name, head.Header.Revision, err)
		}
		hashes[got.Hash] = v.Name
	}
	if len(hashes) > 1 {
		s.findings.serve("", "after %d writes its members differ: HashKV at revision %d has %d values", head.Header.Revision-s.expect.revision, head.Header.Revision, len(hashes))
	}
	return nil
}

// checkAlarms makes sure that none is raised: those of the image were cleared.
func (s *server) checkAlarms(ctx context.Context) error {
	request, cancel := bounded(ctx)
	defer cancel()
	list, err := s.main.AlarmList(request)
	if err != nil {
		return err
	}
	for _, a := range list.Alarms {
		s.findings.serve(fmt.Sprintf("member %016x", a.MemberID), "it raised the alarm %s", a.Alarm)
	}
	return nil
}
