package verify

import "sync"

// jointProgress tells of parts that are read at the same time as if they were
// one phase. Its functions may be called by several goroutines.
type jointProgress struct {
	tell  func(phase string, done, total int64)
	phase string
	total int64

	mu   sync.Mutex
	done int64
}

// part is the progress of one part.
func (j *jointProgress) part() func(phase string, done, total int64) {
	var before int64
	return func(_ string, done, _ int64) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.done, before = j.done+done-before, done
		j.tell(j.phase, j.done, j.total)
	}
}
