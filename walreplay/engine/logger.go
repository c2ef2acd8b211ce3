package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/requorum/requorum/store"
)

// applyFailed is what etcd says of a request that it refused, such as a user
// that was there already. The members refused it too: it is normal history, and
// no warning.
const applyFailed = "failed to apply request"

// isHistory reports whether a warning is of what the members met too.
func isHistory(message string) bool {
	switch message {
	case applyFailed,
		"ignored grant role request to a user",                          // who has that role already
		"request auth revision is less than current node auth revision": // refused
		return true
	}
	return false
}

// newLogger is what etcd's parts log to: warnings and errors go to logger, and
// where etcd would end the process it panics with an error instead. A goroutine
// of etcd's own is ended, and background hears why.
func newLogger(logger *slog.Logger, background func(error)) *zap.Logger {
	core := zapcore.NewNopCore()
	if logger != nil {
		core = &refusals{store.ZapCore(logger.Handler(), zapcore.DebugLevel)}
	}
	return zap.New(core, zap.WithPanicHook(&giveUp{background}), zap.WithFatalHook(&giveUp{background}))
}

// giveUp turns etcd's last words into an error.
type giveUp struct{ background func(error) }

// jobFailed is what etcd's scheduler says, in a goroutine of its own, of a
// compaction that panicked.
const jobFailed = "execute job failed"

// OnWrite is called instead of ending the process.
func (g *giveUp) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := lastWords(entry.Message, fields)
	if entry.Message == jobFailed {
		g.background(err)
		runtime.Goexit()
	}
	panic(err)
}

// lastWords leaves out whole requests, which may hold values and passwords.
func lastWords(message string, fields []zapcore.Field) error {
	var b strings.Builder
	b.WriteString(message)
	for _, f := range fields {
		switch f.Type {
		case zapcore.ErrorType:
			fmt.Fprintf(&b, ", %s: %v", f.Key, f.Interface)
		case zapcore.StringType:
			fmt.Fprintf(&b, ", %s: %s", f.Key, f.String)
		case zapcore.Int64Type, zapcore.Uint64Type:
			fmt.Fprintf(&b, ", %s: %d", f.Key, f.Integer)
		case zapcore.ReflectType:
			if err, ok := f.Interface.(error); ok { // what a recovered panic was
				fmt.Fprintf(&b, ", %s: %v", f.Key, err)
			}
		default:
		}
	}
	return fmt.Errorf("etcd's applier gave up: %s", b.String())
}

// refusals passes warnings and errors on, but for what is normal in a replay.
type refusals struct{ zapcore.Core }

// Enabled keeps etcd's lesser lines out.
func (h *refusals) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With keeps fields for each line to come.
func (h *refusals) With(fields []zapcore.Field) zapcore.Core { return &refusals{h.Core.With(fields)} }

// Check makes refused requests a detail.
func (h *refusals) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if isHistory(entry.Message) {
		entry.Level = zapcore.DebugLevel
	}
	return h.Core.Check(entry, checked)
}

// ErrNewer says that an entry was written by an etcd that is newer than what
// this version of requorum knows.
var ErrNewer = errors.New("an etcd newer than this requorum knows must have written it: use a newer requorum")

// ErrClosed says that the engine was closed or rolled back already.
var ErrClosed = errors.New("the replay was ended: open the database again")

// OrderError says that an entry is not the one after the entry applied last.
type OrderError struct {
	Applied uint64 // the index applied last
	Index   uint64 // that of the entry
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("entry %d cannot follow entry %d: the log has a hole or repeats itself; begin with entry %d", e.Index, e.Applied, e.Applied+1)
}

// EntryError says that an entry cannot be applied.
type EntryError struct {
	Index uint64
	Kind  string // as Kind gives it
	Err   error
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("entry %d (%s) cannot be applied: %v", e.Index, e.Kind, e.Err)
}

func (e *EntryError) Unwrap() error { return e.Err }
