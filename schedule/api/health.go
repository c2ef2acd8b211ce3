package api

import (
	"fmt"
	"net/http"

	"github.com/requorum/requorum/schedule/status"
)

// healthz tells that the process answers. It looks at nothing else: an agent
// that is restarted because the repository is away helps nobody.
func healthz(w http.ResponseWriter, _ *http.Request) {
	text(w, http.StatusOK)
	fmt.Fprintln(w, "ok")
}

// readyz tells whether what is promised holds, and otherwise why not: one
// critical problem a line, with what to do.
func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	st := a.Status()
	if st == nil || st.Repository.Listed.IsZero() && len(st.Problems) == 0 {
		text(w, http.StatusServiceUnavailable)
		fmt.Fprintln(w, "starting: the cluster and the repository have not been looked at yet")
		return
	}
	if ready, _ := st.Ready(); ready {
		text(w, http.StatusOK)
		fmt.Fprintln(w, "ok")
		return
	}
	text(w, http.StatusServiceUnavailable)
	for _, p := range st.Problems {
		if p.Severity != status.Critical {
			continue
		}
		line := p.Kind + ": " + p.Text
		if p.Next != "" {
			line += " Next: " + p.Next
		}
		fmt.Fprintln(w, oneLine(line))
	}
}

func text(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
}
