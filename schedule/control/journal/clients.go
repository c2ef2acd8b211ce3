package journal

import (
	"slices"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// Client is what a recovery did with a client of the host.
type Client struct {
	Name string `json:"name"`
	// Ran is whether it ran, or was to, before the recovery touched any.
	Ran   bool                 `json:"ran"`
	Phase protocol.ClientPhase `json:"phase,omitempty"`
}

// Quiesce is that of a run, which has not been resumed.
type Quiesce struct {
	Run     string
	Clients []Client
}

// Client is what is known of one; nil where nothing is.
func (q *Quiesce) Client(name string) *Client {
	for i := range q.Clients {
		if q.Clients[i].Name == name {
			return &q.Clients[i]
		}
	}
	return nil
}

// Quiesce is the one that is not resumed; nil where there is none.
func (j *Journal) Quiesce() *Quiesce {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.quiesce == nil {
		return nil
	}
	return &Quiesce{Run: j.quiesce.Run, Clients: slices.Clone(j.quiesce.Clients)}
}

// applyClients takes up an entry about clients. They are a run's for as long as the
// member is, and whoever takes one over takes the other as well.
func (j *Journal) applyClients(e Entry) {
	switch e.Step {
	case Quiescing:
		if j.quiesce == nil {
			j.quiesce = &Quiesce{}
		}
		j.quiesce.Run = e.Run
		if j.run != "" {
			j.run = e.Run
		}
		j.quiesce.Clients = append(j.quiesce.Clients, e.Clients...)
	case ClientAt:
		if j.quiesce == nil {
			return
		}
		for _, c := range e.Clients {
			if known := j.quiesce.Client(c.Name); known != nil {
				known.Phase = c.Phase
			}
		}
	case Held:
		if j.quiesce != nil {
			j.quiesce.Run = e.Run
		}
	case Resumed:
		j.quiesce = nil
	default: // it is about the member
	}
}
