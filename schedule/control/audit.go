package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// Event is what an audit line tells.
type Event string

// The events. An action has two lines, Allowed and then Done or Failed, which have
// the same nonce: one that was ended in between is seen by what is missing.
const (
	Allowed    Event = "allowed"
	Refused    Event = "refused"
	Done       Event = "done"
	Failed     Event = "failed"
	Handshake  Event = "handshake-refused"
	Suppressed Event = "handshakes-not-told" // how many stands in Count
)

// Line is one line of the audit file.
type Line struct {
	Time   time.Time `json:"time"`
	Event  Event     `json:"event"`
	Remote string    `json:"remote,omitempty"`
	// Client is the certificate's common name, Certificate the SHA-256 of the
	// certificate itself, Roles what it may do.
	Client      string   `json:"client,omitempty"`
	Certificate string   `json:"certificate,omitempty"`
	Roles       []string `json:"roles,omitempty"`

	Verb   protocol.Verb `json:"verb,omitempty"`
	Method string        `json:"method,omitempty"`
	Path   string        `json:"path,omitempty"`
	File   string        `json:"file,omitempty"`
	Member string        `json:"member,omitempty"`
	Run    string        `json:"run,omitempty"`
	Nonce  string        `json:"nonce,omitempty"`

	Code  protocol.Code `json:"code,omitempty"`
	Why   string        `json:"why,omitempty"`
	Took  float64       `json:"seconds,omitempty"`
	Count int           `json:"count,omitempty"`
}

const (
	// Whoever can reach the port can cause a failed handshake: they must not be
	// able to fill the disk.
	handshakesTold  = 30
	handshakeWindow = time.Minute
	// fieldLimit is as much of what a client chose as a line holds.
	fieldLimit = 256
)

// Audit writes the audit file. Its methods may be called by several goroutines.
type Audit struct {
	path string

	mu     sync.Mutex
	since  time.Time // of the window
	told   int
	untold int
}

// OpenAudit makes the file where there is none, and refuses one that others can
// read or write. Each line opens it anew, so that it may be rotated by renaming.
func OpenAudit(path string) (*Audit, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("the audit file's folder: %w", err)
	}
	a := &Audit{path: path}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("the audit file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("audit file %s is no ordinary file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("audit file %s has mode %#o: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	return a, a.append(nil)
}

// Write adds a line, durably.
func (a *Audit) Write(l Line) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.write(l)
}

func (a *Audit) write(l Line) error {
	l.Time = time.Now().UTC()
	for _, field := range []*string{&l.Client, &l.Method, &l.Path, &l.File, &l.Member, &l.Run, &l.Nonce, (*string)(&l.Verb)} {
		*field = (*field)[:min(len(*field), fieldLimit)]
	}
	l.Why = l.Why[:min(len(l.Why), 4*fieldLimit)]
	l.Roles = l.Roles[:min(len(l.Roles), 16)]
	data, err := json.Marshal(l) // which escapes what looks like a line of its own
	if err != nil {
		return fmt.Errorf("the audit file: %w", err)
	}
	return a.append(append(data, '\n'))
}

func (a *Audit) append(data []byte) error {
	f, err := os.OpenFile(a.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("the audit file: %w", err)
	}
	if len(data) > 0 {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("the audit file: %w", err)
	}
	return nil
}

// handshake is Write for a failed handshake, up to a number of them a minute; the
// rest are counted, and told with the next one after that.
func (a *Audit) handshake(l Line) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var err error
	if now := time.Now(); a.since.IsZero() || now.Sub(a.since) >= handshakeWindow {
		a.since, a.told = now, 0
		if a.untold > 0 {
			err = a.write(Line{Event: Suppressed, Count: a.untold})
			a.untold = 0
		}
	}
	if a.told >= handshakesTold {
		a.untold++
		return err
	}
	a.told++
	return errors.Join(err, a.write(l))
}
