package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/requorum/requorum/schedule/control/member"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// member answers Observe.
func (s *server) member(c *call) {
	if !s.allow(c) {
		return
	}
	control := http.NewResponseController(c.w)
	_ = errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})) // a survey reads a whole log
	ctx := c.r.Context()
	m := s.Config.Member
	answer := protocol.Member{Name: m.Name, Kind: m.Kind, DataDir: m.DataDir, WALDir: m.WALDir, Run: s.Journal.Run(),
		StopTimeout: time.Duration(m.StopTimeout), StartTimeout: time.Duration(m.StartTimeout)}
	quiesced := s.Journal.Quiesce()
	if answer.Clients = s.clientStates(ctx, quiesced); quiesced != nil {
		answer.Quiesced = quiesced.Run
	}
	for _, a := range s.Journal.Asides() {
		answer.Aside = append(answer.Aside, a.Aside)
	}
	if manual := member.Manual(s.Controller); manual != nil {
		answer.Manual = manual.Steps
	}
	if id, err := s.cluster(); err == nil { // there may be nothing as yet, or what another writes
		answer.Cluster = id.String()
	}
	found := s.place().Read(ctx)
	answer.Flags = &found
	var err error
	if answer.Stopped, err = s.Controller.Stopped(ctx); err != nil {
		answer.NotStopped, answer.Runs = err.Error(), errors.Is(err, member.ErrRuns)
	}
	if b := s.Journal.Newest(); b != nil && c.r.URL.Query().Get("built") == "true" {
		answer.Built = &protocol.Built{Run: b.Run, Old: b.Old, New: b.New, Ago: max(0, time.Since(b.At)), Result: b.Result}
	}
	if answer.Stopped != nil && s.Hooks.Survey != nil && c.r.URL.Query().Get("survey") == "true" {
		found, err := s.Hooks.Survey(ctx, m.DataDir, m.WALDir)
		if err == nil {
			answer.Survey, err = asJSON(found)
		}
		if err != nil {
			answer.SurveyError = err.Error()
		}
	}
	// Last, so that it is as young as can be when the client reads it.
	answer.Clock = s.replays.clock()
	_ = control.SetWriteDeadline(time.Now().Add(answerTimeout))
	send(c.w, http.StatusOK, answer)
}

func asJSON(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	raw, err := json.Marshal(v)
	return raw, err
}
