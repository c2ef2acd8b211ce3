package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
)

// askEvery is how often an agent is asked how a job stands, which costs it
// little.
const askEvery = 200 * time.Millisecond

// agent is `requorum agent` beside one member.
type agent struct {
	*server
	member member
	url    string // of its port
	file   string // its configuration
	config string // what the file has at rest
}

// status asks the agent's port.
func (a *agent) status(ctx context.Context) (s web.Status, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+"/api/v1/status", http.NoBody)
	if err != nil {
		return s, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, fmt.Errorf("%s: %w; its log ends: %s", a.name, err, a.logTail())
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return s, fmt.Errorf("%s: %w", a.name, err)
	}
	if res.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s: %s: %s", a.name, res.Status, data)
	}
	return s, json.Unmarshal(data, &s)
}

// do lets the agent run a job at the next full minute, and waits until the run has
// ended, well or not.
func (a *agent) do(ctx context.Context, name string) (run job.Run, err error) {
	since := time.Now()
	if err := a.reload(name); err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, a.reload("")) }()
	for {
		s, err := a.status(ctx)
		if err != nil {
			return run, err
		}
		for _, j := range s.Jobs {
			if j.Name == name && j.Last != nil && j.Last.Started.After(since) {
				return *j.Last, nil
			}
		}
		if err := pause(ctx, askEvery); err != nil {
			return run, fmt.Errorf("wait for the job %s: %w", name, err)
		}
	}
}

// reload gives the agent its configuration with the jobs of onlyJob.
func (a *agent) reload(job string) error {
	if err := os.WriteFile(a.file, []byte(a.config+onlyJob(job)), 0o600); err != nil {
		return err
	}
	return a.cmd.Process.Signal(syscall.SIGHUP)
}

// onlyJob is the part of a configuration that runs one of the measured jobs each minute,
// and the others not at all; full snapshots that become due are taken.
func onlyJob(job string) string {
	text := "jobs:\n"
	for kind := fullJob; kind < besideKinds; kind++ {
		switch name := jobNames[kind]; {
		case name == job:
			text += "  " + name + `: {run: here, schedule: "* * * * *", jitter: 0s}` + "\n"
		case kind != fullJob:
			text += "  " + name + ": {run: off}\n"
		}
	}
	return text
}

// pause waits, or gives why it could not.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// jobSince reports whether a job of an agent was under way after a time.
func jobSince(s *web.Status, since time.Time) (name string, was bool) {
	for _, j := range s.Jobs {
		if j.Running != nil || j.Last != nil && j.Last.Finished.After(since) {
			return j.Name, true
		}
	}
	return "", false
}

// unsettled says why a cluster's agents are not at rest yet; empty where they
// are: one of them writes, all of them are ready, and no job is due.
func unsettled(all []web.Status) string {
	writers := 0
	for i := range all {
		s := &all[i]
		if ready, why := s.Ready(); !ready {
			return fmt.Sprintf("%s is not ready: %s", s.Agent, why)
		}
		if s.Writer {
			writers++
		}
		for _, j := range s.Jobs {
			switch {
			case j.Running != nil:
				return fmt.Sprintf("%s is at the job %s", s.Agent, j.Name)
			case j.Waiting != "":
				return fmt.Sprintf("%s has the job %s to do: %s", s.Agent, j.Name, j.Waiting)
			}
		}
		if !s.RPO.Known {
			return s.Agent + " does not know yet up to when everything can be restored"
		}
	}
	if writers != 1 {
		return fmt.Sprintf("%d agents write the archive", writers)
	}
	return ""
}
