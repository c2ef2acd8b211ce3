package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// script is what is rare: each part once a round, spread over the load.
func (m *Mixed) script(ctx context.Context) {
	parts := []func(context.Context, int){
		m.compact, m.users, m.moveLeader, m.compact, m.alarms, m.learner, m.compact, m.voter, m.downgrade, m.compact,
	}
	rounds := max(1, m.options.Ops/25_000)
	for round := range rounds {
		for i, part := range parts {
			n := round*len(parts) + i
			if !m.await(ctx, float64(n+1)/float64(rounds*len(parts)+1)) {
				return
			}
			part(ctx, n)
		}
	}
}

// compact compacts at the put of the call before, every other time waiting for
// the work to be done. At a deletion versions would differ in what they keep.
func (m *Mixed) compact(ctx context.Context, _ int) {
	m.past.Lock()
	defer m.past.Unlock()
	if m.marker == 0 && !m.mark(ctx) {
		return
	}
	kind, options := Compact, []clientv3.CompactOption(nil)
	if m.compactions++; m.compactions%2 == 0 {
		kind, options = CompactPhysical, append(options, clientv3.WithCompactPhysical())
	}
	at := m.marker
	_ = m.mark(ctx) && m.insist(ctx, kind, rpctypes.ErrCompacted, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.Compact(ctx, at, options...) })
}

// mark makes the put that the next compaction is at.
func (m *Mixed) mark(ctx context.Context) bool {
	return m.insist(ctx, PutSmall, nil, func(ctx context.Context, c *clientv3.Client) (any, error) {
		resp, err := c.Put(ctx, MixedPrefix+"compact-here", "here")
		if err == nil {
			m.marker = resp.Header.Revision
		}
		return nil, err
	})
}

// step is a part of the script that is one request.
type step struct {
	kind Kind
	done error // see insist
	do   request
}

func (m *Mixed) steps(ctx context.Context, all []step) bool {
	for _, s := range all {
		if !m.insist(ctx, s.kind, s.done, s.do) {
			return false
		}
	}
	return true
}

// users makes a user with a role, turns authentication on, lets the user do
// what it may and what it may not, and takes everything back.
func (m *Mixed) users(ctx context.Context, n int) {
	user, role, prefix := fmt.Sprintf("user%d", n), fmt.Sprintf("role%d", n), fmt.Sprintf("%suser%d/", MixedPrefix, n)
	end := clientv3.GetPrefixRangeEnd(prefix)
	addRole := func(name string) step {
		return step{RoleAdd, rpctypes.ErrRoleAlreadyExist, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.RoleAdd(ctx, name) }}
	}
	addUser := func(name, password string) step {
		return step{UserAdd, rpctypes.ErrUserAlreadyExist, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.UserAdd(ctx, name, password) }}
	}
	grant := func(user, role string) step {
		return step{UserGrant, nil, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.UserGrantRole(ctx, user, role) }}
	}
	_ = m.steps(ctx, []step{
		addRole("root"), addUser(RootUser, RootPassword), grant(RootUser, "root"), // once for all rounds
		addRole("kept-" + role), addUser("kept-"+user, "kept"), grant("kept-"+user, "kept-"+role), // for the final state to have some
		addRole(role),
		{RoleGrant, nil, func(ctx context.Context, c *clientv3.Client) (any, error) {
			return c.RoleGrantPermission(ctx, role, prefix, end, clientv3.PermissionType(clientv3.PermReadWrite))
		}},
		addUser(user, "first"), grant(user, role),
		{UserPassword, nil, func(ctx context.Context, c *clientv3.Client) (any, error) {
			return c.UserChangePassword(ctx, user, "second")
		}},
		{AuthEnable, nil, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.AuthEnable(ctx) }},
	}) && m.asUser(ctx, user, "second", prefix) && m.steps(ctx, []step{
		{RoleRevoke, rpctypes.ErrPermissionNotGranted, func(ctx context.Context, c *clientv3.Client) (any, error) {
			return c.RoleRevokePermission(ctx, role, prefix, end)
		}},
		{UserRevoke, rpctypes.ErrRoleNotGranted, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.UserRevokeRole(ctx, user, role) }},
		{AuthDisable, rpctypes.ErrAuthNotEnabled, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.AuthDisable(ctx) }},
		{UserDelete, rpctypes.ErrUserNotFound, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.UserDelete(ctx, user) }},
		{RoleDelete, rpctypes.ErrRoleNotFound, func(ctx context.Context, c *clientv3.Client) (any, error) { return c.RoleDelete(ctx, role) }},
	})
}

