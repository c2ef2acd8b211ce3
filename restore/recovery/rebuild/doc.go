// Package rebuild makes the database of a recovery.Source: it puts together what
// lies here of survivors and repositories, and replays it.
//
// It promises:
//
//  1. What is rebuilt is the state after the source's last entry, or before it
//     where a target says so, and never beyond it.
//  2. What the plan found is found again: a database of another index or term, a
//     log that lacks an entry, and pieces that do not hold the same entry where
//     they meet, are errors.
//  3. Survivors' files are opened for reading only. What is written goes to a
//     scratch folder, which the result's Close removes.
//  4. Memory does not grow with the length of a log.
package rebuild
