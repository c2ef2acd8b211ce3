package store

import "github.com/requorum/requorum/store/internal/ports"

// FreePorts finds n different TCP ports on loopback that nobody listens on now,
// outside the range that outgoing connections take theirs from. Another process
// may take one before the caller does.
func FreePorts(n int) ([]int, error) { return ports.Free(n) }
