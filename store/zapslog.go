package store

import (
	"context"
	"fmt"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapFromSlog lets etcd, which logs to zap, write to the caller's logger.
func zapFromSlog(logger *slog.Logger, level string) (*zap.Logger, error) {
	threshold, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("store: log level: %w", err)
	}
	return zap.New(quiet(ZapCore(logger.Handler(), threshold))), nil
}

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
