package storetest

import (
	"bytes"
	"sync"
)

// Output is what a process prints, to be read while it runs.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to it.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is all of it so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
