package job

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks/repository"
)

// Defaults of BoardOptions.
const (
	// DefaultPatience is long enough for a repository that answers slowly, and
	// short against what a missing backup costs.
	DefaultPatience = 90 * time.Second
	// DefaultBeatEvery leaves room for four beats that fail.
	DefaultBeatEvery = 20 * time.Second
	// DefaultMaxAttempts is enough for one host that cannot and one that dies.
	DefaultMaxAttempts = 3
)

// BoardOptions say how agents share the slots. Zero durations and counts are the
// defaults; those of all agents should be equal.
type BoardOptions struct {
	// Patience is how long another's attempt may show no progress before it is
	// taken for dead, by this process's own monotonic clock.
	Patience time.Duration
	// BeatEvery is how often a run that lasts shows progress.
	BeatEvery time.Duration
	// MaxAttempts is after how many a failure is the slot's result.
	MaxAttempts int
	// Exclusive tells that of two writers racing for one name exactly one wins
	// (sinks.Abilities). Without it only Writer does jobs.
	Exclusive bool
	// Writer is the one agent that does jobs; empty: each may.
	Writer string
}

// Board is one agent's view of slots, attempts and results in a repository. It
// may be used concurrently, by one goroutine for each job.
type Board struct {
	repo    *repository.Repository
	agent   string
	process string // tells this start of the agent from others
	began   time.Time
	o       BoardOptions
	now     func() time.Time // the wall clock

	mu    sync.Mutex
	seen  map[string]sighting // others' attempts, by slotKey
	begun map[string]begun    // own attempts, by slotKey
	known history
	// orphans are slots that were asked for whose results are awaited, other is an
	// agent that runs under this one's name.
	orphans map[orphan]bool
	other   namesake
}

// sighting is what was seen of the newest attempt at a slot, and since when.
type sighting struct {
	attempt, beat int
	holder        string // empty: nobody can tell
	since         time.Time
	looked        time.Time // both with monotonic readings
}

// begun is the newest attempt at a slot that this process made.
type begun struct {
	attempt int
	at      time.Time
}

// NewBoard takes part under the name agent, which is the same after a restart
// and no other agent's. It asks nothing yet. Without exclusive creates, and
// without a writer's name, it refuses: two agents would do the same work.
func NewBoard(repo *repository.Repository, agent string, o BoardOptions) (*Board, error) {
	if agent == "" {
		return nil, errors.New("an agent needs a name of its own to share jobs: set the key name")
	}
	if !o.Exclusive && o.Writer == "" {
		return nil, fmt.Errorf("%s has no conditional puts, so agents cannot agree on who does a job: name the one that does with the key repository.writer", repo)
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.BeatEvery == 0 {
		o.BeatEvery = DefaultBeatEvery
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = DefaultMaxAttempts
	}
	if o.Patience < 2*o.BeatEvery || o.BeatEvery < 0 || o.MaxAttempts < 0 {
		return nil, fmt.Errorf("a patience of %v with a beat every %v and %d attempts is not possible: patience is at least two beats", o.Patience, o.BeatEvery, o.MaxAttempts)
	}
	var process [6]byte
	rand.Read(process[:]) // never fails, by its documentation
	return &Board{
		repo: repo, agent: agent, process: hex.EncodeToString(process[:]), began: time.Now(), o: o, now: time.Now,
		seen: map[string]sighting{}, begun: map[string]begun{}, known: history{}, orphans: map[orphan]bool{},
	}, nil
}

// Waiting says why this agent does no jobs; empty where it does.
func (b *Board) Waiting() string {
	switch {
	case b.o.Writer == "" || b.o.Writer == b.agent:
		return ""
	case b.o.Exclusive:
		return fmt.Sprintf("the configuration names %s as the one agent that does jobs (repository.writer)", b.o.Writer)
	}
	return fmt.Sprintf("%s has no conditional puts: only %s does jobs (repository.writer)", b.repo, b.o.Writer)
}

// lookEvery is how often somebody else's run is looked at.
func (b *Board) lookEvery() time.Duration { return b.o.Patience / 3 }

func slotKey(job, slot string) string { return job + "/" + slot }

// forget drops what is known of attempts at a slot that is done, and of slots
// that nobody has looked at for a day.
func (b *Board) forget(job, slot string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.seen, slotKey(job, slot))
	for key, s := range b.seen {
		if time.Since(s.looked) > 24*time.Hour {
			delete(b.seen, key)
		}
	}
	for key, own := range b.begun {
		if time.Since(own.at) > 7*24*time.Hour {
			delete(b.begun, key)
		}
	}
}
