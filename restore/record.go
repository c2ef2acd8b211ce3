package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/store/safedir"
)

// A member folder built here says where it comes from. Until the restore is
// complete the record has the name unfinishedName, which also says that the
// folder is no user data: a blocker stands beside it, so etcd never started
// from it, and the next run may replace it. After that it is recordName, and
// stays for good.
const (
	unfinishedName = "requorum-unfinished.json"
	recordName     = "requorum-restored.json"
)

// record is what such a file holds.
type record struct {
	Member string `json:"member"`
	Only   string `json:"only,omitempty"` // which members that run built: one, or all
	Plan   *Plan  `json:"plan"`
}

func writeRecord(path string, r record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return safedir.Replace(path, append(data, '\n'))
}

// readRecord returns nil when there is none. One that cannot be read is not
// trusted either: what it stands beside counts as the user's.
func readRecord(path string) (*record, error) {
	data, err := safedir.ReadFile(path, sinks.SmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r := new(record); json.Unmarshal(data, r) == nil && r.Plan != nil {
		return r, nil
	}
	return nil, nil
}

// memberState says how far a restore got with a member folder.
type memberState int

const (
	stateAbsent     memberState = iota
	stateForeign                // the user's, or a restore that was completed and forgotten
	stateUnfinished             // in place and blocked, others may be missing
	stateSealed                 // all are in place, still blocked
	stateDone                   // built by a restore, and free to start
)

// memberStateOf looks at a member folder, and returns the record found there.
func memberStateOf(member string) (memberState, *record, error) {
	info, err := safedir.Lstat(member)
	if errors.Is(err, fs.ErrNotExist) {
		return stateAbsent, nil, nil
	}
	if err != nil {
		return stateForeign, nil, err
	}
	if !info.IsDir() {
		return stateForeign, nil, nil
	}
	b, err := readBlocker(filepath.Join(member, "wal"))
	if err != nil {
		return stateForeign, nil, err
	}
	unfinished, err := readRecord(filepath.Join(member, unfinishedName))
	if err != nil {
		return stateForeign, nil, err
	}
	if unfinished != nil && b != nil {
		return stateUnfinished, unfinished, nil
	}
	done, err := readRecord(filepath.Join(member, recordName))
	switch {
	case err != nil || done == nil:
		return stateForeign, nil, err
	case b != nil && b.Plan == done.Plan.ID:
		return stateSealed, done, nil
	}
	return stateDone, done, nil
}

// Restored is the result of the run that built a member in a data directory; nil where
// that had not all its members in place. free reports whether they are all free to start,
// and it does not matter whether they run by now; where they are not, Execute of the
// result's plan completes it without an image. It changes nothing.
func Restored(dataDir string) (result *Result, free bool, err error) {
	_, r, err := memberStateOf(filepath.Join(dataDir, "member"))
	if err != nil || r == nil {
		return nil, false, err
	}
	members, err := r.Plan.local(r.Only)
	if err != nil {
		return nil, false, err
	}
	free = true
	var targets []*target
	for _, m := range members {
		state, other, err := memberStateOf(filepath.Join(m.DataDir, "member"))
		log := true
		if err == nil && m.WALDir != "" {
			log, err = logIsReady(m.WALDir)
		}
		if err != nil {
			return nil, false, fmt.Errorf("look for what was built of member %s: %w", m.Name, err)
		}
		if state < stateUnfinished || other.Plan.ID != r.Plan.ID || !log {
			return nil, false, nil
		}
		free = free && state == stateDone
		targets = append(targets, &target{Member: m})
	}
	result = newResult(r.Plan, targets)
	result.CompletedEarlier = true
	return result, free, nil
}

// Incomplete is the plan of a restore that began to build a member in a data
// directory and did not complete it; nil where there is none. What lies there is not
// what the old member left. It changes nothing.
func Incomplete(dataDir string) (*Plan, error) {
	state, r, err := memberStateOf(filepath.Join(dataDir, "member"))
	if err != nil || state != stateUnfinished && state != stateSealed {
		return nil, err
	}
	return r.Plan, nil
}
