package supervisor

import "fmt"

// Process is one that uses a directory.
type Process struct {
	PID  int
	Name string
	Why  string // such as "writes to /var/lib/etcd/member/snap/db"
}

func (p Process) String() string { return fmt.Sprintf("process %d (%s) %s", p.PID, p.Name, p.Why) }

// Warnings are about how the member that runs on a data directory was started: what its unit
// or manifest has left of its first start. None where its process cannot be seen.
func Warnings(dataDir, walDir string) (warnings []string) {
	table, err := ProcessesUsing(dataDir, walDir)
	if err != nil {
		return nil
	}
	for _, p := range table.Using {
		if startsNew(p.PID) {
			warnings = append(warnings, fmt.Sprintf("process %d (%s) was started with --initial-cluster-state=new: if its disk is lost, the member starts as a new, empty cluster; write existing into its unit or manifest", p.PID, p.Name))
		}
	}
	return warnings
}

// ProcessTable is what was seen of the processes that use a member's directories, or
// run a program. A process counts that has a file of the member's open for writing,
// whatever namespaces it lives in and whatever it calls the path, and one that was started
// with the directory as its --data-dir, also before it has opened anything. What only
// reads (an archiver keeps log segments open) does not count. Processes whose files could
// not be looked at are counted, not passed over in silence.
type ProcessTable struct {
	Using []Process
	Seen  int // how many processes there were
	// Hidden is how many of them did not show their files, as those of others do to
	// a process that is not root.
	Hidden int
	// Incomplete is why there may be processes that are not even counted; only
	// ProcessesNamed says it.
	Incomplete string
}
