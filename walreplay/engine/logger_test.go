package engine

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// What the members refused is refused again, and is no warning: a good replay
// logs nothing. Other warnings of etcd's are handed on.
func TestRefusedRequestsAreNoWarning(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelWarn, slog.LevelDebug} {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
		e := open(t, empty(t), Options{Logger: logger})
		add := &pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "alice", Options: &authpb.UserAddOptions{NoPassword: true}}}
		applyAll(t, e, logOf(t, 1, add))
		again := &pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "alice", Options: &authpb.UserAddOptions{NoPassword: true}}}
		applyAll(t, e, logOf(t, 2, again))
		role := &pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "reader"}}
		grant := &pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "alice", Role: "reader"}}
		applyAll(t, e, logOf(t, 3, role, grant, grant))
		if logged := strings.Contains(out.String(), "ignored grant role"); logged != (level == slog.LevelDebug) {
			t.Errorf("at level %s, of a role that was granted twice: %s", level, out.String())
		}
		if logged := strings.Contains(out.String(), applyFailed); logged != (level == slog.LevelDebug) || strings.Contains(out.String(), "level=WARN") {
			t.Errorf("at level %s: %s", level, out.String())
		}
		newLogger(logger, nil).Warn("something else")
		if !strings.Contains(out.String(), `level=WARN msg="something else"`) {
			t.Errorf("at level %s a warning is lost: %s", level, out.String())
		}
	}
}
