package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// survey answers with the digest of the stopped member's data, or of what a run
// set aside, and its sum behind it.
func (s *server) survey(c *call) {
	run, err := parseSurvey(c.r.URL.Query())
	c.line.Run = run
	if err != nil {
		s.refuse(c, refused(protocol.BadRequest, err))
		return
	}
	if s.Hooks.Digest == nil {
		s.refuse(c, refused(protocol.NotOffered, errors.New("this process cannot survey a member")))
		return
	}
	ctx := c.r.Context()
	survivor, done, err := s.surveyed(ctx, run)
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer done()
	if !s.allow(c) {
		return
	}
	control := http.NewResponseController(c.w)
	_ = errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})) // a large database is read before the first byte
	c.w.Header().Set("Content-Type", "application/octet-stream")
	c.w.Header().Set("Trailer", protocol.SumTrailer)
	sum := sha256.New()
	out := &deadlined{w: c.w, control: control}
	began := time.Now()
	err = s.Hooks.Digest(ctx, io.MultiWriter(sum, out), survivor)
	if err == nil && run == "" {
		err = s.idle()
	}
	s.outcome(c, began, err)
	if err != nil {
		s.Logger.Error("a member could not be surveyed", "data_dir", survivor.DataDir, "run", run, "error", err)
		if out.begun {
			panic(http.ErrAbortHandler) // nobody takes a part for the whole
		}
		c.w.Header().Del("Trailer")
		why := asRefusal(err)
		send(c.w, why.status(), why.Refusal)
		return
	}
	_ = control.SetWriteDeadline(time.Now().Add(stallTimeout))
	c.w.Header().Set(protocol.SumTrailer, hex.EncodeToString(sum.Sum(nil)))
}

func parseSurvey(q url.Values) (run string, err error) {
	for key, values := range q {
		if key != "run" || len(values) != 1 {
			return "", fmt.Errorf("parameter %q: want run, once, or nothing", key)
		}
		if err := protocol.CheckRun(values[0]); err != nil {
			return "", err
		}
		run = values[0]
	}
	return run, nil
}

// surveyed is what is read, as a data directory. The caller calls done.
func (s *server) surveyed(ctx context.Context, run string) (_ recovery.Survivor, done func(), err error) {
	m := s.Config.Member
	if run == "" {
		if _, err := s.Controller.Stopped(ctx); err != nil {
			return recovery.Survivor{}, nil, err
		}
		return recovery.Survivor{Name: m.Name, DataDir: m.DataDir, WALDir: m.WALDir}, func() {}, s.idle()
	}
	aside := s.asideOf(run)
	if aside == nil || aside.Folder == "" {
		return recovery.Survivor{}, nil, refused(protocol.NotFound, fmt.Errorf("nothing is set aside by run %s", run))
	}
	folder, err := os.MkdirTemp(s.Config.StateDir, "survey-")
	if err != nil {
		return recovery.Survivor{}, nil, err
	}
	done = func() { _ = os.RemoveAll(folder) } // a link
	survivor := recovery.Survivor{Name: m.Name}
	if survivor.DataDir, survivor.WALDir, err = aside.View(folder); err != nil {
		done()
		return recovery.Survivor{}, nil, err
	}
	return survivor, done, nil
}

// deadlined lets no client hold an answer that takes none of it.
type deadlined struct {
	w       io.Writer
	control *http.ResponseController
	begun   bool
}

func (d *deadlined) Write(p []byte) (int, error) {
	d.begun = true
	_ = d.control.SetWriteDeadline(time.Now().Add(stallTimeout))
	return d.w.Write(p)
}
