package engine

import (
	"context"
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

// newLogger is what etcd's parts log to: warnings and errors go to logger, and
// where etcd would end the process it panics with an error instead. A goroutine
// of etcd's own is ended, and background told why.
func newLogger(logger *slog.Logger, background func(error)) *zap.Logger {
	core := zapcore.NewNopCore()
	if logger != nil {
		core = &slogCore{LevelEnabler: zapcore.WarnLevel, handler: logger.Handler()}
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

// slogCore writes etcd's lines to a slog handler.
type slogCore struct {
	zapcore.LevelEnabler
	handler slog.Handler
}

// With keeps fields for each line to come.
func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{LevelEnabler: c.LevelEnabler, handler: c.handler.WithAttrs(attrs(fields))}
}

// Check asks for the level.
func (c *slogCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) && c.handler.Enabled(context.Background(), slogLevel(entry)) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write hands one line over.
func (c *slogCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(entry.Time, slogLevel(entry), entry.Message, 0)
	record.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), record)
}

// Sync has nothing to do: slog does not buffer.
func (c *slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	var list []slog.Attr
	for _, f := range fields {
		encoder := zapcore.NewMapObjectEncoder()
		f.AddTo(encoder)
		if value, ok := encoder.Fields[f.Key]; ok {
			list = append(list, slog.Any(f.Key, value))
		}
	}
	return list
}

func slogLevel(entry zapcore.Entry) slog.Level {
	switch {
	case entry.Message == applyFailed:
		return slog.LevelDebug
	case entry.Level == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}
