// Package metrics shows a status.Status to Prometheus.
//
// It promises:
//
//  1. One scrape is one Status: the values fit together.
//  2. Names, labels and meanings are stable; docs/metrics.md lists them all, and
//     is made from the same descriptions.
//  3. A moment that never came is 0, so that an alert on its age fires. What has
//     no value (a recovery time that nobody measured or could estimate) is absent.
//  4. Whatever the Status holds, a scrape succeeds: monitoring that breaks when
//     things are odd is of no use. No label grows with the number of backups.
//  5. No secrets: the repository is named by its ID, not by its URL.
//
// The age of a moment is left to the query (time() - x): it goes on growing when
// the agent is gone.
package metrics
