package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// mixed writes a bit of everything, under a prefix.
type mixed struct {
	t       *testing.T
	cluster *storetest.Cluster
	client  *clientv3.Client
	prefix  string
}

func (m *mixed) must(err error) {
	m.t.Helper()
	require.NoError(m.t, err)
}

// refused wants an error that the applier gives.
func (m *mixed) refused(err, want error) {
	m.t.Helper()
	if !errors.Is(rpctypes.Error(err), want) {
		m.t.Fatalf("error %v, want %v", err, want)
	}
}

func (m *mixed) key(i int) string { return fmt.Sprintf("%s%04d", m.prefix, i) }

func (m *mixed) run() {
	expire := m.leases()
	m.keys()
	m.txns()
	m.compaction()
	m.keys()
	m.alarms()
	m.users()
	m.downgrade()
	m.expired(expire)
}

func (m *mixed) keys() {
	ctx := m.t.Context()
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 25 {
				if _, err := m.client.Put(ctx, m.key(w*25+i), fmt.Sprint("value ", i, m.prefix)); err != nil {
					m.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for i := 0; i < 100; i += 7 {
		_, err := m.client.Delete(ctx, m.key(i))
		m.must(err)
		_, err = m.client.Delete(ctx, m.key(i)) // is gone already
		m.must(err)
	}
	_, err := m.client.Delete(ctx, m.key(40), clientv3.WithRange(m.key(50)), clientv3.WithPrevKV())
	m.must(err)
	_, err = m.client.Put(ctx, m.key(60), "", clientv3.WithIgnoreValue())
	m.must(err)
	_, err = m.client.Put(ctx, m.key(999), "", clientv3.WithIgnoreValue())
	m.refused(err, rpctypes.ErrKeyNotFound)
	_, err = m.client.Put(ctx, m.key(1), "v", clientv3.WithLease(4711))
	m.refused(err, rpctypes.ErrLeaseNotFound)
}

func (m *mixed) txns() {
	ctx := m.t.Context()
	for i := range 20 {
		inner := clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.Version(m.key(i)), ">", 1)},
			[]clientv3.Op{clientv3.OpPut(m.key(i), "inner"), clientv3.OpGet(m.key(i))},
			[]clientv3.Op{clientv3.OpDelete(m.key(i))})
		_, err := m.client.Txn(ctx).
			If(clientv3.Compare(clientv3.Value(m.key(i)), "!=", "x"), clientv3.Compare(clientv3.ModRevision(m.key(0)), "=", 0).WithPrefix()).
			Then(clientv3.OpPut(m.key(i+200), "then"), inner).
			Else(clientv3.OpGet(m.key(i)), inner, clientv3.OpPut(m.key(i+300), "else")).Commit()
		m.must(err)
	}
	_, err := m.client.Txn(ctx).Then(clientv3.OpPut(m.key(1), "1"), clientv3.OpPut(m.key(2), "2", clientv3.WithLease(4711))).Commit()
	m.refused(err, rpctypes.ErrLeaseNotFound)
}

// leases gives one that is about to expire.
func (m *mixed) leases() clientv3.LeaseID {
	ctx := m.t.Context()
	for i := range 6 {
		l, err := m.client.Grant(ctx, 3600)
		m.must(err)
		for k := range 3 {
			_, err = m.client.Put(ctx, fmt.Sprintf("%sleased/%d", m.prefix, (i+k)%8), "v", clientv3.WithLease(l.ID))
			m.must(err)
		}
		_, err = m.client.KeepAliveOnce(ctx, l.ID)
		m.must(err)
		if i%3 == 0 {
			_, err = m.client.Revoke(ctx, l.ID)
			m.must(err)
		}
	}
	l, err := m.client.Grant(ctx, 1) // raised to MinLeaseTTL
	m.must(err)
	for k := range 3 {
		_, err = m.client.Put(ctx, fmt.Sprintf("%sexpiring/%d", m.prefix, k), "v", clientv3.WithLease(l.ID))
		m.must(err)
	}
	return l.ID
}

func (m *mixed) expired(id clientv3.LeaseID) {
	for range 200 {
		l, err := m.client.TimeToLive(m.t.Context(), id)
		m.must(err)
		if l.GrantedTTL == 0 { // an expired one that is still there has its own
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	m.t.Fatal("the lease does not expire")
}

func (m *mixed) compaction() {
	now, err := m.client.Get(m.t.Context(), "x")
	m.must(err)
	_, err = m.client.Compact(m.t.Context(), now.Header.Revision-50, clientv3.WithCompactPhysical())
	m.must(err)
	// Versions differ in what becomes of a tombstone at the compacted revision.
	_, err = m.client.Put(m.t.Context(), m.key(900), "v")
	m.must(err)
	gone, err := m.client.Delete(m.t.Context(), m.key(900))
	m.must(err)
	_, err = m.client.Compact(m.t.Context(), gone.Header.Revision, clientv3.WithCompactPhysical())
	m.must(err)
	_, err = m.client.Compact(m.t.Context(), now.Header.Revision-60)
	m.refused(err, rpctypes.ErrCompacted)
}

func (m *mixed) alarms() {
	ctx := m.t.Context()
	status, err := m.client.Status(ctx, m.cluster.Member(0).ClientURL)
	m.must(err)
	raw := pb.NewMaintenanceClient(m.client.ActiveConnection())
	for _, alarm := range []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT} {
		_, err = raw.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: alarm})
		m.must(err)
		_, err = m.client.Put(ctx, m.key(1), "refused")
		require.Error(m.t, err, "%s: a put was taken", alarm)
		if alarm == pb.AlarmType_NOSPACE {
			_, err = m.client.Delete(ctx, m.key(3))
			m.must(err)
		}
		_, err = raw.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: status.Header.MemberId, Alarm: alarm})
		m.must(err)
	}
}

