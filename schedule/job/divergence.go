package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
)

// Comparison is what a comparison of the members' histories found.
type Comparison struct {
	Revision int64 `json:"revision"` // that the histories go up to
	Compared int   `json:"compared"` // members
	// Divergent are the members whose history differs from that of the majority; all of
	// the compared ones if there is no majority.
	Divergent []string `json:"divergent,omitempty"`
	Text      string   `json:"-"` // in a sentence
}

// Compare compares the histories of keys of a cluster's members, which must all be equal.
// A member that was altered on its disk, or by a fault of etcd, serves other data than
// the rest, and nothing shows that until it leads.
//
// It asks one member after the other for its HashKV at one revision: each serves nothing
// while it computes (about a second for 1.4 GB). It needs the root role if authentication
// is on. Its error is why the members cannot be compared now, for example because of a
// compaction between two answers; a later call may succeed.
func Compare(ctx context.Context, cli *client.Client) (c Comparison, err error) {
	// A difference counts once it is seen twice: a false alarm at night costs more than a
	// second comparison.
	for range 2 {
		if c, err = compareOnce(ctx, cli); err != nil || len(c.Divergent) == 0 {
			break
		}
	}
	return c, err
}

// answer is one member's hash.
type answer struct {
	name, version string
	hash          client.HashKV
}

func compareOnce(ctx context.Context, cli *client.Client) (Comparison, error) {
	survey, err := cli.Survey(ctx)
	if err != nil {
		return Comparison{}, err
	}
	barrier, err := cli.Barrier(ctx, survey)
	if err != nil {
		return Comparison{}, err
	}
	var answers []answer
	left := "" // who was not compared, and why
	for _, known := range survey.Membership {
		name := cmp.Or(known.Name, snapshot.ID(known.ID).String())
		i := slices.IndexFunc(survey.Members, func(m client.MemberStatus) bool { return m.Err == nil && m.MemberID == known.ID })
		if i < 0 {
			left += "; " + name + " was not compared: no endpoint leads to it, or it does not answer"
			continue
		}
		hash, err := hashAt(ctx, cli, survey.Members[i], barrier)
		switch {
		case ctx.Err() != nil:
			return Comparison{}, context.Cause(ctx)
		case errors.Is(err, rpctypes.ErrCompacted), err == nil && len(answers) > 0 && hash.CompactRevision != answers[0].hash.CompactRevision:
			return Comparison{}, errors.New("the members cannot be compared now: the cluster compacted its history between the answers")
		case err != nil:
			left += fmt.Sprintf("; %s was not compared: %v", name, err)
		default:
			answers = append(answers, answer{name, survey.Members[i].Version, hash})
		}
	}
	c, err := judge(answers, barrier.Revision)
	c.Text += left
	return c, err
}

// hashAt is a member's HashKV at the barrier.
func hashAt(ctx context.Context, cli *client.Client, m client.MemberStatus, b client.Barrier) (client.HashKV, error) {
	if m.IsLearner {
		return client.HashKV{}, errors.New("a learner computes no hash")
	}
	if unfit, err := cli.Unfit(ctx, m); unfit != "" || err != nil {
		return client.HashKV{}, cmp.Or(err, errors.New(unfit))
	}
	if err := cli.WaitApplied(ctx, m, b); err != nil {
		return client.HashKV{}, err
	}
	return cli.HashKV(ctx, m, b.Revision)
}

// judge names the members that differ from the majority of those that answered.
func judge(answers []answer, revision int64) (Comparison, error) {
	c := Comparison{Revision: revision, Compared: len(answers)}
	by := map[uint32][]string{}
	for _, a := range answers {
		by[a.hash.Hash] = append(by[a.hash.Hash], a.name)
	}
	if len(by) < 2 {
		c.Text = fmt.Sprintf("compared: %d, all with the same history up to revision %d", len(answers), revision)
		return c, nil
	}
	// Hashes of old servers differ without a fault.
	if i := slices.IndexFunc(answers, func(a answer) bool { return snapshot.HashesOtherwise(a.version) }); i >= 0 {
		return c, fmt.Errorf("the members cannot be compared: their hashes differ, but the hash of etcd %s, which %s runs, depends on how far its last compaction came; upgrade to 3.5.16 or newer", answers[i].version, answers[i].name)
	}
	for _, same := range by {
		if 2*len(same) <= len(answers) {
			c.Divergent = append(c.Divergent, same...)
		}
	}
	slices.Sort(c.Divergent)
	c.Text = fmt.Sprintf("at revision %d the history of %s differs from that of the others", revision, strings.Join(c.Divergent, ", "))
	if len(c.Divergent) == len(answers) {
		c.Text += ", and no majority shows which is right"
	}
	c.Text += "; take no backup from there: compare with 'requorum verify', then remove the member and add it anew, empty"
	return c, nil
}
