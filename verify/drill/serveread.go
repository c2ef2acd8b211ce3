package drill

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// readers is how many requests are under way at a time.
const readers = 8

// checkReads makes each probe at one of the voters.
func (s *server) checkReads(ctx context.Context) error {
	group, reading := errgroup.WithContext(ctx)
	for i, v := range s.voters {
		var share []*probe
		for j := i; j < len(s.expect.probes); j += len(s.voters) {
			share = append(share, s.expect.probes[j])
		}
		group.Go(func() error { return s.read(reading, v, share) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return s.checkCompacted(ctx)
}

func (s *server) read(ctx context.Context, v *voter, probes []*probe) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, p := range probes {
		group.Go(func() error {
			request, cancel := bounded(ctx)
			defer cancel()
			got, err := v.Get(request, p.key, clientv3.WithRev(p.revision))
			if err != nil {
				return fmt.Errorf("read %q at revision %d from %s: %w", p.key, p.revision, v.Name, err)
			}
			s.compare(v, p, got)
			return nil
		})
	}
	return group.Wait()
}

func (s *server) compare(v *voter, p *probe, got *clientv3.GetResponse) {
	at := fmt.Sprintf("key %q, revision %d, member %s", p.key, p.revision, v.Name)
	switch {
	case p.want == nil && len(got.Kvs) > 0:
		s.findings.serve(at, "it is served, and is deleted or not there in the database")
	case p.want == nil:
	case len(got.Kvs) == 0:
		s.findings.serve(at, "it is in the database, and is not served")
	case string(got.Kvs[0].Key) != p.key:
		s.findings.serve(at, "the key %q is served for it", got.Kvs[0].Key)
	default:
		if text := p.want.differs(served(got.Kvs[0])); text != "" {
			s.findings.serve(at, "%s", text)
		}
	}
}

// checkCompacted asks for what was compacted away: clients count on the error.
func (s *server) checkCompacted(ctx context.Context) error {
	if s.expect.compacted < 2 {
		return nil
	}
	request, cancel := bounded(ctx)
	defer cancel()
	_, err := s.main.Get(request, s.prefix, clientv3.WithRev(s.expect.compacted-1))
	if err == nil {
		s.findings.serve(fmt.Sprintf("revision %d", s.expect.compacted-1), "a read is answered, although all before revision %d was compacted", s.expect.compacted)
		return nil
	}
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil
	}
	return err
}

// checkCounts counts all keys, stretch by stretch, and all of them at each
// voter.
func (s *server) checkCounts(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	count := func(v *voter, from, end string, want int64) {
		group.Go(func() error {
			request, cancel := bounded(ctx)
			defer cancel()
			got, err := v.Get(request, from, clientv3.WithRange(end), clientv3.WithRev(s.expect.revision), clientv3.WithCountOnly())
			if err != nil {
				return err
			}
			if got.Count != want {
				s.findings.serve(fmt.Sprintf("keys from %q to %q, member %s", from, end, v.Name), "%d are served at revision %d, and %d are in the database", got.Count, s.expect.revision, want)
			}
			return nil
		})
	}
	const toTheEnd = "\x00"
	for i, span := range s.expect.spans {
		end := toTheEnd
		if i+1 < len(s.expect.spans) {
			end = s.expect.spans[i+1].from
		}
		count(s.voters[i%len(s.voters)], span.from, end, span.keys)
	}
	for _, v := range s.voters {
		count(v, "\x00", toTheEnd, s.expect.live)
	}
	return group.Wait()
}
