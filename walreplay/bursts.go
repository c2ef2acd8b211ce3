package walreplay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/raftlog"
)

const (
	// pause is how far apart two changes are that are of two bursts: what one
	// command or controller does goes on within a minute, the 30 s of a pod that is
	// given time to end included.
	pause = time.Minute
	// pauseEntries stands for it where nothing shows the time: a small Kubernetes
	// cluster writes so much in a minute.
	pauseEntries = 1000
	// longest is how long a burst may be in pauses: what goes on for more than an
	// hour is how these keys are always used.
	longest = 60

	shownNames  = 10  // of a burst
	shownBursts = 5   // beside the one that is meant
	shownName   = 200 // bytes of a key
)

// Burst is a run of changes of the keys that a target names, each at most a minute
// after the one before, as far as is known. Its JSON form is stable.
type Burst struct {
	// Deletions says that only deletions were counted, and what begins them.
	Deletions bool `json:"deletions"`
	// First and Last are its ends; the point is before First.
	First Moment `json:"first"`
	Last  Moment `json:"last"`
	// Changes is how often keys were put or deleted.
	Changes int64 `json:"changes"`
	// Of the keys that were there before it, it deleted so many, and changed or
	// deleted so many; Created counts those that it made, one that it deleted and
	// made again included.
	DeletedKeys int64 `json:"deleted_keys"`
	TouchedKeys int64 `json:"touched_keys"`
	CreatedKeys int64 `json:"created_keys"`
	// Doomed keys, of the deleted ones, carried a deletionTimestamp at the point
	// already: Kubernetes deletes them again.
	Doomed int64 `json:"doomed_keys,omitempty"`
	// Names are the first few keys that it deleted, or else touched or created.
	Names []string `json:"names"`

	rows int64 // all changes of any key before First, since the search began
}

// Moment is an entry that changed something.
type Moment struct {
	Index    uint64 `json:"index"`
	Revision int64  `json:"revision"`
	Time     string `json:"time,omitempty"` // in words; empty where nothing shows it
}

func (m Moment) String() string {
	text := fmt.Sprintf("revision %d, raft index %d", m.Revision, m.Index)
	if m.Time != "" {
		text += ", " + m.Time
	}
	return text
}

// What says what it did: "17 keys were deleted".
func (b *Burst) What() string {
	if !b.Deletions {
		text := count(b.keys(), "key was", "keys were") + " changed"
		if b.DeletedKeys > 0 || b.CreatedKeys > 0 {
			text += fmt.Sprintf(" (%d deleted, %d new)", b.DeletedKeys, b.CreatedKeys)
		}
		return text
	}
	marked := max(b.TouchedKeys-b.DeletedKeys, 0)
	switch {
	case b.DeletedKeys == 0 && marked > 0:
		return count(marked, "key was", "keys were") + " marked for deletion"
	case marked > 0:
		return fmt.Sprintf("%s deleted, and %d marked for deletion", count(b.DeletedKeys, "key was", "keys were"), marked)
	}
	return count(b.DeletedKeys, "key was", "keys were") + " deleted"
}

// When says when that was.
func (b *Burst) When() string {
	if b.First.Index == b.Last.Index {
		return fmt.Sprintf("at %s", b.First)
	}
	return fmt.Sprintf("from %s, to %s", b.First, b.Last)
}

func (b *Burst) String() string { return b.What() + " " + b.When() }

// keys is how many keys it was about.
func (b *Burst) keys() int64 {
	if b.Deletions {
		return max(b.DeletedKeys, b.TouchedKeys)
	}
	return b.TouchedKeys + b.CreatedKeys
}

