// Package sources finds out what is left of a cluster that lost its quorum, and
// decides what to rebuild it from.
//
// Survey looks at everything: the data directories of members, and repositories.
// Decide ranks what was found, and says what would be lost. Neither changes
// anything.
//
// It promises:
//
//  1. Survey opens files for reading only and locks nothing. A directory that a
//     member runs on is refused: what is read of it would mix two moments.
//  2. Logs are compared entry by entry, in one pass that holds a few entries of each
//     in memory. Two histories are distinguished by what they hold, never by names,
//     times, or how long they are, and they are never ranked against each other.
//  3. "Proven" is said only where the logs that were read whole are those of a
//     majority of the voters of every membership that may have been in force.
//     Then every write that was ever acknowledged is in the log that is chosen.
//  4. What is kept from being used (removed members, other histories, refused
//     tails, damage) is named, with the reason and with what can be done. It is
//     used only when it is asked for by name.
//  5. A member's data is read in one way, wherever it lies: WriteSummary reads it there,
//     and Survey reads what that wrote.
package sources

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/walreplay"
)

// Survey reads what is left: of members their summaries, of repositories what their
// listings and headers show, and of archived logs the entries from where the members'
// logs begin.
//
// What is damaged is a finding, not an error; but a summary that is not a whole
// one, or cannot be read, is an error. A repository that cannot be read is listed as
// such: the members may do without it.
func Survey(ctx context.Context, req SurveyRequest) (_ *Findings, err error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	y := &survey{req: &req, findings: &Findings{Taken: time.Now().UTC().Truncate(time.Second), Survivors: []Remains{}, Archives: []Archive{}, Relations: []Relation{}}}
	defer func() { err = errors.Join(err, y.close()) }()
	for _, s := range req.Summaries {
		if err := y.open(s); err != nil {
			return nil, err
		}
	}
	if err := y.openRepositories(ctx); err != nil {
		return nil, err
	}
	if err := y.compare(ctx); err != nil {
		return nil, err
	}
	return y.result(), nil
}

type survey struct {
	req      *SurveyRequest
	findings *Findings
	members  []*openedSummary
	archives []*archived
}

func (y *survey) openRepositories(ctx context.Context) error {
	whole, rolledBack := map[string]bool{}, map[string]error{} // by the repository's ID
	for i, repo := range y.req.Repos {
		y.req.progress(fmt.Sprintf("repository %s", repo), 0, 0)
		suffix := ""
		if len(y.req.Repos) > 1 {
			suffix = fmt.Sprintf("@%d", i+1)
		}
		all, err := openArchives(ctx, repo, suffix, y.req.Identities)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var less *walreplay.RolledBackError
		if whole[repo.ID()] = whole[repo.ID()] || err == nil; errors.As(err, &less) {
			rolledBack[repo.ID()] = err
			err = nil
		}
		if err != nil {
			y.findings.Unread = append(y.findings.Unread, Unread{repo.String(), err.Error()})
			continue
		}
		y.archives = append(y.archives, all...)
	}
	for id, err := range rolledBack {
		if !whole[id] { // else it is an older copy of another one, which does no harm beside it
			return err
		}
	}
	return nil
}

