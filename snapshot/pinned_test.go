package snapshot

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

// readAhead is what must not be between a member and who reads its file: it takes in the
// whole stream at once, so that the member's read transaction is over, and gives it out
// as if it was not.
type readAhead struct {
	size   int64
	pieces [][]byte
}

func readAllAhead(t *testing.T, s *client.SnapshotStream) *readAhead {
	t.Helper()
	r := &readAhead{size: s.Size()}
	for {
		part, err := s.Next()
		if err == io.EOF {
			return r
		}
		require.NoError(t, err)
		r.pieces = append(r.pieces, slices.Clone(part))
	}
}

func (r *readAhead) Size() int64  { return r.size }
func (r *readAhead) Close() error { return nil }
func (r *readAhead) Next() ([]byte, error) {
	if len(r.pieces) == 0 {
		return nil, io.EOF
	}
	part := r.pieces[0]
	r.pieces = r.pieces[1:]
	return part, nil
}

// It is the open stream that keeps the pages: with it a file that is written over while
// it is read gives the database of the stream's revision. Without it, as with a stream
// that something between has read ahead, the same gives a mixture, which the checks find.
func TestOpenStreamKeepsThePages(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some("3.7") {
		c := storetest.Start(t, storetest.Options{Version: version, ExtraArgs: []string{"--unsafe-no-fsync"}})
		load := storetest.Load{Keys: 4200, ValueSize: 8 << 10}
		c.Fill(t, load)
		kv := c.Client(t)
		asked, err := client.Dial(t.Context(), c.ClientConfig())
		require.NoError(t, err)
		t.Cleanup(func() { asked.Close() })
		survey, err := asked.Survey(t.Context())
		require.NoError(t, err)

		// take reads the file, and writes much of it over in the middle.
		take := func(open func(*client.SnapshotStream) heldStream) (database []byte, want uint32, err error) {
			head, err := kv.Put(t.Context(), "x", "x")
			require.NoError(t, err)
			hash, err := kv.HashKV(t.Context(), c.Endpoints()[0], head.Header.Revision)
			require.NoError(t, err)
			stream, err := asked.HeldStream(t.Context(), survey.Members[0])
			require.NoError(t, err)
			defer stream.Close()
			p, err := newPinned(open(stream), filepath.Join(c.Member(0).DataDir, "member", "snap", "db"))
			require.NoError(t, err)
			defer p.close()
			var read bytes.Buffer
			over := false
			err = p.copyTo(writerFunc(func(b []byte) (int, error) {
				if !over {
					over = true
					for range 3 {
						c.Fill(t, storetest.Load{Keys: load.Keys / 4, ValueSize: load.ValueSize})
						head, err := kv.Put(t.Context(), "x", "y")
						require.NoError(t, err)
						_, err = kv.Compact(t.Context(), head.Header.Revision-1, clientv3.WithCompactPhysical())
						require.NoError(t, err)
					}
				}
				return read.Write(b)
			}))
			require.NoError(t, err)
			return read.Bytes(), hash.Hash, p.held()
		}
		check := func(database []byte, want uint32) error {
			r, size := bytes.NewReader(database), int64(len(database))
			if err := CheckStructure(t.Context(), "the database", r, size); err != nil {
				return err
			}
			got, err := ReadHashKV(t.Context(), r, size)
			if err == nil && got.Hash != want {
				err = errors.New("another HashKV")
			}
			return err
		}

		database, want, err := take(func(s *client.SnapshotStream) heldStream { return s })
		require.NoError(t, err)
		require.NoError(t, check(database, want))

		database, want, err = take(func(s *client.SnapshotStream) heldStream { return readAllAhead(t, s) })
		require.NoError(t, err)
		err = check(database, want)
		require.Error(t, err, "the pages were not written over")
		t.Logf("without the open stream: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
