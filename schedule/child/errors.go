package child

import (
	"errors"
	"fmt"
	"strings"
)

var (
	errNoResult = errors.New("it ended without a result")
	// ErrOrphaned is the cause of the context of a child's work whose parent ended.
	ErrOrphaned = errors.New("the process that asked for this job has ended")
)

// WorkError says that the child's work failed: Text is its error.
type WorkError struct{ Text string }

func (e *WorkError) Error() string { return e.Text }

// MemoryError says that the child needed more memory than it may take.
type MemoryError struct {
	Limit  int64  // in bytes; 0: there was none, and the host had no more
	Stderr string // what it wrote before it died: of a crash the first part of its traces
	// Crash is how it ended where nothing said that it was memory, but that it had
	// taken about what it may; empty where it was told.
	Crash string
}

func (e *MemoryError) Error() string {
	const remedy = "raise it, or run this job on another host"
	switch {
	case e.Limit == 0:
		return "the job's process ran out of memory, without a limit of its own (job-memory): the host has no more"
	case e.Crash != "":
		return fmt.Sprintf("the job's process crashed (%s) close to the %d MiB that job-memory allows, and most likely needed more: %s", e.Crash, e.Limit>>20, remedy)
	}
	return fmt.Sprintf("the job's process needed more memory than the %d MiB that job-memory allows: %s", e.Limit>>20, remedy)
}

// CrashError says that the child ended without an answer.
type CrashError struct {
	Err    error  // how it ended
	Line   string // the line of what it wrote that tells most
	Stderr string // what it wrote before; the first part of it where it crashed
}

// Error is one line, of bounded length. Stderr, which may hold a crash's traces, is
// for a log of details.
func (e *CrashError) Error() string {
	text := fmt.Sprintf("the job's process failed: %v", e.Err)
	if strings.HasSuffix(text, "signal: killed") {
		text += " (by the kernel, perhaps, where the host ran out of memory)"
	}
	if e.Line != "" {
		text += "; it wrote: " + e.Line
	}
	return text
}

func (e *CrashError) Unwrap() error { return e.Err }
