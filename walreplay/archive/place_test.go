package archive

import (
	"testing"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// An archiver that is started again where its file system is not mounted: it
// makes no new repository there, and says so; once it is mounted nothing is
// missing.
func TestPromise4NoNewRepositoryForALostOne(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.start(0)
		r.load(10)
		r.waitArchived(a, 40, 5*time.Second)
		a.stop()

		empty := sinktest.NewMemory()
		r.gone.Sink = empty
		b := r.startWith(a.config)
		r.load(20)
		if !b.has(AlarmRepository) {
			t.Errorf("no alarm: %+v", b.State())
		}
		for obj, err := range empty.List(t.Context(), "", "") {
			t.Errorf("%v was stored in an empty place (%v)", obj.Name, err)
		}
		b.stop()

		// Another repository in its place is not taken for it either.
		if _, err := repository.Init(t.Context(), empty, time.Now()); err != nil {
			t.Fatal(err)
		}
		b = r.startWith(a.config)
		r.load(10)
		if !b.has(AlarmRepository) || b.State().Spooled == 0 {
			t.Errorf("state: %+v", b.State())
		}
		r.gone.Sink = r.memory
		r.waitArchived(b, 160, time.Minute)
		r.sameAs(1, r.cluster.members[0].entries)
	})
}
