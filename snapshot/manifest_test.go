package snapshot

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// A manifest of a format or a kind that no version writes is damaged; one of a newer format
// is not.
func TestManifest_FormatOfNoVersion_IsDamage(t *testing.T) {
	repo, err := repository.Init(t.Context(), sinktest.NewMemory(), time.Now())
	require.NoError(t, err)
	for i, test := range []struct {
		format int
		kind   string
		newer  bool
	}{{0, KindFull, false}, {-1, KindFull, false}, {1, "other", false}, {2, KindFull, true}} {
		timeline := repository.TimelineID{ClusterID: 7, N: i + 1}
		id := repository.NewBackupID(time.Now())
		m := Manifest{Format: test.format, Kind: test.kind, ID: id, Timeline: timeline}
		require.NoError(t, repo.WriteDocument(t.Context(), repository.ManifestName(timeline, id), m))
		_, err := ReadManifest(t.Context(), repo, timeline, id)
		if errors.Is(err, ErrNewerFormat) != test.newer || IsDamaged(err) == test.newer {
			t.Errorf("format %d, kind %s: %v", test.format, test.kind, err)
		}
	}
}
