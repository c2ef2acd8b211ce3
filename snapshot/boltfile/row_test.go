package boltfile

import (
	"bytes"
	"math"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// TestRowLikeEtcd: keys are what etcd writes and reads.
func TestRowLikeEtcd(t *testing.T) {
	for _, r := range []Revision{{}, {1, 0}, {2, 1}, {256, 70000}, {math.MaxInt64, math.MaxInt64}} {
		want := mvcc.RevToBytes(mvcc.Revision{Main: r.Main, Sub: r.Sub}, mvcc.NewRevBytes())
		if got := r.Bytes(); !bytes.Equal(got, want) || len(got) != RowSize {
			t.Errorf("%v is %x, etcd has %x", r, got, want)
		}
		for _, deleted := range []bool{false, true} {
			b := r.Bytes()
			if deleted {
				b = append(b, 't')
			}
			if k, err := ParseRow(b); err != nil || k != (Row{r, deleted}) {
				t.Errorf("%x is read as %v, %v", b, k, err)
			}
			if etcd := mvcc.BytesToBucketKey(b); etcd.Revision != (mvcc.Revision{Main: r.Main, Sub: r.Sub}) || mvcc.IsTombstone(b) != deleted {
				t.Errorf("etcd reads %x as %v", b, etcd)
			}
		}
	}
}

// TestRowRefused: what etcd would panic on, or take for a revision that it never
// wrote, is an error.
func TestRowRefused(t *testing.T) {
	sound := string(Revision{5, 1}.Bytes())
	for _, bad := range []string{
		"", sound[:RowSize-1], sound + "x", sound + "tt", sound[:8] + "-" + sound[9:],
		"\x80" + sound[1:], sound[:9] + "\xff" + sound[10:],
	} {
		if k, err := ParseRow([]byte(bad)); err == nil {
			t.Errorf("%x is read as %v", bad, k)
		}
	}
}

func TestRevisionString(t *testing.T) {
	for want, r := range map[string]Revision{"7": {7, 0}, "7.2": {7, 2}} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
