package rescue

import (
	"github.com/requorum/requorum/schedule/rescue/journal"
)

// UnderWay tells whether a state folder holds a run that the next command goes on
// with: one that was begun and is neither done, with all that belongs to it, nor
// taken back. It takes no lock.
func UnderWay(stateDir string) (bool, error) {
	runs, err := journal.Read(stateDir)
	if err != nil {
		return false, err
	}
	d := &driver{runs: journal.Started(runs)}
	last, known, err := d.lastRun()
	if err != nil || last == nil {
		return false, err
	}
	return !known.over() || known.finished != nil && !known.closed && len(known.finished.Incomplete) > 0, nil
}