// asUser makes requests that a user may make, and some that are refused when
// they are applied.
func (m *Mixed) asUser(ctx context.Context, user, password, prefix string) bool {
	var own *clientv3.Client
	if !m.insist(ctx, UserAllowed, nil, func(context.Context, *clientv3.Client) (_ any, err error) { // it logs in
		own, err = clientv3.New(clientv3.Config{
			Context: ctx, Endpoints: []string{m.cluster.members[0].ClientURL}, Username: user, Password: password,
			DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		})
		return nil, err
	}) {
		return false
	}
	defer own.Close()
	allowed := func(ctx context.Context, _ *clientv3.Client) (any, error) {
		return own.Put(ctx, prefix+"own", "by "+user)
	}
	denied := func(ctx context.Context, _ *clientv3.Client) (any, error) {
		_, err := own.Put(ctx, MixedPrefix+"not-theirs", "by "+user)
		return nil, expectError(err, rpctypes.ErrPermissionDenied)
	}
	for range 3 {
		if !m.insist(ctx, UserAllowed, nil, allowed) || !m.insist(ctx, UserDenied, nil, denied) {
			return false
		}
	}
	return true
}

// expectError turns the refusal that is wanted into success.
func expectError(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	if err == nil {
		return fmt.Errorf("it was not refused, want %w", want)
	}
	return err
}

// alarms raises alarms, has writes refused, and clears them.
func (m *Mixed) alarms(ctx context.Context, _ int) {
	for _, a := range []struct {
		alarm                pb.AlarmType
		raise, refuse, clear Kind
		err                  error
	}{
		{pb.AlarmType_NOSPACE, NoSpaceRaise, NoSpaceRefused, NoSpaceClear, rpctypes.ErrNoSpace},
		{pb.AlarmType_CORRUPT, CorruptRaise, CorruptRefused, CorruptClear, rpctypes.ErrCorrupt},
	} {
		// The same member in all: the alarm is that member's.
		var member uint64
		set := func(action pb.AlarmRequest_AlarmAction) request {
			return func(ctx context.Context, c *clientv3.Client) (any, error) {
				if member == 0 {
					status, err := c.Status(ctx, c.Endpoints()[0])
					if err != nil {
						return nil, err
					}
					member = status.Header.MemberId
				}
				return pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: action, MemberID: member, Alarm: a.alarm})
			}
		}
		raised := m.insist(ctx, a.raise, nil, set(pb.AlarmRequest_ACTIVATE)) &&
			m.insist(ctx, a.refuse, nil, func(ctx context.Context, c *clientv3.Client) (any, error) {
				_, err := c.Put(ctx, MixedPrefix+"refused", a.alarm.String())
				return nil, expectError(err, a.err)
			})
		if !m.insist(ctx, a.clear, nil, set(pb.AlarmRequest_DEACTIVATE)) || !raised {
			return
		}
	}
}

// moveLeader hands the leadership to the next member.
func (m *Mixed) moveLeader(ctx context.Context, _ int) {
	m.insist(ctx, LeaderMove, nil, func(ctx context.Context, _ *clientv3.Client) (any, error) {
		for i, c := range m.clients {
			status, err := c.Status(ctx, c.Endpoints()[0])
			if err != nil || status.Leader != status.Header.MemberId {
				continue
			}
			next := m.clients[(i+1)%len(m.clients)]
			to, err := next.Status(ctx, next.Endpoints()[0])
			if err != nil {
				return nil, err
			}
			return c.MoveLeader(ctx, to.Header.MemberId)
		}
		return nil, errors.New("none of the members leads")
	})
}

// downgrade begins one and calls it off.
func (m *Mixed) downgrade(ctx context.Context, _ int) {
	version := m.cluster.Version()
	if !hasDowngrade(version) {
		return
	}
	older := map[string]string{"3.6": "3.5.0", "3.7": "3.6.0"}[version]
	_ = m.steps(ctx, []step{
		{DowngradeEnable, rpctypes.ErrDowngradeInProcess, func(ctx context.Context, c *clientv3.Client) (any, error) {
			return c.Downgrade(ctx, clientv3.DowngradeEnable, older)
		}},
		{DowngradeCancel, rpctypes.ErrNoInflightDowngrade, func(ctx context.Context, c *clientv3.Client) (any, error) {
			return c.Downgrade(ctx, clientv3.DowngradeCancel, "")
		}},
	})
}

// MixedPrefix begins all keys of a mixed load.
const MixedPrefix = "/mixed/"

// mixedKeys is how many keys a worker has of its own: so few that most are
// overwritten and deleted many times.
const mixedKeys = 150

// mixedWorker makes one request after the other.
type mixedWorker struct {
	load   *Mixed
	client *clientv3.Client
	rng    *rand.Rand
	prefix string
	quota  int
}

