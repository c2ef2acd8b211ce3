package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
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
// of etcd's own is ended, and the engine hears why.
func newLogger(logger *slog.Logger, r *Engine) *zap.Logger {
	core := zapcore.NewNopCore()
	if logger != nil {
		core = &refusals{logger.Handler()}
	}
	return zap.New(core, zap.WithPanicHook(&giveUp{r}), zap.WithFatalHook(&giveUp{r}))
}

// giveUp turns etcd's last words into an error.
type giveUp struct{ engine *Engine }

// jobFailed is what etcd's scheduler says, in a goroutine of its own, of a
// compaction that panicked.
const jobFailed = "execute job failed"

// OnWrite is called instead of ending the process.
func (g *giveUp) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := lastWords(entry.Message, fields)
	if entry.Message == jobFailed || g.engine.closing.Load() {
		g.engine.gaveUp(err)
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

// refusals writes warnings and errors of etcd's parts, which log to zap, to a slog
// handler. Warnings that are normal in a replay become details.
type refusals struct{ handler slog.Handler }

// Enabled keeps etcd's lesser lines out.
func (h *refusals) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With keeps fields for each line to come.
func (h *refusals) With(fields []zapcore.Field) zapcore.Core {
	return &refusals{h.handler.WithAttrs(attrs(fields))}
}

// Check makes refused requests a detail, and applies the handler's own level.
func (h *refusals) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if isHistory(entry.Message) {
		entry.Level = zapcore.DebugLevel
	}
	if h.handler.Enabled(context.Background(), slogLevel(entry.Level)) {
		return checked.AddCore(entry, h)
	}
	return checked
}

// Write passes one line on.
func (h *refusals) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(entry.Time, slogLevel(entry.Level), entry.Message, 0)
	record.AddAttrs(attrs(fields)...)
	return h.handler.Handle(context.Background(), record)
}

// Sync does nothing: slog does not buffer.
func (h *refusals) Sync() error { return nil }

func attrs(fields []zapcore.Field) (list []slog.Attr) {
	for _, f := range fields {
		encoder := zapcore.NewMapObjectEncoder()
		f.AddTo(encoder)
		for key, value := range encoder.Fields {
			list = append(list, slog.Any(key, value))
		}
	}
	return list
}

func slogLevel(level zapcore.Level) slog.Level {
	switch level {
	case zapcore.DebugLevel:
		return slog.LevelDebug
	case zapcore.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
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
