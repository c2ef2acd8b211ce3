//go:build race

package job

// raced tells that the race detector is in the program, which takes memory itself.
const raced = true
