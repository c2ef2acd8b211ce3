package schedule

import (
	"testing"
	"time"
)

// Before the repository is reached the jobs are reported, with the reason.
func TestJobs_BeforeTheRepository(t *testing.T) {
	session := termOn(t, beside, memory())
	s := session.describe(time.Now())
	for _, j := range s.Jobs {
		if (j.Off == "") == (j.Waiting == "") {
			t.Errorf("%+v", j)
		}
	}
	if len(s.Jobs) != 8 {
		t.Errorf("%+v", s.Jobs)
	}
	noNull(t, s)
}

// Each job of the configuration has something to do.
func TestJobsHaveWork(t *testing.T) {
	session := termOn(t, beside, memory())
	for _, j := range session.cfg.Jobs.All() {
		if session.work()[j.Name] == nil {
			t.Errorf("the job %s does nothing", j.Name)
		}
	}
}
