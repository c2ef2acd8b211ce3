package snapshot

import (
	"context"
	"fmt"
	"io"
)

// Image is a database image to restore from: a stored full snapshot, a file
// of `etcdctl snapshot save`, or a member's bare db file.
type Image interface {
	// Name is how messages call it: an ID with its repository, or a path.
	Name() string

	// Size is the database's size in bytes, without a trailing SHA-256.
	Size() int64

	// Open reads the database from its first byte to its last, in order,
	// without a trailing SHA-256. Every check that the image allows (hashes of
	// the raw and the stored bytes, sizes, the stream's own trailer) is done on
	// the way: io.EOF is returned only after all of them passed, a
	// *DamagedError otherwise. The caller closes the reader, and must not use
	// what it read before io.EOF came.
	Open(ctx context.Context) (io.ReadCloser, error)

	// Facts is what is known about the content: from the manifest of a stored
	// snapshot, from the file's own pages otherwise.
	Facts(ctx context.Context) (Facts, error)
}

// Facts are what a database's own bytes say of it.
type Facts struct {
	// Revision is the highest revision in the key bucket (or the compacted
	// one where that is higher), as HashKV and Status report it.
	Revision int64 `json:"revision"`
	// CompactedRevision is the last compaction that was scheduled, 0 if none.
	CompactedRevision int64 `json:"compacted_revision"`
	// RaftIndex is consistent_index: the last raft entry the image holds.
	RaftIndex uint64 `json:"raft_index"`
	// RaftTerm is that entry's term; 0 where etcd did not keep it (3.4).
	RaftTerm uint64 `json:"raft_term"`
	// StorageVersion is "3.6.0" and so on; empty before 3.6.
	StorageVersion string `json:"storage_version,omitempty"`
	// ClusterVersion is what the members had agreed on, such as "3.6.0".
	ClusterVersion string `json:"cluster_version,omitempty"`
	// PageSize of the database in bytes, from its meta page.
	PageSize int `json:"page_size"`
	// Members are the voters and learners as the image has them, by ID.
	Members []Member `json:"members"`
	// Alarms that are raised in the image, such as "NOSPACE" with its member.
	Alarms []Alarm `json:"alarms,omitempty"`
	// AuthEnabled tells whether users and roles are enforced.
	AuthEnabled bool `json:"auth_enabled"`
}

// Member is one member of the cluster that an image was taken from.
type Member struct {
	ID         ID       `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peer_urls"`
	ClientURLs []string `json:"client_urls,omitempty"`
	IsLearner  bool     `json:"is_learner,omitempty"`
}

// Alarm is an alarm raised in an image.
type Alarm struct {
	MemberID ID     `json:"member_id"`
	Type     string `json:"type"` // NOSPACE, CORRUPT
}

// DamagedError says that stored bytes are not what they were when the backup
// was taken. The command line ends with exit code 3 on it.
type DamagedError struct {
	Object string // the object or file
	Offset int64  // where in it, in bytes; -1 when the whole is meant
	Err    error  // what is wrong
}

func (e *DamagedError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s is damaged: %v", e.Object, e.Err)
	}
	return fmt.Sprintf("%s is damaged at byte %d: %v", e.Object, e.Offset, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }
