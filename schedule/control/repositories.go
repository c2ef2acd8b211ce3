package control

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// maxPieces bounds what one request lets this host look for.
const maxPieces = 64

// repositories answers what this host can read of its repositories.
func (s *server) repositories(c *call) {
	pieces, err := parsePieces(c.r.URL.Query())
	if err != nil {
		s.refuse(c, refused(protocol.BadRequest, err))
		return
	}
	if s.Hooks.Repositories == nil {
		s.refuse(c, refused(protocol.NotOffered, errors.New("this process reads no repositories")))
		return
	}
	if !s.allow(c) {
		return
	}
	control := http.NewResponseController(c.w)
	_ = errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})) // the hook has its own
	answer := protocol.Repositories{Repositories: s.Hooks.Repositories(c.r.Context(), pieces)}
	_ = control.SetWriteDeadline(time.Now().Add(answerTimeout))
	send(c.w, http.StatusOK, answer)
}

func parsePieces(q url.Values) (all []protocol.Stored, err error) {
	for key, values := range q {
		if key != "piece" || len(values) > maxPieces {
			return nil, fmt.Errorf("parameter %q: want piece, at most %d times", key, maxPieces)
		}
		for _, v := range values {
			p, err := protocol.ParseStored(v)
			if err != nil {
				return nil, fmt.Errorf("parameter %q: %w", key, err)
			}
			all = append(all, p)
		}
	}
	return all, nil
}
