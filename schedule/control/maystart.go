package control

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/walfile"
)

// mayStart refuses a member of a cluster that another one has taken the place of:
// by this host's own journal, and by what the hook asks.
func (s *server) mayStart(ctx context.Context) (warnings []string, err error) {
	cluster, err := s.cluster()
	if err != nil {
		return nil, err
	}
	if b := s.Journal.Superseding(cluster); b != nil {
		return nil, fmt.Errorf("the data in %s is of cluster %s, which was superseded by cluster %s in run %s: undo that run to go back to it, or set the data aside",
			s.Config.Member.DataDir, cluster, b.New, b.Run)
	}
	if s.Hooks.MayStart == nil {
		return nil, nil
	}
	warnings, err = s.Hooks.MayStart(ctx, cluster, s.Journal.TakenBack(cluster))
	for _, w := range warnings {
		s.Logger.Warn("a member is started without all that was to be asked first", "warning", w)
	}
	return warnings, err
}

// cluster is the one whose member the directories are of, as their log says.
func (s *server) cluster() (snapshot.ID, error) {
	m := s.Config.Member
	dir := m.WALDir
	if dir == "" {
		dir = filepath.Join(m.DataDir, "member", "wal")
	}
	log, err := walfile.Open(dir)
	if err != nil {
		return 0, fmt.Errorf("which cluster the data in %s is of cannot be read: %w", m.DataDir, err)
	}
	return snapshot.ID(log.Identity().ClusterID), log.Close()
}
