package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/requorum/requorum/store/client"
)

const (
	attempts = 5                      // at what an election can make fail
	again    = 500 * time.Millisecond // between them
)

// login finds out whether authentication is on, and logs in where it is. That it
// may not leaves much unproved, and is no error.
func (p *proving) login(ctx context.Context) error {
	if err := p.narrow(ctx); err != nil {
		return err
	}
	err := p.insist(ctx, func(ctx context.Context) error {
		err := p.anyone.Ask(ctx, p.serving(false)[0].status, "asking whether authentication is on", func(ctx context.Context, conn grpc.ClientConnInterface) error {
			_, err := pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: stranger, Password: stranger})
			return err
		})
		p.auth = errors.Is(err, rpctypes.ErrAuthFailed)
		if p.auth || errors.Is(err, rpctypes.ErrAuthNotEnabled) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("prove the new cluster: it served, and does not any more: %w", err)
	}
	switch {
	case !p.auth:
		return nil
	case p.Client.User == "" && p.Client.Token == "" && p.Client.Cert == "":
		p.denied = "authentication is on, and no user was given"
		return nil
	case p.Client.User == "" && p.Client.Token == "":
		return nil // the certificate may name a user
	}
	err = p.insist(ctx, func(ctx context.Context) error {
		client, err := client.Dial(ctx, p.Client)
		if err == nil {
			p.client = client
		}
		return err
	})
	if err != nil {
		p.denied = err.Error()
	} else {
		p.nameAfterLogin(ctx)
	}
	return nil
}

// nameAfterLogin asks again who those are that could not be asked before: the login of
// the wait may have come too late for it.
func (p *proving) nameAfterLogin(ctx context.Context) {
	if !slices.ContainsFunc(p.serving(false), func(m *member) bool { return m.nameless }) {
		return
	}
	survey, err := p.client.Survey(ctx)
	if err != nil {
		return // they stay nameless, and the report says so
	}
	for _, m := range p.serving(false) {
		i := slices.IndexFunc(survey.Members, func(s client.MemberStatus) bool { return s.Err == nil && p.is(m, s) })
		if m.nameless && i >= 0 {
			m.status, m.nameless = survey.Members[i], false
		}
	}
}

// sayNameless says of whom it is not known that they are of the new cluster.
func (p *proving) sayNameless() {
	var names []string
	for _, m := range p.serving(false) {
		if m.nameless {
			names = append(names, m.Name)
		}
	}
	if len(names) > 0 {
		p.unproved("that who answers as %s is of the new cluster: %s", strings.Join(names, ", "), cmp.Or(p.denied, "it does not say who it is"))
	}
}

// narrow leaves those endpoints out that did not lead to the new cluster: what
// still runs there must not be asked about it.
func (p *proving) narrow(ctx context.Context) error {
	p.Client.DiscoverEndpoints, p.Client.Endpoints = false, nil
	for _, m := range p.report.Members {
		p.Client.Endpoints = append(p.Client.Endpoints, m.Endpoint)
	}
	anyone, err := p.dialAnyone(ctx)
	if err != nil {
		return err
	}
	err = p.close()
	p.anyone, p.client = anyone, anyone
	return err
}

// insist does something within the bound of a check, again where it failed for
// another reason than a refusal.
func (p *proving) insist(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.Checks)
	defer cancel()
	for n := 1; ; n++ {
		err := do(ctx)
		if err == nil || n == attempts || refused(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(again):
		}
	}
}

// interrupted says that there was no answer, or none in time.
func interrupted(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.ResourceExhausted, codes.Unavailable, codes.Canceled:
		return true
	default:
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	}
}

// refused says that the cluster answered, and does not allow it.
func refused(err error) bool {
	return errors.Is(err, client.ErrLogin) || errors.Is(err, client.ErrPermission) ||
		errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrPermissionDenied)
}

// because is why something was not looked at: that there is no login, where that is
// all that an error says.
func (p *proving) because(err error) string {
	if p.denied != "" && refused(err) {
		return p.denied
	}
	return err.Error()
}
