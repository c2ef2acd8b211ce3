package recovery

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/requorum/requorum/restore/recovery/join"
)

// Survey reads what is left: of members the databases and the logs to their ends,
// of digests what WriteDigest wrote, of repositories what their listings and headers tell, and of archived logs the
// entries from where the members' logs begin. It opens files for reading only,
// locks nothing, and fails with a *RunningError where a member still runs.
//
// What is damaged is a finding, not an error; but a digest that is not what was
// written is a *DigestError. A repository that cannot be read is
// listed as such: the members may do without it.
func Survey(ctx context.Context, req SurveyRequest) (_ *Findings, err error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	for _, s := range req.Survivors {
		if err := checkIdle(s); err != nil {
			return nil, err
		}
	}
	y := &survey{req: &req, findings: &Findings{Taken: time.Now().UTC().Truncate(time.Second), Survivors: []Remains{}, Archives: []Archive{}, Relations: []Relation{}}}
	defer func() { err = errors.Join(err, y.close()) }()
	for _, s := range req.Survivors {
		d, err := openMember(ctx, s, &req)
		if err != nil {
			return nil, err
		}
		y.members = append(y.members, d)
	}
	for _, s := range req.Digests {
		d, err := y.openDigest(s)
		if err != nil {
			return nil, err
		}
		y.members = append(y.members, d)
	}
	if err := y.openRepositories(ctx); err != nil {
		return nil, err
	}
	if err := y.compare(ctx); err != nil {
		return nil, err
	}
	// One that was started meanwhile has written into what was read.
	for _, s := range req.Survivors {
		if err := checkIdle(s); err != nil {
			return nil, err
		}
	}
	return y.result(), nil
}

type survey struct {
	req      *SurveyRequest
	findings *Findings
	members  []*memberDir
	archives []*archived
	digests  []*openedDigest
}

func (y *survey) openRepositories(ctx context.Context) error {
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
		if err != nil {
			y.findings.Unread = append(y.findings.Unread, Unread{repo.String(), err.Error()})
			continue
		}
		y.archives = append(y.archives, all...)
	}
	return nil
}

// compare reads all logs at the same time.
func (y *survey) compare(ctx context.Context) error {
	watched := y.watched()
	var (
		logs      []iter.Seq2[join.Entry, error]
		followers []*follower
		names     []string
		end       []func(error)
		first     uint64 // the lowest index of any member's log
		total     int64
		done      int64
	)
	add := func(name string, log iter.Seq2[join.Entry, error], f *follower, finish func(error)) {
		logs, followers, names, end = append(logs, log), append(followers, f), append(names, name), append(end, finish)
	}
	for _, d := range y.members {
		if d.entries == nil {
			d.bare()
			continue
		}
		if at := d.remains.Log.FirstIndex; at != 0 {
			if first == 0 || at < first {
				first = at
			}
			total += int64(d.remains.Log.LastIndex - at + 1)
		}
		f := d.follow(watched)
		add(d.Name, d.entries(ctx), f, func(err error) { f.finish(d, err) })
	}
	for _, a := range y.archives {
		if first == 0 || len(a.archive.Stretches) == 0 {
			continue // nothing to compare it with
		}
		from := first
		if n := len(a.archive.Fulls); n > 0 && y.membersUnknown() {
			from = min(from, a.archive.Fulls[n-1].Index+1)
		}
		f := a.follow(watched, from)
		add(a.archive.Name, a.entries(ctx, from), f, func(err error) { a.finish(f, from, err) })
	}
	pairs, errs, err := join.Logs(ctx, logs, func(i int, e join.Entry) {
		followers[i].visit(e)
		if done++; done%progressEvery == 0 {
			y.req.progress("compare logs", min(done, total), total)
		}
	})
	if err != nil {
		return err
	}
	if err := broken(errs); err != nil {
		return err
	}
	for i, finish := range end {
		finish(errs[i])
	}
	y.relate(names, pairs)
	return nil
}

// membersUnknown tells whether a member's log tells nobody who the members were: its
// database is gone, and it does not begin with the first entry.
func (y *survey) membersUnknown() bool {
	return slices.ContainsFunc(y.members, func(d *memberDir) bool { return d.remains.Log != nil && !d.begins() })
}

// progressEvery is how many entries are read between two reports.
const progressEvery = 1 << 14

// watched are the indexes that a database or a full snapshot ends with: another
// log joins it by the term of its entry there.
func (y *survey) watched() map[uint64]bool {
	all := map[uint64]bool{}
	for _, d := range y.members {
		for _, db := range d.remains.Databases {
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

func (y *survey) relate(names []string, pairs [][]join.Pair) {
	for a := range names {
		for b := a + 1; b < len(names); b++ {
			p := pairs[a][b]
			if !p.Met() {
				continue
			}
			r := Relation{A: names[a], B: names[b], First: p.First, Last: p.Last, LastTerm: p.LastTerm}
			if p.Parted != nil {
				r.Parted = &Parting{p.Parted.Index, p.Parted.TermA, p.Parted.TermB}
			}
			y.findings.Relations = append(y.findings.Relations, r)
		}
	}
}

func (y *survey) result() *Findings {
	for _, d := range y.members {
		y.findings.Survivors = append(y.findings.Survivors, *d.remains)
	}
	for _, a := range y.archives {
		y.findings.Archives = append(y.findings.Archives, *a.archive)
	}
	return y.findings
}
