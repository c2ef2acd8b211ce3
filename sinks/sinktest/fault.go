package sinktest

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrInjected is what a fault returns that was given no error of its own.
var ErrInjected = errors.New("injected fault")

// Op is a call that a Fault strikes.
type Op string

// The calls of a sink, its writers and its readers.
const (
	Create Op = "create"
	Write  Op = "write"
	Commit Op = "commit"
	Abort  Op = "abort"
	Open   Op = "open"
	Read   Op = "read"
	Stat   Op = "stat"
	List   Op = "list" // one iteration
	Delete Op = "delete"
)

// Fault is one line of a script: what goes wrong, and when. Calls are counted
// from 1, and only those that match; for CutRead and the flips whole readers
// and writers are.
type Fault struct {
	op     Op
	kind   kind
	nth    int
	always bool
	name   string
	err    error
	at     int64
	delay  time.Duration
}

type kind string

const (
	fails  kind = "fails"
	loses  kind = "is done and its answer lost"
	delays kind = "is delayed"
	cuts   kind = "is cut"
	flips  kind = "has a bit changed"
)

// Fail makes the nth call return err instead of being made.
func Fail(op Op, nth int, err error) Fault { return Fault{op: op, kind: fails, nth: nth, err: err} }

// Lose makes the nth call and then returns err all the same: an answer that
// was lost on its way.
func Lose(op Op, nth int, err error) Fault { return Fault{op: op, kind: loses, nth: nth, err: err} }

// Delay makes the nth call wait first, or until the context ends.
func Delay(op Op, nth int, wait time.Duration) Fault {
	return Fault{op: op, kind: delays, nth: nth, delay: wait}
}

// CutRead ends the nth reader with err after so many bytes.
func CutRead(nth int, after int64, err error) Fault {
	return Fault{op: Read, kind: cuts, nth: nth, at: after, err: err}
}

// CutList ends the nth iteration with err after so many objects.
func CutList(nth int, after int64, err error) Fault {
	return Fault{op: List, kind: cuts, nth: nth, at: after, err: err}
}

// FlipRead changes one bit of the byte at offset in the object, as it
// passes through the nth reader whose range may hold that byte.
func FlipRead(nth int, offset int64) Fault {
	return Fault{op: Read, kind: flips, nth: nth, at: offset}
}

// FlipWrite changes one bit of the byte at offset on its way into
// the nth object.
func FlipWrite(nth int, offset int64) Fault {
	return Fault{op: Write, kind: flips, nth: nth, at: offset}
}

// Of restricts the fault to names that contain part.
func (f Fault) Of(part string) Fault { f.name = part; return f }

// Always lets the fault strike at every call from the nth on.
func (f Fault) Always() Fault { f.always = true; return f }

// String describes the fault for the message of a test.
func (f Fault) String() string {
	text := fmt.Sprintf("%s %d %s", f.op, f.nth, f.kind)
	if f.name != "" {
		text += fmt.Sprintf(", of names with %q", f.name)
	}
	if f.kind == cuts || f.kind == flips {
		text += fmt.Sprintf(", at %d", f.at)
	}
	return text
}

func (f Fault) failure() error {
	if f.err == nil {
		return ErrInjected
	}
	return f.err
}

func (f Fault) matches(op Op, name string) bool {
	return f.op == op && strings.Contains(name, f.name)
}
