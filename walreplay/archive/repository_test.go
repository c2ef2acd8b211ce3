package archive

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// An archiver that is started again where its file system is not mounted: it
// makes no new repository there, and says so; once it is mounted nothing is
// missing.
func TestPromise4NoNewRepositoryForALostOne(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		a := r.archived(10)
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
		_, err := repository.Init(t.Context(), empty, time.Now())
		require.NoError(t, err)
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

// sharedSink is a place that overwrites, as some S3 servers do.
type sharedSink struct{ sinks.Sink }

func (s sharedSink) Abilities(context.Context) (sinks.Abilities, error) {
	return sinks.Abilities{Notes: []string{"it overwrites"}}, nil
}

// Promise 4: where no conditional put decides between writers, an archiver
// refuses to write at all, unless it was said to be the only one. The error says
// what to do.
func TestPromise4NoConditionalPuts(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.cluster.commit(5, "x")
		a := r.start(0, func(c *Config) { c.Sink = sharedSink{r.sink} })
		err := a.ended(time.Minute)
		var shared *SharedError
		if !errors.As(err, &shared) || !strings.Contains(err.Error(), "repository.lease: off") {
			t.Fatalf("got %v", err)
		}
		if names := r.names(); len(names) > 0 {
			t.Errorf("written all the same: %v", names)
		}
		b := r.start(0, func(c *Config) { c.Sink, c.SingleWriter = sharedSink{r.sink}, true })
		r.waitArchived(b, 5, 5*time.Second)
	})
}

// The same when the repository comes back only after a while.
func TestNoConditionalPutsAfterTheReturn(t *testing.T) {
	inFakeTime(t, 1, func(t *testing.T, r *rig) {
		r.cluster.commit(5, "x")
		a := r.start(0)
		r.waitArchived(a, 5, 5*time.Second)
		a.stop()
		r.gone.away.Store(true)
		config := a.config
		config.Sink = sharedSink{r.sink}
		b := r.startWith(config)
		r.load(20)
		r.gone.away.Store(false)
		var shared *SharedError
		err := b.ended(time.Minute)
		if !errors.As(err, &shared) {
			t.Errorf("got %v", err)
		}
	})
}
