// Package child runs one job in a process of its own: one that needs much memory,
// so that the limit it runs into is its own, and not that of who asked for it.
//
// The parent calls Run, the child Serve. The request, a JSON value, and the limits
// are one line on the child's standard input, which then stays open for as long as
// the parent lives. Progress and the result are JSON lines on its standard output.
//
// It promises:
//
//  1. The child does not outlive its parent: it is told by a signal (Linux) and by
//     the end of its standard input, and ends itself where its work does not.
//  2. When Run's context ends, the child gets SIGTERM, and its work's context ends.
//     It is killed where that takes longer than the grace time.
//  3. Its memory stays below the limit: what it writes to, beside files that it
//     maps. Go's collector works harder from 90 % on; beyond the limit the child
//     dies, and the error is a *MemoryError. Where its crash does not say that it was
//     memory, and it had come near the limit, the error says "most likely".
//  4. However it ends, Run says how, in one line of bounded length: what a crash
//     wrote first is in it, its traces are not.
//
// An error of the work arrives as text. What the parent has to tell apart belongs
// into the result. Processes that the child starts have the same limit each.
package child
