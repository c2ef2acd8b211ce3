package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/verify/report"
)

// server is what a drill asks: the cluster, member by member. Simple tokens are
// known where somebody logged in and, a little later, elsewhere: so each client
// has one member.
type server struct {
	*drill
	voters []*voter
	main   *clientv3.Client // of the first voter
	prefix string           // of keys that no image has
}

type voter struct {
	restore.Member
	endpoint string
	*clientv3.Client
}

// serve compares what the cluster serves with what it has to.
func (d *drill) serve(ctx context.Context) (err error) {
	s := &server{drill: d, prefix: "/requorum-drill-" + randomName() + "/"}
	defer func() { err = errors.Join(err, s.close()) }()
	// A client would go on trying to reach members that are gone.
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-d.process.gone:
		case <-working.Done():
		}
	}()
	// The first read is timed from the moment that somebody could make it.
	done := d.phase(PhaseFirstRead)
	for _, m := range d.plan.Members {
		if m.Learner {
			continue
		}
		if err := s.connect(working, m); err != nil {
			return s.explain(ctx, "connecting to "+m.Name, err)
		}
	}
	if _, err := s.main.Get(working, s.prefix); err != nil {
		return s.explain(ctx, "the first read", err)
	}
	done()
	defer d.phase(PhaseServe)()
	checks := []struct {
		what string
		do   func(context.Context) error
	}{
		// First, as short leases end soon.
		{"its leases", s.checkLeases},
		{"its members", s.checkMembers},
		{"its users and roles", s.checkAuth},
		{"its hash", s.checkHash},
		{"reading", s.checkReads},
		{"counting keys", s.checkCounts},
		{"watching what it holds", s.checkHistory},
		{"writing", s.checkWrites},
		{"promoting its learners", s.promote},
		{"its hash after writing", s.checkAgreement},
		{"its alarms", s.checkAlarms},
	}
	for i, c := range checks {
		d.options.Progress(PhaseServe, int64(i), int64(len(checks)))
		if err := c.do(working); err != nil {
			return s.explain(ctx, c.what, err)
		}
	}
	d.options.Progress(PhaseServe, int64(len(checks)), int64(len(checks)))
	d.check.Compared += fmt.Sprintf(", and what it served was compared with the database at revision %d: %s", d.expect.revision, s.compared())
	return nil
}

// connect makes a client of one member, which logs in where it has to.
func (s *server) connect(ctx context.Context, m restore.Member) error {
	c := clientv3.Config{Endpoints: []string{s.clients[m.Name]}, DialTimeout: requestTimeout, Logger: zap.NewNop(), Context: ctx}
	if s.auth.enabled {
		c.Username, c.Password = root, s.auth.password
	}
	client, err := clientv3.New(c)
	if err != nil {
		return err
	}
	s.voters = append(s.voters, &voter{m, s.clients[m.Name], client})
	if s.main == nil {
		s.main = client
	}
	return nil
}

func (s *server) close() error {
	var errs []error
	for _, v := range s.voters {
		if err := v.Close(); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// explain finds out what an error of a request means: that the drill was
// cancelled, that etcd ended its process over it, that it took too long, or that
// it answered wrongly.
func (s *server) explain(ctx context.Context, what string, err error) error {
	var broken *faultError
	var could *unableError
	if errors.As(err, &broken) || errors.As(err, &could) {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Of a process that ends, broken connections tell first.
	if code := codeOf(err); code == codes.Unavailable || code == codes.Canceled {
		s.process.endsWithin(ctx, burial)
	}
	if s.process.endsWithin(ctx, 0) {
		return s.process.death(report.KindServe, "at "+what)
	}
	switch codeOf(err) {
	case codes.DeadlineExceeded, codes.ResourceExhausted, codes.Unavailable, codes.Canceled:
		return unable("%s: %w: try again where there is less to do", what, err)
	default:
		return fault(report.KindServe, "", "%s failed: %v", what, err)
	}
}

func codeOf(err error) codes.Code {
	var etcd rpctypes.EtcdError
	if errors.As(err, &etcd) {
		return etcd.Code()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled), errors.Is(err, errWatchEnded):
		return codes.Canceled
	}
	return status.Code(err)
}

// hashing is a context for a member's HashKV, which reads the whole database:
// from a slow disk, where memory is short.
func (s *server) hashing(ctx context.Context) (context.Context, context.CancelFunc) {
	const slowest = 10 << 20 // bytes a second
	return context.WithTimeout(ctx, requestTimeout+time.Duration(s.image.Size()/slowest)*time.Second)
}

// bounded is a context for one request.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}
