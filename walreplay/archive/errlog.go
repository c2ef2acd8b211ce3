package archive

import (
	"sync"
	"time"
)

const (
	// sameErrorEvery is how often the same error is logged: one that stays fails
	// several times a second, and would fill a disk.
	sameErrorEvery = time.Minute
	// errorsKept bounds how many different ones are told apart.
	errorsKept = 64
)

// errorLog tells which errors were logged a moment ago.
type errorLog struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// due tells whether an error is to be logged now.
func (l *errorLog) due(text string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.last[text]; ok && now.Sub(last) < sameErrorEvery {
		return false
	}
	if l.last == nil || len(l.last) >= errorsKept {
		l.last = map[string]time.Time{}
	}
	l.last[text] = now
	return true
}

// failed keeps an error for State, and logs it unless it was logged a moment
// ago.
func (a *Archiver) failed(err error) {
	text := err.Error()
	a.update(func(s *State) { s.LastError = text })
	if a.errors.due(text, time.Now()) {
		a.config.Logger.Warn("archive", "error", err)
	}
}
