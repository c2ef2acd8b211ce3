package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/requorum/requorum/schedule/control/journal"
	"github.com/requorum/requorum/schedule/control/protocol"
)

const (
	bodyLimit = 4 << 20 // plans hold a member list, and what they were made from
	// answerTimeout is what an answer may take on the wire once an action is over.
	answerTimeout = 30 * time.Second
)

// action is the way of all verbs that change something.
func action(act func(*server, context.Context, *protocol.Action) (*protocol.Done, error)) func(*server, *call) {
	return func(s *server, c *call) {
		a, err := s.admit(c)
		if err != nil {
			s.refuse(c, err)
			return
		}
		if !s.acting.TryLock() {
			s.refuse(c, refused(protocol.Busy, errors.New("another action is under way on this member: ask again when it has ended")))
			return
		}
		defer s.acting.Unlock()
		if err := s.holds(a); err != nil {
			s.refuse(c, err)
			return
		}
		if !s.allow(c) {
			return
		}
		// A client that goes away ends nothing half-way: what its next request finds
		// is done, or has failed.
		ctx := context.WithoutCancel(c.r.Context())
		control := http.NewResponseController(c.w)
		_ = errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})) // where there are none, none end it
		began := time.Now()
		done, err := act(s, ctx, a)
		s.outcome(c, began, err)
		_ = control.SetWriteDeadline(time.Now().Add(answerTimeout))
		if err != nil {
			why := asRefusal(err)
			s.Logger.Warn("an action failed", "verb", c.line.Verb, "run", a.Run, "error", err)
			send(c.w, why.status(), why.Refusal)
			return
		}
		s.Logger.Info("an action was done", "verb", c.line.Verb, "run", a.Run, "client", c.line.Client)
		send(c.w, http.StatusOK, done)
	}
}

// admit reads a request and lets it through once.
func (s *server) admit(c *call) (*protocol.Action, error) {
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, refused(protocol.BadRequest, errors.New("the body has to be application/json"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, bodyLimit))
	if err != nil {
		return nil, refused(protocol.BadRequest, fmt.Errorf("the body: %w", err))
	}
	var a protocol.Action
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return nil, refused(protocol.BadRequest, fmt.Errorf("the body: %w", err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, refused(protocol.BadRequest, errors.New("the body holds more than one value"))
	}
	c.line.Member, c.line.Run, c.line.Nonce = a.Member, a.Run, a.Nonce
	if name := s.Config.Member.Name; a.Member != name {
		return nil, refused(protocol.OtherMember, fmt.Errorf("the request is for member %q, and this host controls %q: look at the addresses", a.Member, name))
	}
	if err := protocol.CheckRun(a.Run); err != nil {
		return nil, refused(protocol.BadRequest, err)
	}
	if c.line.Verb != protocol.Rebuild && (a.Plan != nil || a.Source != nil) {
		return nil, refused(protocol.BadRequest, fmt.Errorf("%s takes neither a plan nor a source", c.line.Verb))
	}
	if c.line.Verb != protocol.Flags && a.Flags != nil {
		return nil, refused(protocol.BadRequest, fmt.Errorf("%s takes no flags", c.line.Verb))
	}
	if code, err := s.replays.take(a.Header); err != nil {
		return nil, refused(code, err)
	}
	return &a, nil
}

// holds makes sure that no other recovery has the member.
func (s *server) holds(a *protocol.Action) error {
	holder := s.Journal.Run()
	if holder == "" || holder == a.Run || holder == a.TakesOver {
		return nil
	}
	err := fmt.Errorf("run %s has the member: go on with that run, or name it in takes_over where it will not go on", holder)
	return &refusal{protocol.Refusal{Code: protocol.Held, Error: err.Error(), Holder: holder}, err}
}

// hold gives the member to a run.
func (s *server) hold(run string) error {
	if s.Journal.Holds(run) {
		return nil
	}
	return s.Journal.Add(journal.Entry{Run: run, Step: journal.Held})
}
