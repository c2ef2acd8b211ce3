package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
)

const (
	lookEvery   = 100 * time.Millisecond // at the members: clients wait meanwhile
	reportEvery = time.Second            // Request.Waiting
)

// stranger is the user that the wait asks as. Nobody has that name, so that it is
// refused everywhere, and on purpose.
const stranger = "requorum-proof"

// wait ends when all members serve, or a quorum and the grace is over.
func (p *proving) wait(ctx context.Context) error {
	var quorum, reported time.Time // since when a quorum serves; when the caller last heard
	for {
		missing := p.look(ctx)
		now := time.Now()
		switch serving := len(p.serving(false)) > 0; {
		case serving && quorum.IsZero():
			quorum, p.report.Quorum = now, now.Sub(p.began)
		case !serving:
			quorum, p.report.Quorum = time.Time{}, 0
		}
		if p.Waiting != nil && (now.Sub(reported) >= reportEvery || len(missing) == 0) {
			reported = now
			p.Waiting(Waiting{!quorum.IsZero(), missing})
		}
		switch waited := now.Sub(p.began); {
		case ctx.Err() != nil:
			return fmt.Errorf("wait for the new cluster: %w", context.Cause(ctx))
		case len(missing) == 0:
			p.report.All = waited
			p.settle(nil)
			return nil
		case !quorum.IsZero() && now.Sub(quorum) >= p.Grace:
			p.settle(missing)
			return nil
		case quorum.IsZero() && waited >= p.Timeout:
			p.settle(missing)
			return &NoQuorumError{Waited: waited, Missing: missing}
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

// settle notes who served when the wait was over.
func (p *proving) settle(missing []Missing) {
	p.report.Missing = missing
	for _, m := range p.members {
		if m.serves {
			p.report.Members = append(p.report.Members, MemberReport{
				Name: m.Name, ID: m.ID, Endpoint: m.status.Endpoint, Version: m.status.Version, Learner: m.Learner, After: m.after,
			})
		}
	}
}

// look asks all members how they are, and gives those that do not serve.
func (p *proving) look(ctx context.Context) []Missing {
	survey := p.survey(ctx)
	var asking sync.WaitGroup
	for _, m := range p.members {
		m.why = ""
		i := slices.IndexFunc(survey.Members, func(s client.MemberStatus) bool {
			return s.Err == nil && p.is(m, s)
		})
		m.nameless = i < 0
		if i < 0 {
			i = slices.IndexFunc(survey.Members, func(s client.MemberStatus) bool {
				return refused(s.Err) && contains(p.ClientURLs[m.Name], s.Endpoint)
			})
		}
		if i < 0 {
			m.serves, m.why = false, p.silence(m, survey)
			continue
		}
		m.status = survey.Members[i]
		asking.Go(func() { p.ask(ctx, m) })
	}
	asking.Wait()
	var missing []Missing
	for _, m := range p.members {
		if !m.serves {
			missing = append(missing, Missing{m.Name, m.why})
		}
	}
	return missing
}

// survey asks everybody. Etcd from 3.7 on says who it is only to those who log in,
// where authentication is on.
func (p *proving) survey(ctx context.Context) client.Survey {
	// That none answers, or that others do, is seen in what it returns.
	survey, _ := p.client.Survey(ctx)
	if p.client != p.anyone || p.Client.User == "" && p.Client.Token == "" ||
		!slices.ContainsFunc(survey.Members, func(s client.MemberStatus) bool { return refused(s.Err) }) {
		return survey
	}
	client, err := client.Dial(ctx, p.Client)
	if err != nil {
		return survey // the login that counts comes after the wait
	}
	p.client = client
	survey, _ = client.Survey(ctx)
	return survey
}

// is reports whether an answer is by the member, in the new cluster.
func (p *proving) is(m *member, s client.MemberStatus) bool {
	return s.MemberID == uint64(m.ID) && s.ClusterID == uint64(p.ClusterID)
}

// ask finds out whether a member that answers serves.
func (p *proving) ask(ctx context.Context, m *member) {
	var err error
	switch {
	case m.nameless && m.Learner:
		err = m.status.Err
	case m.nameless:
		err = p.confirm(ctx, m)
	case m.status.IsLearner != m.Learner:
		err = fmt.Errorf("it is a learner: %t, and was planned as one: %t", m.status.IsLearner, m.Learner)
	case m.Learner && m.status.Leader == 0:
		err = errors.New("it is up, and sees no leader")
	case !m.Learner:
		err = p.confirm(ctx, m)
	}
	if err != nil {
		m.serves, m.why = false, err.Error()
		return
	}
	if !m.serves {
		m.serves, m.after = true, time.Since(p.began)
		p.Logger.Info("a member of the new cluster serves", "member", m.Name, "after", m.after)
	}
}

// confirm makes a member ask its quorum, without a login and without an entry in
// the log: etcd confirms that it is up to date before it looks at a login, and
// refuses this one. How it does reports whether authentication is on.
func (p *proving) confirm(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, p.Client.CommandTimeout)
	defer cancel()
	err := p.anyone.Ask(ctx, m.status, "asking whether it serves with a quorum", func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: stranger, Password: stranger})
		return err
	})
	switch {
	case errors.Is(err, rpctypes.ErrAuthNotEnabled), errors.Is(err, rpctypes.ErrAuthFailed):
		return nil
	case err == nil:
		return fmt.Errorf("it let a user %q in, whom nobody made", stranger)
	case m.status.Leader == 0 && !m.nameless:
		return errors.New("it is up, and sees no leader: too few of the others are")
	}
	return err
}

// silence says why there is no answer by a member.
func (p *proving) silence(m *member, survey client.Survey) string {
	urls := slices.Concat(p.ClientURLs[m.Name], m.status.Endpoints)
	for _, info := range survey.Membership {
		if info.ID == uint64(m.ID) {
			urls = append(urls, info.ClientURLs...)
		}
	}
	var whys []string
	for _, s := range survey.Members {
		known := len(urls) == 0 || slices.ContainsFunc(s.Endpoints, func(e string) bool { return contains(urls, e) })
		planned := slices.ContainsFunc(p.members, func(o *member) bool { return s.MemberID == uint64(o.ID) })
		switch {
		case !known:
		case s.Err != nil:
			whys = append(whys, s.Err.Error())
		case s.ClusterID != uint64(p.ClusterID):
			whys = append(whys, fmt.Sprintf("%s answers as member %s of cluster %s, and not of the new one: something old runs there", s.Endpoint, snapshot.ID(s.MemberID), snapshot.ID(s.ClusterID)))
		case !planned:
			whys = append(whys, fmt.Sprintf("%s answers as member %s, which was not planned", s.Endpoint, snapshot.ID(s.MemberID)))
		case len(urls) > 0:
			whys = append(whys, s.Endpoint+" answers as another member")
		}
	}
	if len(whys) == 0 {
		return "none of the endpoints leads to it"
	}
	return strings.Join(whys, "; ")
}

// contains compares URLs without regard to a slash at the end.
func contains(urls []string, url string) bool {
	return slices.ContainsFunc(urls, func(u string) bool { return strings.TrimSuffix(u, "/") == strings.TrimSuffix(url, "/") })
}