func newMixedWorker(m *Mixed, i int) *mixedWorker {
	return &mixedWorker{
		load: m, client: m.clients[i%len(m.clients)],
		rng:    rand.New(rand.NewPCG(m.options.Seed, uint64(i))),
		prefix: fmt.Sprintf("%s%03d/", MixedPrefix, i),
		quota:  (m.options.Ops + m.options.Workers - 1) / m.options.Workers,
	}
}

// slowly is how long a worker that has done its part waits between requests, until the
// rest of the load has been done, and one that was refused: the longer an alarm lasts on
// a busy machine, the more would be.
const slowly = 100 * time.Millisecond

func (w *mixedWorker) run(ctx context.Context) {
	for n := 0; !w.load.Over(); n++ {
		wait := time.Duration(0)
		if n >= w.quota {
			wait = slowly
		}
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		kind, err := w.step(bounded)
		cancel()
		if ctx.Err() != nil {
			return
		}
		w.load.counts.note(kind, err)
		w.load.done.Add(1)
		if err != nil {
			wait = slowly
		}
		if wait > 0 && !pause(ctx, wait) {
			return
		}
	}
}

// step draws all its random numbers whatever happens, so that the next ones are
// the same in each run.
func (w *mixedWorker) step(ctx context.Context) (Kind, error) {
	what, key := w.rng.IntN(1000), w.key()
	switch {
	case what < 420:
		return PutSmall, w.put(ctx, key, w.value(8, 256))
	case what < 560:
		return PutMedium, w.put(ctx, key, w.value(1000, 4000))
	case what < 563:
		return PutLarge, w.put(ctx, key, w.value(30_000, 90_000))
	case what < 620:
		value := w.value(8, 256)
		lease, ok := w.load.leases.any()
		if !ok {
			return PutSmall, w.put(ctx, key, value)
		}
		return PutLeased, w.put(ctx, key, value, clientv3.WithLease(lease))
	case what < 720:
		_, err := w.client.Delete(ctx, key)
		return Delete, err
	case what < 760:
		_, err := w.client.Delete(ctx, key, clientv3.WithRange(w.key()))
		return DeleteMap, err
	case what < 940:
		return w.txn(ctx, key)
	default:
		return TxnNested, w.nested(ctx, key)
	}
}

func (w *mixedWorker) key() string { return fmt.Sprintf("%sk%03d", w.prefix, w.rng.IntN(mixedKeys)) }

// shared is a key that all workers write.
func (w *mixedWorker) shared() string {
	return fmt.Sprintf("%sshared/%02d", MixedPrefix, w.rng.IntN(20))
}

func (w *mixedWorker) put(ctx context.Context, key, value string, options ...clientv3.OpOption) error {
	_, err := w.client.Put(ctx, key, value, options...)
	return err
}

// value is half random and half not.
func (w *mixedWorker) value(least, most int) string {
	b := make([]byte, least+w.rng.IntN(most-least))
	for i := 0; i < len(b); i += 2 {
		b[i] = byte(w.rng.Uint32())
	}
	return string(b)
}

// txn compares what may hold or not.
func (w *mixedWorker) txn(ctx context.Context, key string) (Kind, error) {
	shared, value := w.shared(), w.value(8, 512)
	compares := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(key), ">", 0),
		clientv3.Compare(clientv3.Version(shared), "<", 1_000_000),
		clientv3.Compare(clientv3.Value(key), "!=", "nobody's"),
		clientv3.Compare(clientv3.LeaseValue(shared), "=", 0),
	}
	resp, err := w.client.Txn(ctx).If(compares[:1+w.rng.IntN(len(compares))]...).
		Then(clientv3.OpPut(shared, value), clientv3.OpDelete(key), clientv3.OpGet(key)).
		Else(clientv3.OpPut(key, value), clientv3.OpGet(shared)).Commit()
	if err == nil && resp.Succeeded {
		return TxnThen, nil
	}
	return TxnElse, err
}

// nested puts transactions into transactions. A key is named once in what may
// happen together: etcd refuses more.
func (w *mixedWorker) nested(ctx context.Context, key string) error {
	inner := clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), ">", 0).WithPrefix()},
		[]clientv3.Op{clientv3.OpDelete(key, clientv3.WithPrefix()), clientv3.OpPut(w.prefix+"then", w.value(8, 64))},
		[]clientv3.Op{
			clientv3.OpPut(key, w.value(8, 64)),
			clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(w.prefix+"innermost", w.value(8, 64)), clientv3.OpGet(w.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())}, nil),
		})
	_, err := w.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(w.prefix+"outer"), "<", int64(w.rng.IntN(100)))).
		Then(clientv3.OpPut(w.prefix+"outer", w.value(8, 64)), inner).
		Else(inner, clientv3.OpDelete(w.prefix+"outer")).Commit()
	return err
}
