package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
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
	socket string
}

// ask sends a request to the agent's port, and reads the JSON that it answers. One
// with a body is a POST.
func (a *agent) ask(ctx context.Context, path, body string, into any) error {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.DefaultClient
	if method == http.MethodPost { // jobs are started over the socket
		client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", a.socket)
		}}}
	}
	res, err := client.Do(req)
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

func (a *agent) status(ctx context.Context) (s web.Status, err error) {
	return s, a.ask(ctx, "/api/v1/status", "", &s)
}

// do starts a job, and waits until it has ended, well or not.
func (a *agent) do(ctx context.Context, name, arguments string) (job.Run, error) {
	var run web.Run
	if err := a.ask(ctx, "/api/v1/jobs/"+name, arguments, &run); err != nil {
		return job.Run{}, err
	}
	for run.State == web.Pending || run.State == web.Running {
		if err := pause(ctx, askEvery); err != nil {
			return job.Run{}, fmt.Errorf("wait for the job %s: %w", name, err)
		}
		if err := a.ask(ctx, "/api/v1/jobs/"+name+"/"+run.Slot, "", &run); err != nil {
			return job.Run{}, err
		}
	}
	return *run.Run, nil
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
