package heartbeat

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/status"
)

// Event is what the webhook is told. Its JSON form is stable; docs/json.md has it.
type Event struct {
	// Event is failure or recovery.
	Event string `json:"event"`
	// Sequence counts the agent's events since it started, from 1.
	Sequence int64     `json:"sequence"`
	Time     time.Time `json:"time"` // when it was seen
	Agent    string    `json:"agent"`
	Cluster  string    `json:"cluster_id,omitempty"`
	Repo     string    `json:"repository_id,omitempty"`
	// Key is the same for the failure and the recovery of one problem, whichever
	// agent tells, also after a restart.
	Key      string          `json:"key"`
	Kind     string          `json:"kind"`
	Severity status.Severity `json:"severity"`
	Since    time.Time       `json:"since"`
	Text     string          `json:"text"`
	Next     string          `json:"next,omitempty"`
	// Ready tells whether any problem is critical now.
	Ready bool `json:"ready"`
	// Until is the time up to which everything can be restored.
	Until time.Time `json:"recoverable_until,omitzero"`
}

// The events.
const (
	Failure  = "failure"
	Recovery = "recovery"
)

// settle is how long a problem has to be gone until that is told: one that comes
// and goes is one problem.
const settle = 30 * time.Second

// edges finds out which problems came and went.
type edges struct {
	sequence int64
	known    map[string]*knownProblem
	cluster  string // the last ones that were known
	repo     string
}

type knownProblem struct {
	problem status.Problem
	gone    time.Time // zero while it is there
}

// look compares a Status with what is known, and gives the events in between,
// ordered by severity and kind.
func (e *edges) look(s *status.Status, now time.Time) []Event {
	if e.known == nil {
		e.known = map[string]*knownProblem{}
	}
	// A cluster that does not answer is still the same one.
	if s.Cluster.ID != "" {
		e.cluster = s.Cluster.ID
	}
	if s.Repository.ID != "" {
		e.repo = s.Repository.ID
	}
	ready, _ := s.Ready()
	var events []Event
	add := func(event, id string, p status.Problem) {
		// Not the IDs, which an agent that starts in the middle of a disaster does
		// not know yet.
		sum := sha256.Sum256([]byte(s.Repository.URL + "\x00" + id))
		e.sequence++
		events = append(events, Event{
			Event: event, Sequence: e.sequence, Time: now, Agent: s.Agent, Cluster: e.cluster, Repo: e.repo,
			Key: hex.EncodeToString(sum[:8]), Kind: p.Kind, Severity: p.Severity, Since: p.Since, Text: p.Text, Next: p.Next,
			Ready: ready, Until: s.RPO.Until,
		})
	}
	seen := map[string]bool{}
	for _, p := range s.Problems {
		if p.Kind == status.KindHeartbeat && strings.HasPrefix(p.Text, webhookName) {
			continue // that it cannot be told is not for it to tell
		}
		id := p.Kind + "\x00" + pattern(p.Text)
		if seen[id] {
			continue
		}
		seen[id] = true
		known := e.known[id]
		if known == nil || known.problem.Severity != p.Severity {
			add(Failure, id, p)
		}
		e.known[id] = &knownProblem{problem: p}
	}
	for _, id := range sortedKeys(e.known) {
		known := e.known[id]
		switch {
		case seen[id]:
		case known.gone.IsZero():
			known.gone = now
		case now.Sub(known.gone) >= settle:
			add(Recovery, id, known.problem)
			delete(e.known, id)
		}
	}
	return events
}

func sortedKeys(m map[string]*knownProblem) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// units follow a number, and change with it.
var units = strings.Fields("s ms µs second seconds minute minutes min hour hours h day days d B kB KB MB GB KiB MiB GiB TiB byte bytes")

// pattern is a text without its numbers: "63 s behind" and "2 minutes behind" are
// one problem that lasts.
func pattern(text string) string {
	var words []string
	for _, word := range strings.Fields(text) {
		bare := strings.Trim(word, "()[]<>,.;:~+-")
		number := bare != "" && bare[0] >= '0' && bare[0] <= '9'
		after := len(words) > 0 && words[len(words)-1] == "#"
		switch {
		case number && after, after && slices.Contains(units, bare):
		case number:
			words = append(words, "#")
		default:
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}
