package config

import (
	"reflect"
	"testing"

	"github.com/requorum/requorum/schedule/retention"
	"github.com/requorum/requorum/verify/report"
)

// A key of retention that is accepted is followed: were it left out of the policy, the
// agent would delete what it promises to keep.
func TestRetentionIsFollowed(t *testing.T) {
	keys := map[string]bool{}
	for i := range reflect.TypeFor[Retention]().NumField() {
		field := reflect.TypeFor[Retention]().Field(i)
		c := &Config{}
		reflect.ValueOf(&c.Retention).Elem().Field(i).SetInt(7)
		if c.Policy() == (retention.Policy{}) {
			t.Errorf("retention.%s has no effect", field.Tag.Get("yaml"))
		}
		keys[field.Tag.Get("yaml")] = true
	}
	for _, c := range new(retention.Policy).Counts() {
		if !keys[c.Name] {
			t.Errorf("the agent has no key retention.%s", c.Name)
		}
	}
}

// Each level has a job of its name, which proves that level and those below it.
func TestJobsProveLevels(t *testing.T) {
	for _, name := range append(report.LevelNames(), "full") {
		j := &Jobs{}
		found := false
		for _, job := range j.All() {
			job.Timing.Run = RunOff
			if job.Name == name {
				job.Timing.Run, found = RunHere, true
			}
		}
		if !found {
			t.Errorf("there is no job %s", name)
		}
		for _, level := range report.Levels() {
			if got := j.Prove(level); got != report.Level(name).Includes(level) {
				t.Errorf("the job %s proves %s: %v", name, level, got)
			}
		}
	}
}
