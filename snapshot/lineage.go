package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/client"
)

// ErrOtherLineage says that a repository holds the history of other clusters, and
// that nothing says that this one goes on from them.
var ErrOtherLineage = errors.New("the repository belongs to another cluster")

// CheckLineage refuses what Take would refuse for it, and changes nothing.
func (r *Request) CheckLineage(ctx context.Context, survey client.Survey) error {
	repo, err := repository.Open(ctx, r.Sink)
	if errors.Is(err, repository.ErrNoRepository) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.checkLineage(ctx, repo, survey)
}

func (r *Request) checkLineage(ctx context.Context, repo *repository.Repository, survey client.Survey) error {
	if r.NewLineage || r.Timeline.N > 0 {
		return nil
	}
	var parent repository.TimelineID
	if r.Parent != nil {
		parent = r.Parent.Timeline
	}
	return CheckLineage(ctx, repo, survey.ClusterID, memberNames(survey), parent)
}

// CheckLineage refuses a cluster that a repository does not know, where it holds
// timelines of others, with an error that wraps ErrOtherLineage and names them. A
// cluster is known by its ID; or it goes on from parent, which has to be in the
// repository. parent is zero where nothing says that.
func CheckLineage(ctx context.Context, repo *repository.Repository, clusterID uint64, members []string, parent repository.TimelineID) error {
	ids, err := repo.TimelineIDs(ctx)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(ids, func(id repository.TimelineID) bool { return id.ClusterID == clusterID }); i >= 0 {
		return sameParent(ctx, repo, ids[i], parent)
	}
	switch {
	case slices.Contains(ids, parent):
		return nil
	case parent.N > 0:
		return fmt.Errorf("there is no timeline %s in %s that the cluster could have been restored from", parent, repo)
	}
	c, err := ReadCatalog(ctx, repo)
	if err != nil || len(c.Timelines) == 0 {
		return err
	}
	if i := slices.IndexFunc(c.Timelines, func(t repository.Timeline) bool { return t.ID.ClusterID == clusterID }); i >= 0 {
		return sameParent(ctx, repo, c.Timelines[i].ID, parent) // another writer opened it meanwhile
	}
	who := "cluster " + ID(clusterID).String()
	if len(members) > 0 {
		who += " (members " + strings.Join(members, ", ") + ")"
	}
	var held strings.Builder
	for _, t := range c.Timelines {
		held.WriteString("\n  " + c.Summary(t.ID))
	}
	return fmt.Errorf("%w: %s is not known in %s, which holds%s\nNothing was stored. Give this cluster a repository of its own. If it was restored from one of these timelines, say so once: 'requorum backup --parent TIMELINE'. To keep separate clusters in one repository all the same: 'requorum backup --new-lineage'",
		ErrOtherLineage, who, repo, held.String())
}

// sameParent refuses a parent other than the one that a known cluster's first
// timeline has: descriptors are written once.
func sameParent(ctx context.Context, repo *repository.Repository, first, parent repository.TimelineID) error {
	if parent.N == 0 {
		return nil
	}
	t, err := repo.Timeline(ctx, first)
	if err == nil && t.Parent != nil && t.Parent.Timeline == parent {
		return nil
	}
	return fmt.Errorf("timeline %s of this cluster is in %s already, and does not go on from %s: that cannot be changed, leave the parent out", first, repo, parent)
}

// Summary names a timeline with its cluster's members, how many full snapshots it
// has, from when, and how large the newest one's database is.
func (c *Catalog) Summary(id repository.TimelineID) string {
	var members []string
	text := "timeline " + id.String()
	opened := ""
	for _, t := range c.Timelines {
		if t.ID == id {
			members = t.Members
			if !t.Created.IsZero() {
				opened = ", opened " + t.Created.UTC().Format(timeLayout)
			}
		}
	}
	var all []*Manifest
	for _, m := range c.Manifests {
		if m.Timeline == id {
			all = append(all, m)
		}
	}
	if len(all) > 0 {
		members = nil
		for _, m := range all[len(all)-1].Facts.Members {
			members = append(members, m.Name)
		}
		slices.Sort(members)
	}
	if len(members) > 0 {
		text += ": members " + strings.Join(members, ", ")
	}
	if len(all) == 0 {
		return text + opened + ", no full snapshot"
	}
	first, last := all[0], all[len(all)-1]
	size := humanize.IBytes(uint64(last.Object.RawSize))
	if len(all) == 1 {
		return fmt.Sprintf("%s; 1 full snapshot, of %s, database %s", text, last.Started.UTC().Format(timeLayout), size)
	}
	return fmt.Sprintf("%s; %d full snapshots, %s to %s, newest database %s", text, len(all), first.Started.UTC().Format(timeLayout), last.Started.UTC().Format(timeLayout), size)
}

const timeLayout = "2006-01-02 15:04:05Z"
