package storetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/internal/ports"
)

// learner lets a member join, become a voter, and leave again. It is none of
// the cluster's own: those stay as they are.
func (m *Mixed) learner(ctx context.Context, n int) {
	name := fmt.Sprintf("guest%d", n)
	free, err := ports.Free(2)
	if err != nil {
		m.fail(err)
		return
	}
	clientURL, peerURL := m.cluster.url(free[0]), m.cluster.url(free[1])
	id, ok := m.add(ctx, LearnerAdd, peerURL, (*clientv3.Client).MemberAddAsLearner)
	if !ok {
		return
	}
	guest, err := startProcess(m.cluster.binary, filepath.Join(m.cluster.options.Dir, name+".log"), append([]string{
		"--name", name, "--data-dir", filepath.Join(m.cluster.options.Dir, name), "--logger", "zap",
		"--listen-client-urls", clientURL, "--advertise-client-urls", clientURL,
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL,
		"--initial-cluster", m.cluster.InitialCluster() + "," + name + "=" + peerURL, "--initial-cluster-state", "existing",
	}, m.cluster.options.ExtraArgs...))
	if err != nil {
		m.fail(err)
		return
	}
	defer guest.kill()
	_ = m.insist(ctx, LearnerPromote, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.MemberPromote(ctx, id)
		return err
	}, rpctypes.ErrMemberNotLearner)
	_ = m.insist(ctx, MemberUpdate, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.MemberUpdate(ctx, id, []string{peerURL, m.cluster.url(free[0])})
		return err
	})
	m.remove(ctx, id)
}

// voter adds a voter that never starts, and removes it: four voters are served
// by the three that run.
func (m *Mixed) voter(ctx context.Context, _ int) {
	if m.options.Faults {
		return
	}
	free, err := ports.Free(1)
	if err != nil {
		m.fail(err)
		return
	}
	if id, ok := m.add(ctx, VoterAdd, m.cluster.url(free[0]), (*clientv3.Client).MemberAdd); ok {
		m.remove(ctx, id)
	}
}

// add adds a member, or finds it where an earlier try had added it.
func (m *Mixed) add(ctx context.Context, kind Kind, peerURL string, do func(*clientv3.Client, context.Context, []string) (*clientv3.MemberAddResponse, error)) (id uint64, ok bool) {
	ok = m.insist(ctx, kind, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := do(c, ctx, []string{peerURL})
		if err == nil {
			id = resp.Member.ID
			return nil
		}
		if !errors.Is(err, rpctypes.ErrPeerURLExist) {
			return err
		}
		list, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, member := range list.Members {
			if len(member.PeerURLs) > 0 && member.PeerURLs[0] == peerURL {
				id = member.ID
				return nil
			}
		}
		return errors.New("its peer URL is taken, and by no member that is listed")
	})
	return id, ok && id != 0
}

func (m *Mixed) remove(ctx context.Context, id uint64) {
	m.insist(ctx, MemberRemove, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.MemberRemove(ctx, id)
		return err
	}, rpctypes.ErrMemberNotFound)
}
