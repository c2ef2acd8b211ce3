package archive

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A member that does not answer for long is told of once a minute, with the
// reason in the alarm.
func TestMemberDownDoesNotFloodTheLog(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		var log bytes.Buffer
		a := r.start(0, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		r.load(5)
		r.cluster.mu.Lock()
		r.cluster.members[0].down = true
		r.cluster.mu.Unlock()
		time.Sleep(5*time.Minute + time.Second)
		if !a.has(AlarmMember) || a.State().LastError == "" {
			t.Errorf("state: %+v", a.State())
		}
		for _, alarm := range a.State().Alarms {
			if alarm.Alarm == AlarmMember && !strings.Contains(alarm.Text, a.State().LastError) {
				t.Errorf("the alarm does not tell why: %s", alarm.Text)
			}
		}
		a.stop()
		lines := strings.Count(log.String(), a.State().LastError)
		if lines < 5 || lines > 20 {
			t.Errorf("%d lines in five minutes:\n%s", lines, log.String())
		}
	})
}
