package store

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/soheilhy/cmux"
	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
)

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

// serverStopping is what a listener ends with that was to serve a member whose
// stop had already begun; etcd's embed has no variable for it (serve.go).
const serverStopping = "server is stopping"

func closedListener(err error) bool {
	for _, closed := range []error{http.ErrServerClosed, cmux.ErrServerClosed, cmux.ErrListenerClosed, grpc.ErrServerStopped, net.ErrClosed} {
		if errors.Is(err, closed) {
			return true
		}
	}
	return err.Error() == serverStopping
}
