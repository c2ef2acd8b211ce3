package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

// existing is what a data directory says about the member that it belongs to.
type existing struct {
	ClusterID, MemberID  uint64
	Name                 string // empty where the database does not know it (yet)
	PeerURLs, ClientURLs []string
	Members              int // that the database knows
}

// lockWait is how long a database's lock is waited for. A member that is just
// ending frees it within that time.
const lockWait = time.Second

// readExisting looks into a data directory without changing it; nil where it
// holds no member. etcd takes a directory with a WAL for a member's.
func readExisting(dataDir, walDir string) (*existing, error) {
	if walDir == "" {
		walDir = filepath.Join(dataDir, "member", "wal")
	}
	segments, err := filepath.Glob(filepath.Join(walDir, "*.wal"))
	if err != nil {
		return nil, fmt.Errorf("store: data directory %s: %w", dataDir, err)
	}
	if len(segments) == 0 {
		return nil, nil
	}
	slices.Sort(segments)
	var e existing
	if e.MemberID, e.ClusterID, err = walIdentity(segments[0]); err != nil {
		return nil, fmt.Errorf("store: data directory %s: who it belongs to cannot be read: %w", dataDir, err)
	}
	if err := e.readMembers(filepath.Join(dataDir, "member", "snap", "db")); err != nil {
		return nil, fmt.Errorf("store: data directory %s: %w", dataDir, err)
	}
	return &e, nil
}

// walIdentity reads the metadata record that opens each segment.
func walIdentity(path string) (memberID, clusterID uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }() // only read
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	for {
		var record walpb.Record
		if err := decoder.Decode(&record); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, 0, fmt.Errorf("%s: looking for the metadata record: %w", path, err)
		}
		if record.GetType() != wal.MetadataType {
			continue
		}
		var metadata pb.Metadata
		if err := proto.Unmarshal(record.Data, &metadata); err != nil {
			return 0, 0, fmt.Errorf("%s: metadata record: %w", path, err)
		}
		return metadata.GetNodeID(), metadata.GetClusterID(), nil
	}
}

// readMembers looks the member up in its database. A directory whose database
// is not there yet is one that etcd was stopped in while it made it.
func (e *existing) readMembers(path string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: lockWait})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("%w; stop it first", ErrDataDirInUse)
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer func() { _ = db.Close() }() // only read
	return db.View(func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("members"))
		if bucket == nil {
			return nil
		}
		return bucket.ForEach(func(key, value []byte) error {
			var m struct {
				ID         uint64   `json:"id"`
				Name       string   `json:"name"`
				PeerURLs   []string `json:"peerURLs"`
				ClientURLs []string `json:"clientURLs"`
			}
			if err := json.Unmarshal(value, &m); err != nil {
				return fmt.Errorf("%s: member %s: %w", path, key, err)
			}
			e.Members++
			if m.ID == e.MemberID {
				e.Name, e.PeerURLs, e.ClientURLs = m.Name, m.PeerURLs, m.ClientURLs
			}
			return nil
		})
	})
}

// checkExisting refuses what etcd would start into confusion: under another
// name a member renames itself in the cluster, so that two have one name.
func checkExisting(c MemberConfig) error {
	e, err := readExisting(c.DataDir, c.WALDir)
	if err != nil || e == nil {
		return err
	}
	if e.Name != "" && e.Name != c.Name {
		return fmt.Errorf("store: data directory %s belongs to member %q (%x of cluster %x), and %q was asked for; give its own name, or another directory",
			c.DataDir, e.Name, e.MemberID, e.ClusterID, c.Name)
	}
	return nil
}

func sameURLs(a, b []string) bool {
	normal := func(urls []string) []string {
		var out []string
		for _, u := range urls {
			out = append(out, strings.TrimSuffix(u, "/"))
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(normal(a), normal(b))
}
