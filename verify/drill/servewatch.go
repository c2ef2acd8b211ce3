package drill

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

var errWatchEnded = errors.New("the watch ended by itself")

// watch calls each for every event until it returns false.
func (s *server) watch(ctx context.Context, v *voter, key string, each func(*clientv3.Event) bool, opts ...clientv3.OpOption) error {
	request, cancel := bounded(ctx)
	defer cancel()
	for r := range v.Watch(clientv3.WithRequireLeader(request), key, opts...) {
		if err := r.Err(); err != nil {
			return err
		}
		for _, e := range r.Events {
			if !each(e) {
				return nil
			}
		}
	}
	if err := request.Err(); err != nil {
		return err
	}
	return errWatchEnded
}

// checkHistory watches from a revision in the image's past: what came after it
// is told in its order.
func (s *server) checkHistory(ctx context.Context) error {
	if err := s.checkTooEarly(ctx); err != nil {
		return err
	}
	want := s.expect.changes
	next := 0
	// What the drill itself has written before, to the short lease's key, ends it.
	return s.watch(ctx, s.voters[len(s.voters)-1], "\x00", func(e *clientv3.Event) bool {
		switch {
		case e.Kv.ModRevision > s.expect.revision:
			if next < len(want) {
				s.findings.serve(want[next].where(), "a watch from revision %d goes on without it", s.expect.changesFrom+1)
			}
			return false
		case next == len(want):
			s.findings.serve(changeOf(e).where(), "a watch tells of it, and the database does not")
			return false
		}
		w, got := want[next], changeOf(e)
		next++
		if got.key != w.key || got.at != w.at || got.deleted != w.deleted {
			s.findings.serve(w.where(), "a watch tells of %s instead", got.where())
			return false
		}
		if text := w.state.differs(got.state); text != "" && !w.deleted {
			s.findings.serve(w.where(), "in a watch, %s", text)
		}
		return true
	}, clientv3.WithFromKey(), clientv3.WithRev(s.expect.changesFrom+1))
}

func changeOf(e *clientv3.Event) change {
	return change{key: string(e.Kv.Key), deleted: e.Type == clientv3.EventTypeDelete, at: e.Kv.ModRevision, state: served(e.Kv)}
}

// at0 says which change it is.
func (c change) where() string {
	what := "put"
	if c.deleted {
		what = "deletion"
	}
	return fmt.Sprintf("%s of key %q at revision %d", what, c.key, c.at)
}

// checkTooEarly watches from what was compacted away: the client has to be told,
// instead of missing changes.
func (s *server) checkTooEarly(ctx context.Context) error {
	if s.expect.compacted < 2 {
		return nil
	}
	request, cancel := bounded(ctx)
	defer cancel()
	r, told := <-s.main.Watch(request, "\x00", clientv3.WithFromKey(), clientv3.WithRev(1))
	switch {
	case r.CompactRevision == s.expect.compacted:
		return nil
	case request.Err() != nil: // it took too long, or the process is gone: that is no answer
		return request.Err()
	case !told:
		return errWatchEnded
	case r.CompactRevision == 0 && r.Err() != nil:
		return r.Err()
	}
	s.findings.serve("revision 1", "a watch from there is answered with %d events and the compacted revision %d; all before revision %d was compacted", len(r.Events), r.CompactRevision, s.expect.compacted)
	return nil
}
