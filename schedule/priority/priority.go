// Package priority lets the whole process stand back behind the etcd member
// that it runs beside: for processors (nice) and for the disk (ionice).
package priority

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxNice is the lowest priority that nice knows.
const MaxNice = 19

// Set gives every thread of this process, and so those that it starts later and
// its children, a nice value and an I/O priority. A nice of 0 and an empty ionice
// leave what the process was started with. For ionice see Check. What the
// platform cannot honour, or does not permit, is an error; nothing is undone
// then.
func Set(nice int, ionice string) error {
	if err := Check(nice, ionice); err != nil {
		return err
	}
	if nice != 0 {
		if err := setNice(nice); err != nil {
			return fmt.Errorf("nice %d: %w", nice, err)
		}
	}
	if ionice != "" {
		class, level, err := parse(ionice)
		if err != nil {
			return err
		}
		if err := setIONice(class, level); err != nil {
			return fmt.Errorf("ionice %s: %w", ionice, err)
		}
	}
	return nil
}

// Check refuses what Set would refuse on any platform. A nice is from 0 to 19:
// an agent never goes before others. An ionice is "idle" (only while nobody
// else wants the disk), "best-effort:0" to "best-effort:7" (7 is last), or
// empty.
func Check(nice int, ionice string) error {
	if nice < 0 || nice > MaxNice {
		return fmt.Errorf("nice %d: want 0 (as started) to %d (last)", nice, MaxNice)
	}
	if ionice == "" {
		return nil
	}
	_, _, err := parse(ionice)
	return err
}

// class is an I/O scheduling class, numbered as Linux does.
type class int

const (
	bestEffort class = 2
	idle       class = 3
)

// lastLevel is the lowest priority within a class.
const lastLevel = 7

func parse(ionice string) (class, int, error) {
	if ionice == "idle" {
		return idle, 0, nil
	}
	if digit, ok := strings.CutPrefix(ionice, "best-effort:"); ok && len(digit) == 1 {
		if level, err := strconv.Atoi(digit); err == nil && level <= lastLevel {
			return bestEffort, level, nil
		}
	}
	return 0, 0, fmt.Errorf("ionice %q: want idle, or best-effort:0 to best-effort:%d", ionice, lastLevel)
}
