package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/api"
	"github.com/requorum/requorum/schedule/status"
)

// askEvery is how often an agent is asked how a job stands, which costs it
// little.
const askEvery = 200 * time.Millisecond

// agent is `requorum agent` beside one member.
type agent struct {
	*server
	member member
	url    string // of its port
}

// ask sends a request to the agent's port, and reads the JSON that it answers.
func (a *agent) ask(ctx context.Context, method, path string, into any) error {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("{}")
	}
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w; its log ends: %s", a.name, err, a.logTail())
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s: %s %s: %s: %s", a.name, method, path, res.Status, data)
	}
	return json.Unmarshal(data, into)
}

func (a *agent) status(ctx context.Context) (s status.Status, err error) {
	return s, a.ask(ctx, http.MethodGet, "/api/v1/status", &s)
}

// do starts a job, and waits until it has ended, well or not.
func (a *agent) do(ctx context.Context, job string) (status.Run, error) {
	var run api.Run
	if err := a.ask(ctx, http.MethodPost, "/api/v1/jobs/"+job, &run); err != nil {
		return status.Run{}, err
	}
	for run.State == api.Pending || run.State == api.Running {
		if err := pause(ctx, askEvery); err != nil {
			return status.Run{}, fmt.Errorf("wait for the job %s: %w", job, err)
		}
		if err := a.ask(ctx, http.MethodGet, "/api/v1/jobs/"+job+"/"+run.Slot, &run); err != nil {
			return status.Run{}, err
		}
	}
	return *run.Run, nil
}

// next waits for the end of a run of a job that began no earlier than a time.
func (a *agent) next(ctx context.Context, job string, since time.Time) (status.Run, error) {
	for {
		s, err := a.status(ctx)
		if err != nil {
			return status.Run{}, err
		}
		for _, j := range s.Jobs {
			if j.Name == job && j.Last != nil && !j.Last.Started.Before(since) {
				return *j.Last, nil
			}
		}
		if err := pause(ctx, askEvery); err != nil {
			return status.Run{}, fmt.Errorf("wait for the job %s: %w", job, err)
		}
	}
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

// jobSince tells whether a job of an agent was under way after a time.
func jobSince(s *status.Status, since time.Time) (name string, was bool) {
	for _, j := range s.Jobs {
		if j.Running != nil || j.Last != nil && j.Last.Finished.After(since) {
			return j.Name, true
		}
	}
	return "", false
}

// unsettled tells why a cluster's agents are not at rest yet; empty where they
// are: one of them writes, all of them are ready, and no job is due.
func unsettled(all []status.Status) string {
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
