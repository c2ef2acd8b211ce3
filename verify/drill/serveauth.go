package drill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// mostAsked is how many users, and roles, are asked for one by one.
const mostAsked = 500

// checkAuth compares users, roles, permissions and whether they are enforced.
func (s *server) checkAuth(ctx context.Context) error {
	request, cancel := bounded(ctx)
	defer cancel()
	status, err := s.main.AuthStatus(request)
	if err != nil {
		return err
	}
	if status.Enabled != s.auth.enabled {
		s.findings.serve("", "authentication is enabled: %t, and in the database: %t", status.Enabled, s.auth.enabled)
	}
	if status.AuthRevision != s.auth.revision {
		s.findings.serve("", "the revision of users and roles is %d, and %d in the database", status.AuthRevision, s.auth.revision)
	}
	if s.auth.rootless {
		s.findings.serve("", "authentication is enabled, and no user root with the role root exists: nobody could administer the cluster")
	}
	if err := s.checkUsers(request); err != nil {
		return err
	}
	if err := s.checkRoles(request); err != nil {
		return err
	}
	if !s.auth.enabled {
		return nil
	}
	return errors.Join(s.checkStranger(request), s.checkOrdinary(request))
}

func (s *server) checkUsers(ctx context.Context) error {
	list, err := s.main.UserList(ctx)
	if err != nil {
		return err
	}
	var want []string
	for _, u := range s.auth.users {
		want = append(want, string(u.Name))
	}
	if s.auth.rootless && !slices.Contains(want, root) {
		want = append(want, root) // the drill's own
	}
	s.sameNames("users", list.Users, want)
	for _, u := range s.auth.users[:min(len(s.auth.users), mostAsked)] {
		if s.auth.rootless && string(u.Name) == root || !slices.Contains(list.Users, string(u.Name)) {
			continue
		}
		got, err := s.main.UserGet(ctx, string(u.Name))
		if err != nil {
			return err
		}
		if !slices.Equal(got.Roles, u.Roles) {
			s.findings.serve(fmt.Sprintf("user %q", u.Name), "its roles are %q, and %q in the database", got.Roles, u.Roles)
		}
	}
	return nil
}

func (s *server) sameNames(what string, got, want []string) {
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.findings.serve("", "it has the %s %q, and %q are in the database", what, got, want)
	}
}

func (s *server) checkRoles(ctx context.Context) error {
	list, err := s.main.RoleList(ctx)
	if err != nil {
		return err
	}
	var want []string
	for _, r := range s.auth.roles {
		want = append(want, string(r.Name))
	}
	s.sameNames("roles", list.Roles, want)
	for _, r := range s.auth.roles[:min(len(s.auth.roles), mostAsked)] {
		if string(r.Name) == root || !slices.Contains(list.Roles, string(r.Name)) {
			continue // root may do everything, whatever is kept of it
		}
		got, err := s.main.RoleGet(ctx, string(r.Name))
		if err != nil {
			return err
		}
		if !slices.EqualFunc(got.Perm, r.KeyPermission, func(a, b *authpb.Permission) bool { return proto.Equal(a, b) }) {
			s.findings.serve(fmt.Sprintf("role %q", r.Name), "it may do something else than in the database")
		}
	}
	return nil
}

// checkStranger makes sure that who does not log in reads nothing.
func (s *server) checkStranger(ctx context.Context) error {
	c, err := s.login(ctx, "", "")
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // of a client that is done
	_, err = c.Get(ctx, s.prefix)
	switch {
	case err == nil:
		s.findings.serve("", "authentication is enabled, and a client without a user reads all the same")
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return nil
	}
	return err
}

// checkOrdinary logs in as a user without the root role, and makes sure that it
// may read what its roles allow and nothing else.
func (s *server) checkOrdinary(ctx context.Context) error {
	if s.auth.ordinary == "" {
		return nil
	}
	c, err := s.login(ctx, s.auth.ordinary, s.auth.password)
	if err != nil {
		return fmt.Errorf("log in as %q: %w", s.auth.ordinary, err)
	}
	defer c.Close() //nolint:errcheck // of a client that is done
	allowed := s.auth.readable(s.auth.ordinary)
	for _, key := range append(keysOf(allowed), s.prefix) {
		want := slices.ContainsFunc(allowed, func(p *authpb.Permission) bool { return covers(p, key) })
		_, err := c.Get(ctx, key)
		if err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
			return fmt.Errorf("read as %q: %w", s.auth.ordinary, err)
		}
		if got := err == nil; got != want {
			s.findings.serve(fmt.Sprintf("user %q", s.auth.ordinary), "it may read %q: %t, and by its roles in the database: %t", key, got, want)
		}
	}
	return nil
}

func (s *server) login(ctx context.Context, user, password string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{s.voters[0].endpoint}, Username: user, Password: password, Logger: zap.NewNop(), Context: ctx,
	})
}

// readable is what a user may read, by all its roles.
func (a *authState) readable(user string) (all []*authpb.Permission) {
	for _, u := range a.users {
		if string(u.Name) != user {
			continue
		}
		for _, r := range a.roles {
			if !slices.Contains(u.Roles, string(r.Name)) {
				continue
			}
			for _, p := range r.KeyPermission {
				if p.PermType != authpb.WRITE {
					all = append(all, p)
				}
			}
		}
	}
	return all
}

func keysOf(permissions []*authpb.Permission) (keys []string) {
	for _, p := range permissions {
		if len(p.Key) > 0 {
			keys = append(keys, string(p.Key))
		}
	}
	return keys
}

// covers tells whether a permission is for a key, by etcd's rules: no end is the
// key alone, and an end of one zero byte is no end.
func covers(p *authpb.Permission, key string) bool {
	k := []byte(key)
	switch {
	case len(p.RangeEnd) == 0:
		return bytes.Equal(p.Key, k)
	case bytes.Equal(p.RangeEnd, []byte{0}):
		return bytes.Compare(k, p.Key) >= 0
	}
	return bytes.Compare(k, p.Key) >= 0 && bytes.Compare(k, p.RangeEnd) < 0
}
