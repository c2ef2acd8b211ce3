package engine

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/requorum/requorum/walreplay/raftlog"
)

// puts is a log of n puts with values of so many bytes, to n/4 keys.
func puts(t testing.TB, n, size int) []raftlog.Entry {
	random := rand.New(rand.NewPCG(1, 2))
	what := make([]any, n)
	for i := range what {
		value := make([]byte, size)
		for k := 0; k < size; k += 8 {
			copy(value[k:], fmt.Sprintf("%08x", random.Uint32()))
		}
		what[i] = &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Appendf(nil, "/registry/pods/default/%08d", random.IntN(n/4)), Value: value}}
	}
	return logOf(t, 1, what...)
}

// mix is 100 keys' worth of everything, over and over: half of it puts, the rest
// deletes, transactions and leases.
func mix(t testing.TB, n, size int) []raftlog.Entry {
	entries := puts(t, n, size)
	var what []any
	for i := range entries {
		r := &pb.InternalRaftRequest{}
		d := decode(entries[i])
		d.unmarshal() // a plain put has none
		key := d.request.Put.Key
		switch i % 10 {
		case 5:
			r.DeleteRange = &pb.DeleteRangeRequest{Key: key}
		case 6, 7:
			r.Txn = &pb.TxnRequest{
				Compare: []*pb.Compare{{Key: key, Target: pb.Compare_MOD, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_ModRevision{}}},
				Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: d.request.Put}}},
				Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}},
			}
		case 8:
			r.LeaseGrant = &pb.LeaseGrantRequest{ID: int64(i + 1), TTL: 3600}
		case 9:
			r = d.request
			r.Put.Lease = int64(i)
		default:
			r = d.request
		}
		r.Header = nil
		what = append(what, r)
	}
	return logOf(t, 1, what...)
}

// loads are what is replayed.
func loads(b *testing.B) iter.Seq2[string, []raftlog.Entry] {
	return func(yield func(string, []raftlog.Entry) bool) {
		_ = yield("puts of 256 B", puts(b, 300_000, 256)) &&
			yield("puts of 1.4 KB", puts(b, 150_000, 1400)) &&
			yield("mixed", mix(b, 300_000, 256))
	}
}

func BenchmarkReplay(b *testing.B) {
	for name, entries := range loads(b) {
		for how, open := range map[string]func(path string) (Replayer, error){
			"by etcd's applier": func(path string) (Replayer, error) { return Open(b.Context(), path, Options{}) },
			"on its backend":    func(path string) (Replayer, error) { return Open(b.Context(), path, Options{etcdBackend: true}) },
			"in bulk":           func(path string) (Replayer, error) { return OpenBulk(b.Context(), path, path+"-bulk", Options{}) },
		} {
			b.Run(name+", "+how, func(b *testing.B) {
				for b.Loop() {
					e, err := open(empty(b))
					require.NoError(b, err)
					_, err = Run(b.Context(), e, seq(entries), RunOptions{})
					require.NoError(b, err)
					require.NoError(b, e.Close())
				}
				b.ReportMetric(float64(b.N)*float64(len(entries))/b.Elapsed().Seconds(), "entries/s")
			})
		}
	}
}
