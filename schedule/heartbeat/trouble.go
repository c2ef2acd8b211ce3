package heartbeat

import (
	"log/slog"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/status"
)

// trouble is whether sending works. It is logged when that changes.
type trouble struct {
	what   string // "the heartbeat"
	logger *slog.Logger

	mu    sync.Mutex
	since time.Time
	text  string
}

// worked ends the trouble.
func (t *trouble) worked() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text != "" {
		t.logger.Info(t.what+" is delivered again", "after", time.Since(t.since).Round(time.Second))
	}
	t.text, t.since = "", time.Time{}
}

// failed begins the trouble, or goes on with it.
func (t *trouble) failed(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text == "" {
		t.since = time.Now()
		t.logger.Warn(t.what+" cannot be delivered", "reason", text)
	}
	t.text = text
}

func (t *trouble) problem() (status.Problem, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text == "" {
		return status.Problem{}, false
	}
	return status.Problem{
		Kind: status.KindHeartbeat, Severity: status.Warning, Since: t.since,
		Text: t.what + " cannot be delivered: " + t.text,
		Next: "look whether the service behind its URL is there, and whether this host may reach it",
	}, true
}
