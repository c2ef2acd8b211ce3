package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
)

// ZapCore is where etcd's parts, which log to zap, may write from a level on: to
// a slog handler.
func ZapCore(handler slog.Handler, from zapcore.LevelEnabler) zapcore.Core {
	return &slogCore{LevelEnabler: from, handler: handler}
}

type slogCore struct {
	zapcore.LevelEnabler
	handler slog.Handler
}

// With keeps fields for each line to come.
func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{LevelEnabler: c.LevelEnabler, handler: c.handler.WithAttrs(attrs(fields))}
}

// Check asks both levels, etcd's and the logger's own.
func (c *slogCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) && c.handler.Enabled(context.Background(), slogLevel(entry.Level)) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write hands one line over.
func (c *slogCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(entry.Time, slogLevel(entry.Level), entry.Message, 0)
	record.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), record)
}

// Sync has nothing to do: slog does not buffer.
func (c *slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	encoder := zapcore.NewMapObjectEncoder()
	var list []slog.Attr
	for _, f := range fields {
		f.AddTo(encoder)
	}
	for _, f := range fields { // in their order, which a map forgets
		if value, ok := encoder.Fields[f.Key]; ok {
			list = append(list, slog.Any(f.Key, value))
			delete(encoder.Fields, f.Key)
		}
	}
	return list
}

func slogLevel(level zapcore.Level) slog.Level {
	switch {
	case level < zapcore.InfoLevel:
		return slog.LevelDebug
	case level == zapcore.InfoLevel:
		return slog.LevelInfo
	case level == zapcore.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}

// buildLogger is etcd's own logger, to the same outputs, without what
// quietCore leaves out.
func buildLogger(outputs []string, level string) (*zap.Logger, error) {
	threshold, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("store: log level: %w", err)
	}
	c := logutil.DefaultZapLoggerConfig
	c.OutputPaths, c.ErrorOutputPaths = outputs, outputs
	c = logutil.MergeOutputPaths(c)
	c.Level = zap.NewAtomicLevelAt(threshold)
	logger, err := c.Build(zap.WrapCore(quiet))
	if err != nil {
		return nil, fmt.Errorf("store: log outputs %q: %w", outputs, err)
	}
	return logger, nil
}

func quiet(core zapcore.Core) zapcore.Core { return quietCore{core} }

// quietCore leaves out that a listener was closed, which etcd 3.7 logs as four
// errors for each member that is closed on purpose.
type quietCore struct{ zapcore.Core }

// With keeps fields for each line to come.
func (c quietCore) With(fields []zapcore.Field) zapcore.Core { return quietCore{c.Core.With(fields)} }

// Check makes sure that lines come to Write here.
func (c quietCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write drops a line whose error says that a listener was closed. Which of the
// errors it is depends on which of the nested listeners learns of it first.
func (c quietCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && closedListener(err) {
			return nil
		}
	}
	return c.Core.Write(entry, fields)
}

// closedTexts are what listeners of etcd's end with that have no variable of ours to
// compare with: those of cmux, which etcd uses, and of embed (serve.go) for a member
// whose stop had already begun. TestCleanCloseLogsNoErrors fails when they change.
var closedTexts = []string{"mux: listener closed", "mux: server closed", "server is stopping"}

func closedListener(err error) bool {
	for _, closed := range []error{http.ErrServerClosed, grpc.ErrServerStopped, net.ErrClosed} {
		if errors.Is(err, closed) {
			return true
		}
	}
	return slices.Contains(closedTexts, err.Error())
}
