package schedule

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/web"
)

// What a job does not know is refused before it is begun.
func TestArguments(t *testing.T) {
	for _, c := range []struct{ job, args, want string }{
		{jobFull, ``, ""},
		{jobFull, `{}`, ""},
		{jobFull, `{"reason": "before an upgrade", "timeline": "0000000000000007-1"}`, ""},
		{jobStructure, `{"backup": "latest"}`, ""},
		{jobDrill, `{"backup": "all"}`, ""},
		{jobChecksum, `{"colour": "red"}`, "colour"},
		{jobChecksum, `[]`, "array"},
		{jobChecksum, `{} {}`, "follows"},
		{jobChecksum, `{"backup": 7}`, "number"},
		{jobFull, `{"timeline": "x"}`, "x"},
		{jobFull, `{"backup": "latest"}`, "backup is for checksum"},
		{jobPrune, `{"backup": "latest"}`, "backup is for checksum"},
		{jobReplay, `{"timeline": "0000000000000007-1"}`, "timeline is for full"},
		{jobReplay, `{"reason": "why not"}`, "reason is for full"},
	} {
		_, err := parseArguments(c.job, json.RawMessage(c.args))
		if (err == nil) != (c.want == "") {
			t.Errorf("%s with %s: %v", c.job, c.args, err)
		} else if err != nil && (!errors.Is(err, web.ErrArguments) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %s: %v", c.job, c.args, err)
		}
	}
}

// Who asks for a job hears why it does not run, in the API's terms.
func TestDemandRefused(t *testing.T) {
	repo := memory()
	newShelf(t, repo)
	a := termOn(t, beside, repo).Agent
	demand := func(job, args string) error {
		slot, err := a.Trigger(t.Context(), job, json.RawMessage(args))
		if (slot == "") != (err != nil) {
			t.Errorf("%s: slot %q, %v", job, slot, err)
		}
		return err
	}
	expect := func(what string, err, want error, text string) {
		t.Helper()
		if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("unknown", demand("defrag", ""), web.ErrUnknownJob, "there are full, synthetic, checksum")
	expect("off", demand(jobDrill, ""), web.ErrRefused, "jobs.drill.run")
	expect("too early", demand(jobFull, ""), web.ErrRefused, "not reached yet")
	session := a.session()
	must(t, session.openRepository(t.Context()))
	must(t, session.newRunner())
	expect("arguments", demand(jobFull, `{"backup": "x"}`), web.ErrArguments, "backup")
	must(t, demand(jobStructure, `{"backup": "20260101T000000Z-00000a"}`)) // nothing was listed yet
	session.seen.repository = web.Repository{Listed: time.Now(), Backups: []web.Backup{{ID: "20260102T000000Z-00000b"}}}
	expect("a backup that is not there", demand(jobStructure, `{"backup": "20260101T000000Z-00000a"}`), web.ErrArguments, "20260101T000000Z-00000a")
	must(t, demand(jobStructure, `{"backup": "20260102"}`))
	must(t, demand(jobStructure, `{"backup": "latest"}`))
	var last error
	for range 20 {
		last = demand(jobFull, "")
	}
	expect("too many", last, web.ErrRefused, "waiting already")
	if run, err := a.session().find(t.Context(), jobFull, "nonsense"); run != nil || err != nil {
		t.Errorf("no slot: %+v, %v", run, err)
	}
	if run, err := a.session().find(t.Context(), "defrag", "20260101T000000Z"); run != nil || err != nil {
		t.Errorf("no job: %+v, %v", run, err)
	}
	if run, err := a.session().find(t.Context(), jobFull, "20260101T000000Z"); run != nil || err != nil {
		t.Errorf("no run: %+v, %v", run, err)
	}
	session.failures["jobs"] = errors.New("the board is broken")
	expect("no board", demand(jobFull, ""), web.ErrRefused, "the board is broken")
	session.end()
	expect("the end", demand(jobFull, ""), web.ErrRefused, "in a moment")
	_, err := session.find(t.Context(), jobFull, "20260101T000000Z")
	require.ErrorIs(t, err, web.ErrRefused, "find at the end")
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
	if len(s.Jobs) != 9 || s.Jobs[0].Off != "the board is broken" {
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
