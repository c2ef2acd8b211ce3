package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/requorum/requorum/sinks"
)

type final struct{ error }

func (f final) Temporary() bool { return false }
func (f final) Unwrap() error   { return f.error }

func TestTemporary(t *testing.T) {
	plain := errors.New("plain")
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{plain, false},
		{sinks.MarkTemporary(nil), false},
		{sinks.MarkTemporary(plain), true},
		{fmt.Errorf("put a: %w", sinks.MarkTemporary(plain)), true},
		{errors.Join(plain, sinks.MarkTemporary(plain)), true},
		{final{sinks.MarkTemporary(plain)}, false},
		{sinks.MarkTemporary(final{plain}), true},
		{context.Canceled, false},
		{context.DeadlineExceeded, false},
		{fmt.Errorf("get: %w", context.DeadlineExceeded), false},
		// A backend whose own timeout ended says so by the mark.
		{sinks.MarkTemporary(context.DeadlineExceeded), true},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true},
		{io.EOF, false},
		{sinks.ErrExists, false},
		{sinks.ErrNotFound, false},
		{syscall.ENOSPC, false},
		{syscall.EIO, false},
	} {
		if got := sinks.Temporary(test.err); got != test.want {
			t.Errorf("Temporary(%v) = %v", test.err, got)
		}
	}
	if err := sinks.MarkTemporary(sinks.ErrDenied); !errors.Is(err, sinks.ErrDenied) || err.Error() != sinks.ErrDenied.Error() {
		t.Errorf("marked: %v", err)
	}
}