// users turns authentication on, lets users do what they may and what they may
// not, while permissions change, and turns it off.
func (m *mixed) users() {
	ctx := m.t.Context()
	_, err := m.client.UserAdd(ctx, "root", "root-password")
	if !errors.Is(rpctypes.Error(err), rpctypes.ErrUserAlreadyExist) {
		m.must(err)
		_, err = m.client.UserGrantRole(ctx, "root", "root")
		m.must(err)
	}
	user, role := "user"+m.key(0), "role"+m.key(0)
	_, err = m.client.RoleAdd(ctx, role)
	m.must(err)
	_, err = m.client.RoleGrantPermission(ctx, role, m.prefix, clientv3.GetPrefixRangeEnd(m.prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	m.must(err)
	_, err = m.client.UserAdd(ctx, user, "first")
	m.must(err)
	_, err = m.client.UserChangePassword(ctx, user, "second")
	m.must(err)
	_, err = m.client.UserGrantRole(ctx, user, role)
	m.must(err)
	_, err = m.client.AuthEnable(ctx)
	m.must(err)
	root, his := m.login("root", "root-password"), m.login(user, "second")
	_, err = his.Put(ctx, "elsewhere", "v")
	m.refused(err, rpctypes.ErrPermissionDenied)
	_, err = his.RoleAdd(ctx, "mine")
	m.refused(err, rpctypes.ErrPermissionDenied)

	// Each grant makes the authentication revision of what is on its way old.
	done := make(chan struct{})
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					_, _ = his.Put(ctx, m.key(w*10+i%10), "by user") // refused or not
				}
			}
		})
	}
	for i := range 15 {
		_, err = root.RoleGrantPermission(ctx, role, fmt.Sprint("other", i), "", clientv3.PermissionType(clientv3.PermRead))
		m.must(err)
	}
	close(done)
	all.Wait()
	_, err = root.RoleRevokePermission(ctx, role, "other3", "")
	m.must(err)
	_, err = root.UserRevokeRole(ctx, user, role)
	m.must(err)
	_, err = root.RoleAdd(ctx, "gone"+role)
	m.must(err)
	_, err = root.RoleDelete(ctx, "gone"+role)
	m.must(err)
	_, err = root.UserAdd(ctx, "gone"+user, "x")
	m.must(err)
	_, err = root.UserDelete(ctx, "gone"+user)
	m.must(err)
	_, err = root.AuthDisable(ctx)
	m.must(err)
}

func (m *mixed) login(user, password string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: m.client.Endpoints(), Username: user, Password: password, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	m.must(err)
	m.t.Cleanup(func() { c.Close() })
	return c
}

func (m *mixed) downgrade() {
	if v := m.cluster.Version(); v != "3.6" && v != "3.7" {
		return
	}
	raw := pb.NewMaintenanceClient(m.client.ActiveConnection())
	to := map[string]string{"3.6": "3.5", "3.7": "3.6"}[m.cluster.Version()]
	_, err := raw.Downgrade(m.t.Context(), &pb.DowngradeRequest{Action: pb.DowngradeRequest_ENABLE, Version: to})
	m.must(err)
	_, err = raw.Downgrade(m.t.Context(), &pb.DowngradeRequest{Action: pb.DowngradeRequest_CANCEL})
	m.must(err)
}

// grow adds a learner, promotes it and gives it another address.
func (m *mixed) grow() (number int, id uint64) {
	number = m.cluster.AddLearner(m.t)
	list, err := m.client.MemberList(m.t.Context())
	m.must(err)
	for _, x := range list.Members {
		if x.IsLearner {
			id = x.ID
		}
	}
	storetest.Reconfigure(m.t, func(ctx context.Context) error { _, err := m.client.MemberPromote(ctx, id); return err }, rpctypes.ErrMemberNotLearner)
	storetest.Reconfigure(m.t, func(ctx context.Context) error {
		_, err := m.client.MemberUpdate(ctx, id, []string{m.cluster.Member(number).PeerURL, "http://127.0.0.1:1"})
		return err
	})
	return number, id
}

// shrink removes it again, and waits until the other one leads.
func (m *mixed) shrink(number int, id uint64) {
	storetest.Reconfigure(m.t, func(ctx context.Context) error { _, err := m.client.MemberRemove(ctx, id); return err }, rpctypes.ErrMemberNotFound)
	m.cluster.Kill(number)
	storetest.Eventually(m.t, "the other one leads", func() error {
		ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Second)
		defer cancel()
		_, err := m.client.Get(ctx, "x")
		return err
	})
}

// fullSnapshot streams a member's database to a file, without the SHA-256 that
// comes behind it.
func fullSnapshot(t testing.TB, client *clientv3.Client) string {
	t.Helper()
	r, err := client.Snapshot(t.Context())
	require.NoError(t, err)
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, os.WriteFile(path, data[:len(data)-32], 0o600))
	return path
}

// walEntries are those in the log of a stopped member, from first on.
func walEntries(t testing.TB, dataDir string, first uint64) []raftlog.Entry {
	t.Helper()
	w, err := wal.OpenForRead(zap.NewNop(), filepath.Join(dataDir, "member", "wal"), &walpb.Snapshot{Index: new(uint64), Term: new(uint64)})
	require.NoError(t, err)
	defer w.Close()
	_, _, all, err := w.ReadAll()
	require.NoError(t, err)
	var entries []raftlog.Entry
	for _, e := range all {
		if e.GetIndex() >= first {
			entries = append(entries, raftlog.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Type: e.GetType(), Data: slices.Clip(e.Data)})
		}
	}
	return entries
}