// compare reads all logs at the same time.
func (y *survey) compare(ctx context.Context) error {
	watched := y.watched()
	var (
		logs        []iter.Seq2[logEntry, error]
		names       []string
		end         []func([]Term, error)
		first       uint64 // the lowest index of any member's log
		total, done int64
	)
	add := func(name string, log iter.Seq2[logEntry, error], finish func([]Term, error)) {
		logs, names, end = append(logs, log), append(names, name), append(end, finish)
	}
	for _, m := range y.members {
		if log := m.found.Log; log != nil && log.FirstIndex != 0 {
			if first == 0 || log.FirstIndex < first {
				first = log.FirstIndex
			}
			total += int64(log.LastIndex - log.FirstIndex + 1)
		}
		add(m.name, m.entries(ctx), func(terms []Term, _ error) {
			if m.found.Log != nil {
				m.found.Log.Terms = terms
			}
		})
	}
	for _, a := range y.archives {
		if first == 0 || len(a.archive.Log) == 0 {
			continue // nothing to compare it with
		}
		from := first
		if n := len(a.archive.Fulls); n > 0 && y.membersUnknown() {
			from = min(from, a.archive.Fulls[n-1].Index+1)
		}
		f := a.follow(from)
		add(a.archive.Name, f.visited(a.entries(ctx, from)), func(terms []Term, err error) {
			a.archive.Terms = terms
			a.finish(f, from, err)
		})
	}
	terms := make([][]Term, len(logs))
	met, errs, err := compareLogs(ctx, names, logs, func(i int, e logEntry) {
		if watched[e.Index] {
			terms[i] = append(terms[i], Term{e.Index, e.Term})
		}
		if done++; done%progressEvery == 0 {
			y.req.progress(PhaseCompare, min(done, total), total)
		}
	})
	if err != nil {
		return err
	}
	for _, err := range errs[:len(y.members)] {
		if err != nil {
			return err
		}
	}
	for i, finish := range end {
		finish(terms[i], errs[i])
	}
	y.findings.Relations = append(y.findings.Relations, met...)
	return nil
}

// membersUnknown reports whether a member's log does not show who the members were: its
// database is gone, and it does not begin with the first entry.
func (y *survey) membersUnknown() bool {
	return slices.ContainsFunc(y.members, func(m *openedSummary) bool { return m.found.Log != nil && !m.found.begins() })
}

// progressEvery is how many entries are read between two reports.
const progressEvery = 1 << 14

// PhaseCompare is the comparison of logs, whose progress is in entries; that of all
// others is in bytes.
const PhaseCompare = "compare logs"

// watched are the indexes that a database or a full snapshot ends with: another
// log joins it by the term of its entry there.
func (y *survey) watched() map[uint64]bool {
	all := map[uint64]bool{}
	for _, m := range y.members {
		for _, db := range m.found.Databases {
			all[db.Index] = true
		}
	}
	for _, a := range y.archives {
		for _, f := range a.archive.Fulls {
			all[f.Index] = true
		}
	}
	return all
}

func (y *survey) result() *Findings {
	for _, m := range y.members {
		y.findings.Survivors = append(y.findings.Survivors, m.found)
	}
	for _, a := range y.archives {
		y.findings.Archives = append(y.findings.Archives, *a.archive)
	}
	return y.findings
}

// Survivor is where the data of one member lies.
type Survivor struct {
	Name    string // how the operator calls it
	DataDir string
	WALDir  string // empty where the log is in the data directory
}

func (s Survivor) logDir() string { return restore.LogDir(s.DataDir, s.WALDir) }

func (s Survivor) snapDir() string { return filepath.Join(s.DataDir, "member", "snap") }

// SurveyRequest says where to look.
type SurveyRequest struct {
	Summaries []Summary // of members
	Repos     []*repository.Repository
	// Identities are for encrypted logs in the repositories.
	Identities []age.Identity
	// Progress may be nil. It is called from one goroutine; total is 0 where it is
	// not known.
	Progress func(phase string, done, total int64)
}

func (r *SurveyRequest) check() error {
	if len(r.Summaries) == 0 && len(r.Repos) == 0 {
		return errors.New("there is nothing to look at: name the data directory of at least one member, or a repository")
	}
	seen := map[string]bool{}
	for _, d := range r.Summaries {
		switch {
		case d.Name == "" || d.Open == nil:
			return errors.New("each summary needs the name of its member, and a way to open it")
		case seen[d.Name]:
			return fmt.Errorf("%s is named twice: each data directory needs a name of its own", d.Name)
		}
		seen[d.Name] = true
	}
	return nil
}

func (r *SurveyRequest) progress(phase string, done, total int64) {
	if r.Progress != nil {
		r.Progress(phase, done, total)
	}
}
