package archive

import (
	"errors"
	"fmt"
	"time"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

func isDamage(err error) bool {
	var damage *snapshot.DamagedError
	return errors.As(err, &damage)
}

// pass notes that what lies under the next name of level 0 is damaged, and will
// stay so: what it held is stored beside it, as a segment of level 1, whose name
// is another.
func (s *session) pass(name string, first uint64, err error) {
	s.reachable()
	s.passed, s.mustLook = first, false
	s.a.failed(err)
	s.a.alarms.raise(AlarmDamaged, fmt.Sprintf("%s is damaged: what it held is archived anew from the members' logs, under another name: %v", name, err))
}

// named gives a segment another name where that of level 0 is of a damaged one.
func (s *session) named(h segment.Header, object []byte) (segment.Header, []byte, error) {
	if h.Level > 0 || h.FirstIndex != s.passed {
		return h, object, nil
	}
	return segment.Relabel(h, object, 1)
}

// lookAgain is when the next segment is looked for.
func (s *session) lookAgain(now time.Time) { s.lookAt = now.Add(max(s.Interval, s.Poll)) }
