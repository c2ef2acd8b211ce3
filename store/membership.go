package store

import (
	"context"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// addMembership asks the members one after the other for the member list.
func (c *Client) addMembership(ctx context.Context, survey *Survey) {
	var failures []error
	for _, m := range survey.Members {
		if m.Err != nil || m.IsLearner {
			continue
		}
		list, err := c.memberList(ctx, m)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		survey.Membership = list
		survey.setNames()
		return
	}
	if len(failures) == 0 {
		failures = append(failures, errors.New("only learners answered, and a learner does not serve the member list"))
	}
	survey.MembershipErr = errors.Join(failures...)
}

// memberList is serializable: 3.5 and later are asked for it, 3.4 knows
// nothing else.
func (c *Client) memberList(ctx context.Context, member MemberStatus) ([]MemberInfo, error) {
	e, err := c.known(member.Endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.CommandTimeout)
	defer cancel()
	var resp *pb.MemberListResponse
	err = c.call(ctx, e, "asking for the member list", func(ctx context.Context) (err error) {
		resp, err = e.cluster.MemberList(ctx, &pb.MemberListRequest{Linearizable: false})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := sameMember(e, member, resp.Header.GetMemberId(), resp.Header.GetClusterId()); err != nil {
		return nil, err
	}
	var list []MemberInfo
	for _, m := range resp.Members {
		list = append(list, MemberInfo{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.IsLearner})
	}
	return list, nil
}

func (s *Survey) setNames() {
	for i := range s.Members {
		m := &s.Members[i]
		for _, info := range s.Membership {
			if m.Err == nil && info.ID == m.MemberID {
				m.Name = info.Name
			}
		}
	}
}

// discover adds the first client URL of each member that no endpoint leads to.
// A URL that cannot be used is logged: the user did not write it.
func (c *Client) discover(survey Survey) []*endpoint {
	var added []*endpoint
	for _, info := range survey.Membership {
		reached := slices.ContainsFunc(survey.Members, func(m MemberStatus) bool { return m.Err == nil && m.MemberID == info.ID })
		if reached {
			continue
		}
		for _, url := range info.ClientURLs {
			if _, err := c.known(url); err == nil {
				break // asked already, and its failure is in the survey
			}
			e, err := c.endpoint(url)
			if err != nil {
				c.config.Logger.Warn("a member advertises a client URL that cannot be used", "member", info.Name, "error", err)
				continue
			}
			added = append(added, e)
			break
		}
	}
	return added
}
