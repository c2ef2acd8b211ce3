package proof

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// checkAuth compares users and roles, and whether they are enforced.
func (p *proving) checkAuth(ctx context.Context) {
	if p.Image == nil {
		p.unproved("whether users and roles are those of what was rebuilt: what it holds of them is not known here")
		return
	}
	if p.auth != p.Image.AuthEnabled {
		p.wrong("authentication is %s, and was %s in what was rebuilt", onOff(p.auth), onOff(p.Image.AuthEnabled))
		return
	}
	p.proved("authentication is %s, as in what was rebuilt", onOff(p.auth))
	p.check(ctx, "the users and roles", func(ctx context.Context) error {
		var users *pb.AuthUserListResponse
		var roles *pb.AuthRoleListResponse
		var auth *pb.AuthStatusResponse
		err := p.client.Ask(ctx, p.serving(false)[0].status, "asking for users and roles", func(ctx context.Context, conn grpc.ClientConnInterface) (err error) {
			client := pb.NewAuthClient(conn)
			if users, err = client.UserList(ctx, &pb.AuthUserListRequest{}); err != nil {
				return err
			}
			if roles, err = client.RoleList(ctx, &pb.AuthRoleListRequest{}); err != nil {
				return err
			}
			auth, err = client.AuthStatus(ctx, &pb.AuthStatusRequest{})
			if status.Code(err) == codes.Unimplemented { // 3.4
				auth, err = nil, nil
			}
			return err
		})
		if err != nil {
			return err
		}
		right := p.sameNames("users", users.Users, p.Image.Users)
		right = p.sameNames("roles", roles.Roles, p.Image.Roles) && right
		if auth != nil && auth.AuthRevision != p.Image.AuthRevision {
			right = false
			p.wrong("the revision of users and roles is %d, and was %d in what was rebuilt", auth.AuthRevision, p.Image.AuthRevision)
		}
		if right {
			p.proved("it has the %s and %s of what was rebuilt", counted(len(users.Users), "user", "users"), counted(len(roles.Roles), "role", "roles"))
		}
		return nil
	})
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (p *proving) sameNames(what string, got, want []string) bool {
	if slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		return true
	}
	p.wrong("it has the %s %q, and what was rebuilt has %q", what, got, want)
	return false
}
