package store

import (
	"regexp"
	"strconv"
)

// Alarm is one alarm that is raised in a cluster.
type Alarm struct {
	MemberID uint64 // 0: etcd could not tell which member it is about
	Type     string // NOSPACE or CORRUPT
}

// alarmText is how every version prints an alarm into Status's errors. Asking
// with the Alarm call would be cleaner, and would be one more entry in the
// raft log each time. Newer servers put one or two spaces between the fields.
var alarmText = regexp.MustCompile(`^(?:memberID:(\d+)\s+)?alarm:([A-Z]+)\s*$`)

func parseAlarms(errors []string) []Alarm {
	var alarms []Alarm
	for _, text := range errors {
		match := alarmText.FindStringSubmatch(text)
		if match == nil {
			continue
		}
		alarm := Alarm{Type: match[2]}
		if match[1] != "" {
			id, err := strconv.ParseUint(match[1], 10, 64)
			if err != nil {
				continue // more digits than an ID can have: not an alarm
			}
			alarm.MemberID = id
		}
		alarms = append(alarms, alarm)
	}
	return alarms
}

// suspect tells whether a CORRUPT alarm is about this member, or about one
// that etcd could not name.
func (m MemberStatus) suspect() bool {
	for _, a := range m.Alarms {
		if a.Type == "CORRUPT" && (a.MemberID == 0 || a.MemberID == m.MemberID) {
			return true
		}
	}
	return false
}