// names are the first few of so many keys.
func (b *Burst) names(all int64) string {
	text := strings.Join(b.Names, ", ")
	if more := all - int64(len(b.Names)); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// name is a key as it is shown.
func name(key []byte) string {
	if len(key) > shownName {
		return string(key[:shownName]) + "…"
	}
	return string(key)
}

// bursts finds the newest bursts among the changes that it is given in their order.
type bursts struct {
	deletions bool
	all       []*Burst // the last few, in their order
	endless   bool     // the newest has gone on for longer than a burst does
	joined    bool     // the first may have begun before the search did

	first, last *when // of the newest; last is the search's begin before there is one
}

// change is what they hear of a change.
type change struct {
	at        *when
	key       []byte
	revision  int64
	deleted   bool
	existed   bool  // before it
	created   int64 // and with these revisions
	modified  int64
	doomed    bool  // and with a deletionTimestamp
	goesOn    bool  // it goes on with what was begun, however long ago that was
	rowsSoFar int64 // before it, of any key
}

func (b *bursts) add(c change) {
	switch {
	case len(b.all) == 0:
		b.joined = b.last != nil && (c.goesOn || !b.last.apart(c.at))
		b.begin(c)
	case !c.goesOn && b.last.apart(c.at):
		b.begin(c)
	}
	b.last = c.at
	b.endless = b.endless || !c.goesOn && b.first.pausesTo(c.at) > longest
	n := b.all[len(b.all)-1]
	n.Last = Moment{Index: c.at.index, Revision: c.revision}
	n.Changes++
	start, named := n.First.Revision, !b.deletions
	switch {
	case !c.existed:
		n.CreatedKeys++
	case c.modified < start:
		n.TouchedKeys++
	default:
		named = false // it was when it was touched first
	}
	if c.deleted && c.existed && c.created < start {
		n.DeletedKeys++
		named = named || b.deletions
		if c.doomed && c.modified < start {
			n.Doomed++
		}
	}
	if k := name(c.key); named && len(n.Names) < shownNames && !slices.Contains(n.Names, k) {
		n.Names = append(n.Names, k)
	}
}

func (b *bursts) begin(c change) {
	b.first, b.endless = c.at, false
	if len(b.all) == shownBursts+1 {
		b.all = slices.Delete(b.all, 0, 1)
	}
	b.all = append(b.all, &Burst{Deletions: b.deletions, First: Moment{Index: c.at.index, Revision: c.revision}, Names: []string{}, rows: c.rowsSoFar})
}

// when is an entry and, as far as samples show, when it was written: after the one
// and before the other.
type when struct {
	index         uint64
	before, after *raftlog.Mark
}

// apart reports whether a pause lies between two entries.
func (w *when) apart(later *when) bool { return w.pausesTo(later) > 1 }

// pausesTo is the time to a later entry, in pauses. The number of entries between
// them stands for it within what samples show.
func (w *when) pausesTo(later *when) float64 {
	n := float64(later.index-w.index) / pauseEntries
	least, most := between(w.after, later.before), between(w.before, later.after)
	if least > most && most > 0 {
		return n // clocks that disagree
	}
	if most > 0 {
		n = min(n, most)
	}
	return max(n, least)
}

// between is the time between two samples in pauses, 0 where one is not there.
func between(a, b *raftlog.Mark) float64 {
	if a == nil || b == nil {
		return 0
	}
	return float64(b.Time.Sub(a.Time)) / float64(pause)
}

// watch says when entries were written that come in their order. It asks the clock
// once for those between two samples.
type watch struct {
	clock clock // nil: nothing shows it
	last  *when
}

func (w *watch) at(ctx context.Context, index uint64) (*when, error) {
	now := &when{index: index}
	switch {
	case w.clock == nil:
	case w.last != nil && w.last.after != nil && index <= w.last.after.Index:
		now.before, now.after = w.last.before, w.last.after
	default:
		var err error
		if now.before, now.after, err = w.clock.marksOf(ctx, index); err != nil {
			return nil, fmt.Errorf("find out when entry %d was written: %w", index, err)
		}
	}
	w.last = now
	return now, nil
}

// Kubernetes deletes many objects in two steps: it writes a deletionTimestamp, and
// deletes the key once the finalizers are done, or what a namespace contains. An
// object that was restored between the two is deleted again. So to write the
// timestamp counts as the beginning of the deletion.

const (
	protobufMagic   = "k8s\x00"  // before a runtime.Unknown
	encryptedPrefix = "k8s:enc:" // before what the API server encrypted

	unknownRaw        protowire.Number = 2 // of runtime.Unknown: the object
	objectMetadata    protowire.Number = 1 // of every stored kind
	deletionTimestamp protowire.Number = 9 // of ObjectMeta
)

// beingDeleted reports whether a value is a Kubernetes object with a
// deletionTimestamp. One that cannot be read is none.
func beingDeleted(value []byte) bool {
	if raw, ok := bytes.CutPrefix(value, []byte(protobufMagic)); ok {
		for _, n := range []protowire.Number{unknownRaw, objectMetadata, deletionTimestamp} {
			if raw, ok = fieldOf(raw, n); !ok {
				return false
			}
		}
		return true
	}
	if len(value) == 0 || value[0] != '{' {
		return false
	}
	var object struct {
		Metadata struct {
			DeletionTimestamp *string `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	return json.Unmarshal(value, &object) == nil && object.Metadata.DeletionTimestamp != nil
}

// encrypted reports whether the API server encrypted a value.
func encrypted(value []byte) bool { return bytes.HasPrefix(value, []byte(encryptedPrefix)) }

// fieldOf is the first field of this number that holds bytes or a message.
func fieldOf(message []byte, number protowire.Number) ([]byte, bool) {
	for len(message) > 0 {
		f, n := boltfile.ConsumeField(message)
		if n < 0 {
			return nil, false
		}
		if f.Number == number && f.Kind == protowire.BytesType {
			return f.Bytes, true
		}
		message = message[n:]
	}
	return nil, false
}

// contents says which keys are deleted with a key: nil where none are. Of a
// namespace, ROOT/namespaces/NAME, they are ROOT/RESOURCE/NAME/… and
// ROOT/GROUP/RESOURCE/NAME/…; of a definition,
// ROOT/apiextensions.k8s.io/customresourcedefinitions/RESOURCE.GROUP, they are
// ROOT/GROUP/RESOURCE/….
func contents(key string) func(key []byte) bool {
	if root, name, ok := cutLast(key, "/namespaces/"); ok {
		return func(k []byte) bool {
			rest, ok := strings.CutPrefix(string(k), root+"/")
			if !ok {
				return false
			}
			parts := strings.SplitN(rest, "/", 4)
			// A resource has no dot in its name. Services are an exception to the form
			// of groups: ROOT/services/specs/NAME/….
			return len(parts) >= 3 && parts[1] == name && !strings.Contains(parts[0], ".") || len(parts) == 4 && parts[2] == name
		}
	}
	if root, name, ok := cutLast(key, "/apiextensions.k8s.io/customresourcedefinitions/"); ok {
		if resource, group, ok := strings.Cut(name, "."); ok {
			prefix := []byte(root + "/" + group + "/" + resource + "/")
			return func(k []byte) bool { return bytes.HasPrefix(k, prefix) }
		}
	}
	return nil
}

// cutLast cuts a key into what is before a folder and the one name in it.
func cutLast(key, folder string) (root, name string, ok bool) {
	root, name, ok = strings.Cut(key, folder)
	return root, name, ok && root != "" && name != "" && !strings.Contains(name, "/")
}

// lacksCompactKey reports whether a database has objects of Kubernetes, and not the key by
// which its API servers agree on who compacts (k8s.io/apiserver, storage/etcd3,
// compact.go): one that lives on through a restore there ends in its compactor.
func lacksCompactKey(ctx context.Context, eng engine.Replayer) (bool, error) {
	objects, err := eng.Has(ctx, []byte("/registry/"), []byte("/registry0"))
	if err != nil || !objects {
		return false, err
	}
	has, err := eng.Has(ctx, []byte("compact_rev_key"), nil)
	return !has, err
}

const noCompactKeyNote = "the restored point has objects of Kubernetes and not yet the key compact_rev_key: an API server that runs on through the restore ends minutes later; stop all of them before the members start, and start them afterwards"
