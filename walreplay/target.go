package walreplay

import (
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Kind is what a target goes by.
type Kind string

// The kinds of targets.
const (
	// Latest is the end of the log.
	Latest Kind = ""
	// AtTime is the state at Target.Time.
	AtTime Kind = "time"
	// AtRevision is the last index before the revision after Target.Revision.
	AtRevision Kind = "revision"
	// AtIndex is the state after the entry at Target.Index.
	AtIndex Kind = "index"
	// BeforeKey is just before the last change or deletion of Target.Key, and
	// BeforePrefix of any key that begins with it.
	BeforeKey    Kind = "before"
	BeforePrefix Kind = "before-prefix"
)

// Target is the point that is asked for. The zero Target is the end of the log.
// Its JSON form is stable.
type Target struct {
	Kind Kind `json:"kind,omitempty"`

	Time time.Time `json:"time,omitzero"`
	// Nearest takes the observation nearest to Time where none is close enough.
	Nearest  bool   `json:"nearest,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Index    uint64 `json:"index,omitempty"`
	Key      string `json:"key,omitempty"`
}

// String says it in a sentence: "the state at …" goes before it.
func (t Target) String() string {
	switch t.Kind {
	case Latest:
	case AtTime:
		return instant(t.Time)
	case AtRevision:
		return "revision " + strconv.FormatInt(t.Revision, 10)
	case AtIndex:
		return "raft index " + strconv.FormatUint(t.Index, 10)
	case BeforeKey:
		return fmt.Sprintf("the point just before the last change of %q", t.Key)
	case BeforePrefix:
		return fmt.Sprintf("the point just before the last change under %q", t.Key)
	}
	return "the end of the log"
}

// NeedsReplay tells whether only a replay can say which index a target is.
func (t Target) NeedsReplay() bool {
	return t.Kind == AtRevision || t.Kind == BeforeKey || t.Kind == BeforePrefix
}

func (t Target) check() error {
	switch {
	case t.Kind == AtTime && t.Time.IsZero(),
		t.Kind == AtRevision && t.Revision < 1,
		t.Kind == AtIndex && t.Index < 1,
		t.Kind == BeforeKey && t.Key == "":
		return fmt.Errorf("%s is no point of a log", t)
	case t.Nearest && t.Kind != AtTime:
		return fmt.Errorf("only a time can be taken to the nearest observation, not %s", t)
	}
	return nil
}

// keyRange is the range of keys to look out for, as etcd writes ranges.
func (t Target) keyRange() (key, end []byte) {
	if t.Kind == BeforePrefix {
		if t.Key == "" {
			return []byte{0}, []byte{0}
		}
		return []byte(t.Key), []byte(clientv3.GetPrefixRangeEnd(t.Key))
	}
	return []byte(t.Key), nil
}

// instant is how messages give a time, exact to the millisecond.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z07:00") }
