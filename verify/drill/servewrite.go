package drill

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// checkWrites writes, swaps, deletes and watches, and lets leases end.
func (s *server) checkWrites(ctx context.Context) error {
	for _, do := range []func(context.Context) error{s.checkSwaps, s.checkRestored, s.checkResume, s.checkNewLease, s.checkExpired} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// swapped is the key that checkSwaps writes: two puts and a deletion.
func (s *server) swapped() string { return s.prefix + "swapped" }

// checkSwaps makes optimistic writes of a new key that must succeed, and others
// that must not.
func (s *server) checkSwaps(ctx context.Context) error {
	request, cancel := bounded(ctx)
	defer cancel()
	key := s.swapped()
	created, err := s.swap(request, clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.OpPut(key, "1"), true)
	if err != nil {
		return err
	}
	if created <= s.expect.revision {
		s.findings.serve("", "a write has revision %d, and the database was at %d before", created, s.expect.revision)
	}
	for _, step := range []struct {
		compare clientv3.Cmp
		then    clientv3.Op
		want    bool
	}{
		{clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.OpPut(key, "wrong"), false},
		{clientv3.Compare(clientv3.ModRevision(key), "=", created), clientv3.OpPut(key, "2"), true},
		{clientv3.Compare(clientv3.ModRevision(key), "=", created), clientv3.OpPut(key, "wrong"), false},
		{clientv3.Compare(clientv3.Value(key), "=", "2"), clientv3.OpDelete(key), true},
	} {
		if _, err := s.swap(request, step.compare, step.then, step.want); err != nil {
			return err
		}
	}
	// Every voter has it.
	for _, v := range s.voters {
		past, err := v.Get(request, key, clientv3.WithRev(created))
		if err != nil {
			return err
		}
		now, err := v.Get(request, key)
		if err != nil {
			return err
		}
		if len(past.Kvs) != 1 || string(past.Kvs[0].Value) != "1" || now.Count != 0 {
			s.findings.serve("member "+v.Name, "it does not serve what was just written at revision %d and deleted later", created)
		}
	}
	return nil
}

// swap is a transaction with one comparison; it gives the revision after it.
func (s *server) swap(ctx context.Context, compare clientv3.Cmp, then clientv3.Op, want bool) (int64, error) {
	got, err := s.main.Txn(ctx).If(compare).Then(then).Commit()
	if err != nil {
		return 0, err
	}
	if got.Succeeded != want {
		s.findings.serve(fmt.Sprintf("key %q", compare.KeyBytes()), "a compare-and-swap that must come out as %t came out as %t", want, got.Succeeded)
	}
	return got.Header.Revision, nil
}

// mostRestored is how many keys of the image are written.
const mostRestored = 20

// checkRestored writes keys of the image, as clients would that remember their
// revisions from before.
func (s *server) checkRestored(ctx context.Context) error {
	written := map[string]bool{}
	for _, p := range s.expect.probes {
		// A key with a lease may go at any time.
		if p.revision != s.expect.revision || p.want == nil || p.want.lease != 0 || written[p.key] {
			continue
		}
		if err := s.swapRestored(ctx, p); err != nil {
			return err
		}
		if written[p.key] = true; len(written) == mostRestored {
			break
		}
	}
	return nil
}

func (s *server) swapRestored(ctx context.Context, p *probe) error {
	request, cancel := bounded(ctx)
	defer cancel()
	remembered := clientv3.Compare(clientv3.ModRevision(p.key), "=", p.want.mod)
	at, err := s.swap(request, remembered, clientv3.OpPut(p.key, "drill"), true)
	if err != nil {
		return err
	}
	if _, err := s.swap(request, remembered, clientv3.OpPut(p.key, "wrong"), false); err != nil {
		return err
	}
	got, err := s.main.Get(request, p.key)
	if err != nil {
		return err
	}
	if len(got.Kvs) != 1 {
		s.findings.serve(fmt.Sprintf("key %q", p.key), "it was written, and is not there")
		return nil
	}
	if kv := got.Kvs[0]; kv.ModRevision != at || kv.CreateRevision != p.want.create || kv.Version != p.want.version+1 {
		s.findings.serve(fmt.Sprintf("key %q", p.key), "version %d, created at revision %d, is in the database; the next write makes it version %d, created at revision %d",
			p.want.version, p.want.create, kv.Version, kv.CreateRevision)
	}
	return nil
}

// checkResume watches from a revision before the writes, ends the watch after
// the first event, and resumes it at another member.
func (s *server) checkResume(ctx context.Context) error {
	key := s.swapped()
	var told []string
	from := s.expect.revision + 1
	for i, most := range []int{1, 3} {
		v := s.voters[i%len(s.voters)]
		err := s.watch(ctx, v, key, func(e *clientv3.Event) bool {
			told = append(told, e.Type.String()+string(e.Kv.Value))
			from = e.Kv.ModRevision + 1
			return len(told) < most
		}, clientv3.WithRev(from))
		if err != nil {
			return err
		}
	}
	if got, want := fmt.Sprint(told), "[PUT1 PUT2 DELETE]"; got != want {
		s.findings.serve(fmt.Sprintf("key %q", key), "a watch that is resumed told %s, and %s was written", got, want)
	}
	return nil
}
