package schedule

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/requorum/requorum/schedule/job"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay/segment"
)

// agentsFor is for how long an agent is shown that gives no sign of life.
const agentsFor = 24 * time.Hour

// about describes this agent, in documents that it writes anyhow: marks of its archiver, and
// records of jobs.
func (t *session) about() *repository.Agent {
	host, _ := os.Hostname() // without it there is still the name
	a := &repository.Agent{Name: t.cfg.Name, Host: host, Tool: t.Tool}
	if t.cfg.Jobs.Prune.Runs() {
		a.Keeps = t.cfg.Policy().String()
	}
	t.mu.Lock()
	archiver := t.archiver
	t.mu.Unlock()
	if archiver != nil {
		a.Role = string(archiver.State().Role)
	}
	for _, j := range t.runner.Status() {
		if j.Running != nil {
			a.Jobs = append(a.Jobs, j.Name)
		}
	}
	return a
}

// agents are those whose archivers wrote marks of late, by the listing that look made.
func (s *inventory) agents(ctx context.Context) []web.Agent {
	newest := map[uint64]repository.MarkName{} // by member
	for _, t := range s.Timelines {
		log := s.Log(t.ID)
		if log == nil {
			continue
		}
		for _, n := range log.Heartbeat() {
			if n.Time.After(newest[n.Member].Time) && s.listed.Sub(n.Time) < agentsFor {
				newest[n.Member] = n
			}
		}
	}
	var all []web.Agent
	for _, n := range newest {
		if mark, err := segment.ReadMark(ctx, s.Repo, n); err == nil && mark.Agent != nil {
			all = append(all, agentOf(*mark.Agent, mark.Time))
		}
	}
	return all
}

func agentOf(a repository.Agent, seen time.Time) web.Agent {
	return web.Agent{Name: a.Name, Host: a.Host, Tool: a.Tool, Role: a.Role, Jobs: filled(a.Jobs), Keeps: a.Keeps, Seen: seen.UTC()}
}

// describeAgents adds the agents of the repository: this one, and those that gave a sign of
// life there within a day, by a mark or the result of a job.
func (t *session) describeAgents(s *web.Status, seen observations) {
	all := map[string]web.Agent{}
	add := func(a web.Agent) {
		before, known := all[a.Name]
		if a.Name == "" || known && !a.Seen.After(before.Seen) || s.Time.Sub(a.Seen) >= agentsFor {
			return
		}
		a.Host, a.Tool, a.Role = cmp.Or(a.Host, before.Host), cmp.Or(a.Tool, before.Tool), cmp.Or(a.Role, before.Role)
		a.Keeps = cmp.Or(a.Keeps, before.Keeps)
		a.Jobs = filled(a.Jobs)
		all[a.Name] = a
	}
	for _, a := range seen.agents {
		add(a)
	}
	var newest *job.Run // of the jobs that the agents share
	shared := t.cfg.Jobs.Shared()
	for _, j := range s.Jobs {
		for _, r := range []*job.Run{j.LastSuccess, j.LastFailure} {
			if r == nil {
				continue
			}
			about := repository.Agent{Name: r.Agent}
			if r.About != nil {
				about = *r.About
			}
			add(agentOf(about, r.Finished))
			if shared[j.Name] && (newest == nil || r.Finished.After(newest.Finished)) {
				newest = r
			}
		}
	}
	self := agentOf(*t.about(), s.Time)
	self.Self = true
	all[self.Name] = self
	s.Agents = []web.Agent{}
	for _, a := range all {
		a.Lease = newest != nil && a.Name == newest.Agent
		s.Agents = append(s.Agents, a)
	}
	slices.SortFunc(s.Agents, func(a, b web.Agent) int { return cmp.Compare(a.Name, b.Name) })
}
