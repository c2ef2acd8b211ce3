package control_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/sinks/repository"
)

// TestRepositories: what can be read here of the configured repositories is told to who
// may observe; a request names pieces, and no repository.
func TestRepositories(t *testing.T) {
	r := newRig(t, idle(t))
	log := protocol.Stored{Timeline: repository.TimelineID{ClusterID: 0x5bd6, N: 1}}
	full := protocol.Stored{Timeline: log.Timeline, Backup: "20260102T030405Z-abcdef"}
	ask := func(pieces ...protocol.Stored) ([]protocol.Repository, error) {
		return r.client(t, run1, protocol.Observe).Repositories(t.Context(), pieces)
	}
	if _, err := ask(log); codeOf(err) != protocol.NotOffered {
		t.Errorf("without a hook: %v", err)
	}
	var asked []protocol.Stored
	r.hooks.Repositories = func(_ context.Context, pieces []protocol.Stored) []protocol.Repository {
		asked = pieces
		return []protocol.Repository{{URL: "s3://b", Lacks: []protocol.Lack{{Piece: full, Why: "no key"}}}, {URL: "file:///r", Error: "away"}}
	}
	r.restart(t)
	got, err := ask(full, log)
	if err != nil || !slices.Equal(asked, []protocol.Stored{full, log}) || len(got) != 2 || got[1].Error != "away" {
		t.Fatalf("%+v, %v; asked for %v", got, err, asked)
	}
	if got[0].Unread([]protocol.Stored{log}) != "" || got[0].Unread([]protocol.Stored{log, full}) != "no key" {
		t.Errorf("%+v", got[0])
	}
	if l := r.last(t, control.Allowed, ""); l.Verb != protocol.Observe {
		t.Errorf("the audit ends with %+v", l)
	}
	if _, err := r.client(t, run1, protocol.Copy).Repositories(t.Context(), nil); codeOf(err) != protocol.Forbidden {
		t.Errorf("without the role: %v", err)
	}
	asked = nil
	for _, query := range []string{"repository=s3://elsewhere", "piece=../../etc", "piece=" + log.String() + "/..", strings.Repeat("&piece="+log.String(), 65)} {
		if _, refusal := r.raw(t, http.MethodGet, protocol.RepositoriesPath+"?"+query, ""); refusal.Code != protocol.BadRequest || asked != nil {
			t.Errorf("%s: %+v, asked for %v", query, refusal, asked)
		}
	}
}
