package schedule

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A demand says why the job does not run.
func TestDemandRefused(t *testing.T) {
	repo := memory()
	newShelf(t, repo)
	session := termOn(t, beside, repo)
	demand := func(job string) error {
		_, err := session.demand(job, "", arguments{})
		return err
	}
	require.ErrorContains(t, demand(jobFull), "not reached yet")
	session.failures["jobs"] = errors.New("the board is broken")
	require.ErrorContains(t, demand(jobFull), "the board is broken")
	must(t, session.openRepository(t.Context()))
	must(t, session.newRunner())
	require.ErrorContains(t, demand(jobDrill), "jobs.drill.run")
	must(t, demand(jobFull))
}

// Before there is a runner the jobs are reported, with the reason.
func TestPlannedJobs(t *testing.T) {
	session := termOn(t, beside, memory())
	for _, j := range session.describe(time.Now()).Jobs {
		if (j.Off == "") == (j.Waiting == "") {
			t.Errorf("%+v", j)
		}
	}
	session.failures["jobs"] = errors.New("the board is broken")
	s := session.describe(time.Now())
	if len(s.Jobs) != 8 || s.Jobs[0].Off != "the board is broken" {
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
